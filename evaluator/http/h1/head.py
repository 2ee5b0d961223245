"""Heads of HTTP/1.1 requests that are plain: nearly all, and read in one go for half the cost of the parser.

Whatever is unusual in any way is left to the parser, which a differential test holds this to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Request
from evaluator.http.server.dispatch import split_target

if TYPE_CHECKING:
    from evaluator.http.messages import Headers
    from evaluator.http.server.limits import Limits

_END: Final = b"\r\n\r\n"
_LONGEST: Final = 4_096
_MOST_FIELDS: Final = 64
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_UNUSUAL: Final = frozenset({"transfer-encoding", "connection", "proxy-connection", "upgrade", "expect"})
"""With these the body is not just so many bytes behind the head, or the connection changes."""
_LENGTH_DIGITS: Final = 9


class _Unusual(Exception):
    """For the parser."""


@lru_cache(maxsize=512)
def _plain_name(name: str) -> str:
    """A field's name in lower case; empty for one that is unusual, or no name."""
    lowered = name.lower()
    return lowered if _TOKEN.issuperset(name) and lowered not in _UNUSUAL else ""


def read_plain(data: bytes, at: int, limits: Limits, peer: str) -> tuple[Request, int] | None:
    """The request that begins at `at` and where it ends, if it is plain and all of it is there."""
    end = data.find(_END, at, at + min(_LONGEST, limits.header_bytes))
    if end < 0:
        return None
    head = data[at : end + 2].decode("latin-1")
    lines = head.split("\r\n")
    if ":  " in head or " \r\n" in head or not "".join(lines).isprintable():
        return None
    try:
        method, target = _request_line(lines[0])
        fields, size = _fields(lines[1:-1])
    except _Unusual:
        return None
    start = end + len(_END)
    if len(data) - start < size or 0 < limits.body_bytes < size:
        return None
    path, query = split_target(target)
    return Request(method, path, query, fields, data[start : start + size], peer), start + size


def _request_line(line: str) -> tuple[str, str]:
    words = line.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1" or words[0] not in _METHODS:
        raise _Unusual
    target = words[1]
    if target[:1] != "/" or "#" in target or not target.isascii():
        raise _Unusual
    return words[0], target


def _fields(lines: list[str]) -> tuple[Headers, int]:
    """The fields, and the size of the body."""
    fields: list[tuple[str, str]] = []
    hosts, length = 0, ""
    for line in lines:
        word, colon, value = line.partition(": ")
        name = _plain_name(word)
        if not (name and colon):
            raise _Unusual
        fields.append((name, value))
        if name == "host":
            hosts += 1
        elif name == "content-length":
            if length or len(value) > _LENGTH_DIGITS or not (value.isascii() and value.isdecimal()):
                raise _Unusual
            length = value
    if hosts != 1 or len(fields) > _MOST_FIELDS:
        raise _Unusual
    return tuple(fields), int(length or 0)
