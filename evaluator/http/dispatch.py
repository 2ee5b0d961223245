"""Calls the handlers of plain HTTP requests, over either HTTP version."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from evaluator.http.limits import Limits
from evaluator.http.messages import BODILESS, Headers, Request, Response, Streamed, refusal
from evaluator.http.routes import Answer, HttpHandler, Routes
from evaluator.http.rpc import methods

if TYPE_CHECKING:
    from evaluator.http.cors import Cors
    from evaluator.http.deferred import Result

log = logging.getLogger(__name__)
_Methods: TypeAlias = dict[str, HttpHandler]
_NO_METHODS: Final[_Methods] = {}


def split_target(target: str) -> tuple[str, str]:
    """Return the decoded path and the query of a request target (RFC 9112, 3.2)."""
    if target.startswith(("http://", "https://")):
        slash = target.find("/", target.index("//") + 2)
        target = target[slash:] if slash >= 0 else "/"
    path, _, query = target.partition("#")[0].partition("?")
    return (unquote(path) if "%" in path else path), query


def check_headers(headers: Headers) -> None:
    """Raise ValueError for headers that must not be sent: a line break in a value would add a header."""
    for name, value in headers:
        value.encode("latin-1")
        if name != name.lower() or not name.isascii() or any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"header {name!r} cannot be sent")


def response_of(result: Result[Response]) -> Response:
    """Return the response that was made, or 500 if making it failed, which is logged."""
    try:
        return result()
    except Exception:
        log.exception("a deferred response failed")
        return refusal(500)


def _check_streamed(answer: Streamed) -> None:
    check_headers(answer.headers)
    if answer.status in BODILESS:
        raise ValueError(f"a response of {answer.status} has no body to stream")


class Dispatch:
    """Calls handlers of all requests but gRPC's: RPC paths, then exact paths, then the longest prefix."""

    def __init__(
        self,
        routes: Routes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        cors: Cors | None = None,
    ) -> None:
        self._rpcs = methods(routes, limits.body_bytes)
        self._cors = cors
        self._exact: dict[str, _Methods] = {}
        prefixes: dict[str, _Methods] = {}
        for (method, path), handler in routes.http.items():
            under, key = (prefixes, path[:-1]) if path.endswith("/*") else (self._exact, path)
            under.setdefault(key, {})[method] = handler
        self._prefixes = sorted(prefixes.items(), key=lambda item: len(item[0]), reverse=True)
        self._under = tuple(prefixes)

    def answer(self, request: Request) -> tuple[Answer, Headers]:
        """Return the handler's answer, or 404, 405 or 415, or 500 for a handler that failed, which is logged;
        and the CORS headers to add to it.
        """
        cors = self._cors
        if cors is not None and request.method == "OPTIONS" and (preflight := cors.preflight(request)):
            return preflight, ()
        rpc = self._rpcs.get(request.path)
        answer = self._plain(request) if rpc is None else rpc.answer(request)
        return answer, () if cors is None else cors.headers(request.headers)

    def knows(self, path: str) -> bool:
        """Return whether the path has a handler for any method."""
        return path in self._exact or path in self._rpcs or path.startswith(self._under)

    def unknown(self, headers: Headers) -> Response:
        """Return the response to a request for an unknown path, whose body need not be read."""
        return self._with_cors(refusal(404), headers)

    def too_large(self, path: str, headers: Headers) -> Response:
        """Return the response to a request whose body is over the limit."""
        rpc = self._rpcs.get(path)
        return self._with_cors(refusal(413) if rpc is None else rpc.too_large(headers), headers)

    def _with_cors(self, response: Response, request: Headers) -> Response:
        """Return the response with the CORS headers for the request's origin."""
        if self._cors is None:
            return response
        return response._replace(headers=response.headers + self._cors.headers(request))

    def _plain(self, request: Request) -> Answer:
        handler = self._find("GET" if request.method == "HEAD" else request.method, request.path)
        if isinstance(handler, Response):
            return handler
        try:
            answer = handler(request)
            if isinstance(answer, Streamed):
                _check_streamed(answer)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return refusal(500)
        return answer

    def _find(self, method: str, path: str) -> HttpHandler | Response:
        known = self._exact.get(path, _NO_METHODS)
        if method in known:
            return known[method]
        allowed = {*known}
        for prefix, under in self._prefixes:
            if path.startswith(prefix):
                if method in under:
                    return under[method]
                allowed |= under.keys()
        if not allowed:
            return refusal(404)
        allowed |= {"HEAD"} if "GET" in allowed else set()
        return refusal(405, (("allow", ", ".join(sorted(allowed))),))
