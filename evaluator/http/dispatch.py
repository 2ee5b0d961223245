"""Plain HTTP requests to handlers, whichever protocol version they came by."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote

from evaluator.http.routes import Headers, HttpHandler, Request, Response, Routes

_log = logging.getLogger(__name__)
_Methods: TypeAlias = dict[str, HttpHandler]
_TEXT: Final[Headers] = (("content-type", "text/plain; charset=utf-8"),)
_REASONS: Final = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


def reason_phrase(status: int) -> str:
    """The words that go with `status` (RFC 9110), or `Unknown`."""
    return _REASONS.get(status, "Unknown")


def refusal(status: int, headers: Headers = ()) -> Response:
    """The response that refuses a request with `status` before any handler saw it."""
    return Response(status, reason_phrase(status).encode() + b"\n", _TEXT + headers)


def split_target(target: str) -> tuple[str, str]:
    """(path, percent-decoded; query) of a request target in origin or absolute form (RFC 9112, 3.2)."""
    if target.startswith(("http://", "https://")):
        slash = target.find("/", target.index("//") + 2)
        target = target[slash:] if slash >= 0 else "/"
    path, _, query = target.partition("#")[0].partition("?")
    return (unquote(path) if "%" in path else path), query


@lru_cache(maxsize=256)
def check_headers(headers: Headers) -> None:
    """Raises ValueError for headers that may not go out: a line break would let a value forge what follows."""
    for name, value in headers:
        value.encode("latin-1")
        if name != name.lower() or not name.isascii() or any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"header {name!r} cannot be sent")


class Dispatch:
    """The plain HTTP half of Routes, indexed: exact paths first, then the longest prefix."""

    def __init__(self, routes: Routes) -> None:
        self._exact: dict[str, _Methods] = {}
        prefixes: dict[str, _Methods] = {}
        for (method, path), handler in routes.http.items():
            under, key = (prefixes, path[:-1]) if path.endswith("/*") else (self._exact, path)
            under.setdefault(key, {})[method] = handler
        self._prefixes = sorted(prefixes.items(), key=lambda item: len(item[0]), reverse=True)
        self._rpcs = routes.unary.keys() | routes.streams.keys()

    def answer(self, request: Request) -> Response:
        """What the handler says, or 404, 405, 415; 500 for a handler that failed, which is logged. Raises nothing."""
        found = self._find(request)
        if isinstance(found, Response):
            return found
        try:
            response = found(request)
            check_headers(response.headers)
        except Exception:  # noqa: BLE001 - logged; one handler's failure is not the port's
            _log.exception("%s %s failed", request.method, request.path)
            return refusal(500)
        return response

    def _find(self, request: Request) -> HttpHandler | Response:
        method = "GET" if request.method == "HEAD" else request.method
        exact = self._exact.get(request.path)
        if exact is not None and method in exact:
            return exact[method]
        known = [exact] if exact is not None else []
        known += [methods for prefix, methods in self._prefixes if request.path.startswith(prefix)]
        for methods in known:
            if method in methods:
                return methods[method]
        if known:
            allowed = {name for methods in known for name in methods}
            allowed |= {"HEAD"} if "GET" in allowed else set()
            return refusal(405, (("allow", ", ".join(sorted(allowed))),))
        return refusal(415 if request.path in self._rpcs else 404)
