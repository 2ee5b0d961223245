"""Artifacts for other processes: immutable archives over HTTP, found by the path that a source's status tells.

An archive never changes under its path, so whoever has it need not ask again; who asks for a part gets that part (RFC 9110, 14).
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from controller.runtime.setbacks import Setback
from evaluator.http.routes import Response, Routes, header

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.routes import Headers, Request

PREFIX: Final = "/flagsource/"
_TYPE: Final = ("content-type", "application/gzip")
_FOREVER: Final = ("cache-control", "private, max-age=31536000, immutable")
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def routes(read: Callable[[str], tuple[bytes, str] | None], tokens: frozenset[str]) -> Routes:
    """GET and HEAD of `/flagsource/<namespace>/<name>/<file>`.

    `read` gives (bytes, digest) for the path without its first slash, or None; it may raise Setback. Whoever asks must bear one of
    `tokens`, unless there are none.
    """

    def answer(request: Request) -> Response:
        if tokens and not _believed(request, tokens):
            return Response(401, b"unauthorized\n", (("www-authenticate", "Bearer"),))
        try:
            found = read(request.path[1:])
        except Setback as setback:
            return Response(503, f"{setback.reason}\n".encode(), (("retry-after", "5"),))
        if found is None:
            return Response(404, b"no such artifact\n", ())
        return _serve(request, *found)

    return Routes(http={("GET", f"{PREFIX}*"): answer, ("HEAD", f"{PREFIX}*"): answer})


def _believed(request: Request, tokens: frozenset[str]) -> bool:
    scheme, _, token = (header(request.headers, "authorization") or "").partition(" ")
    given = token.strip().encode()
    # Every token is compared, so that time tells nothing.
    matches = [hmac.compare_digest(given, known.encode()) for known in tokens]
    return scheme.lower() == "bearer" and any(matches)


def _serve(request: Request, content: bytes, digest: str) -> Response:
    etag = f'"{digest}"'
    headers: Headers = (_TYPE, _FOREVER, ("etag", etag), ("accept-ranges", "bytes"))
    known = header(request.headers, "if-none-match")
    if known is not None and (known.strip() == "*" or etag in known):
        return Response(304, b"", headers)
    asked = header(request.headers, "range")
    condition = header(request.headers, "if-range")
    if asked is None or (condition is not None and condition != etag):
        return Response(200, content, headers)
    part = _RANGE.fullmatch(asked.strip())
    if (
        part is None
        or part[1] == part[2] == ""
        or (part[1] and part[2] and int(part[2]) < int(part[1]))
    ):
        # What is no single sound range is not understood, and the whole is a right answer.
        return Response(200, content, headers)
    start, end = _bounds(part[1], part[2], len(content))
    if start >= len(content) or end < start:
        return Response(416, b"", (("content-range", f"bytes */{len(content)}"),))
    told = ("content-range", f"bytes {start}-{end}/{len(content)}")
    return Response(206, content[start : end + 1], (*headers, told))


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Inclusive; `-n` is the last n bytes."""
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1
