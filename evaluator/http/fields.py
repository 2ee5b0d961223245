"""Which header fields make a request, and which make trailers (RFC 9113 section 8)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluator.http.routes import Headers

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BAD_VALUE = re.compile(r"[\x00\r\n]|\A[ \t]|[ \t]\Z").search
_LENGTH = re.compile(r"[0-9]{1,18}").fullmatch
_REQUIRED = frozenset({":method", ":scheme", ":path"})
_PSEUDO = _REQUIRED | {":authority"}
_OF_A_CONNECTION = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)

_SHORT = 256

UNDECLARED = -1
"""A content length that the request does not say."""


class Malformed(Exception):
    """Not a request: its stream ends with PROTOCOL_ERROR (section 8.1.1)."""


def _check_field(name: str, value: str) -> None:
    if len(name) + len(value) <= _SHORT:
        _check_short_field(name, value)
    else:
        _check_any_field(name, value)


def _check_any_field(name: str, value: str) -> None:
    if not _NAME(name):
        raise Malformed("field name")
    if _BAD_VALUE(value):
        raise Malformed("field value")
    if name in _OF_A_CONNECTION or (name == "te" and value != "trailers"):
        raise Malformed(name)


_check_short_field = lru_cache(maxsize=512)(_check_any_field)
"""Clients repeat most fields of a call, though not all."""


def check_request(headers: Headers) -> int:
    """The content length that a request declares, or UNDECLARED; Malformed."""
    pseudo: dict[str, str] = {}
    length = UNDECLARED
    regular = False
    for name, value in headers:
        if name.startswith(":"):
            if regular or name not in _PSEUDO or name in pseudo or _BAD_VALUE(value):
                raise Malformed("pseudo-header")
            pseudo[name] = value
            continue
        regular = True
        _check_field(name, value)
        if name == "content-length":
            if not _LENGTH(value) or length not in {UNDECLARED, int(value)}:
                raise Malformed(name)
            length = int(value)
    if not pseudo.keys() >= _REQUIRED or not pseudo[":method"]:
        raise Malformed("pseudo-header missing")
    if not pseudo[":path"].startswith("/") and pseudo[":path"] != "*":
        raise Malformed(":path")
    return length


def may_follow_a_body(headers: Headers) -> bool:
    """Whether these are trailers (section 8.1)."""
    try:
        for name, value in headers:
            _check_field(name, value)
    except Malformed:
        return False
    return True
