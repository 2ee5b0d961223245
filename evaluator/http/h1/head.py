"""Heads of HTTP/1.1 requests that are plain: nearly all, and read in one go for half the cost of the parser.

Whatever is unusual in any way is left to the parser, which a differential test holds this to.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Request
from evaluator.http.server.dispatch import split_target

if TYPE_CHECKING:
    from evaluator.http.server.limits import Limits

_END: Final = b"\r\n\r\n"
_LONGEST: Final = 4_096
_MOST_FIELDS: Final = 64
_REQUEST_LINE: Final = re.compile(r"(GET|HEAD|POST|PUT|DELETE) (/[!\"$-~]*) HTTP/1\.1")
_FIELD: Final = re.compile(r"\n([!#$%&'*+.^_`|~0-9A-Za-z-]+): (?! )([ -~\xa1-\xac\xae-\xff]+)(?<! )(?=\r\n)")
"""A line that a field is alone on, without spaces around its value."""
_UNUSUAL: Final = frozenset({"transfer-encoding", "connection", "proxy-connection", "upgrade", "expect"})
"""With these the body is not just so many bytes behind the head, or the connection changes."""
_LENGTH: Final = re.compile(r"[0-9]{1,9}")


@lru_cache(maxsize=512)
def _lowered(name: str) -> str:
    """Cached, as clients send the same few names."""
    return name.lower()


@lru_cache(maxsize=512)
def _read_request_line(line: str) -> tuple[str, str, str] | None:
    """(method, path, query), if it is plain. Cached, as clients ask for the same few flags."""
    found = _REQUEST_LINE.fullmatch(line)
    return (found[1], *split_target(found[2])) if found else None


def read_plain(data: bytes, at: int, limits: Limits, peer: str) -> tuple[Request, int] | None:
    """The request that begins at `at` and where it ends, if it is plain and all of it is there."""
    end = data.find(_END, at, at + min(_LONGEST, limits.header_bytes))
    if end < 0:
        return None
    line, _, rest = data[at : end + 2].decode("latin-1").partition("\r")
    asked = _read_request_line(line)
    fields = tuple([(_lowered(name), value) for name, value in _FIELD.findall(rest)])
    known = dict(fields)
    # A line that is no field, or one of a name that stands twice, is missing in one of the three.
    if asked is None or not len(known) == len(fields) == rest.count("\n") - 1 <= _MOST_FIELDS:
        return None
    length = known.get("content-length", "0")
    if "host" not in known or not _UNUSUAL.isdisjoint(known) or not _LENGTH.fullmatch(length):
        return None
    start, size = end + len(_END), int(length)
    if len(data) - start < size or 0 < limits.body_bytes < size:
        return None
    return Request(*asked, fields, data[start : start + size], peer), start + size
