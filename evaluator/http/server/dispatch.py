"""Plain HTTP requests to handlers, whichever protocol version they came by."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Headers, Request, Response, Streamed
from evaluator.http.routes import Answer, HttpHandler, Routes
from evaluator.http.rpc.calls import Calls
from evaluator.http.server.limits import Limits
from evaluator.http.statuses import BODILESS, refusal

if TYPE_CHECKING:
    from collections.abc import Generator

    from evaluator.http.server.cors import Cors

log = logging.getLogger(__name__)
_Methods: TypeAlias = dict[str, HttpHandler]


def split_target(target: str) -> tuple[str, str]:
    """(path, percent-decoded; query) of a request target in origin or absolute form (RFC 9112, 3.2)."""
    if target.startswith(("http://", "https://")):
        slash = target.find("/", target.index("//") + 2)
        target = target[slash:] if slash >= 0 else "/"
    path, _, query = target.partition("#")[0].partition("?")
    return (unquote(path) if "%" in path else path), query


@lru_cache(maxsize=256)
def check_headers(headers: Headers) -> None:
    """Raises ValueError for headers that may not go out: a line break would let a value forge others."""
    for name, value in headers:
        value.encode("latin-1")
        if name != name.lower() or not name.isascii() or any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"header {name!r} cannot be sent")


def _check_status(status: int) -> None:
    if status in BODILESS:
        raise ValueError(f"a response of {status} has no body to stream")


def _with(response: Response, more: Headers) -> Response:
    return Response(response.status, response.body, response.headers + more)


def _failed(request: Request) -> Response:
    """The response to a request whose handler failed, which is logged: other requests go on."""
    log.exception("%s %s failed", request.method, request.path)  # noqa: LOG004 - called while it is handled
    return refusal(500)


def _later(request: Request, steps: Generator[None, None, Response]) -> Generator[None, None, Response]:
    try:
        response = yield from steps
        check_headers(response.headers)
    except Exception:  # noqa: BLE001 - _failed logs it
        return _failed(request)
    return response


class Dispatch:
    """Routes for all requests but gRPC's: RPC paths first, then plain ones, exact before longest prefix."""

    def __init__(
        self,
        routes: Routes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        cors: Cors | None = None,
    ) -> None:
        self._calls = Calls(routes, limits)
        self._cors = cors
        self._exact: dict[str, _Methods] = {}
        prefixes: dict[str, _Methods] = {}
        for (method, path), handler in routes.http.items():
            under, key = (prefixes, path[:-1]) if path.endswith("/*") else (self._exact, path)
            under.setdefault(key, {})[method] = handler
        self._prefixes = sorted(prefixes.items(), key=lambda item: len(item[0]), reverse=True)

    def answer(self, request: Request) -> Answer:
        """What the handler says, or 404, 405, 415; 500 for a handler that failed, which is logged."""
        if self._cors is None:
            return self._calls.answer(request) or self._plain(request)
        preflight = self._cors.preflight(request)
        if preflight is not None:
            return preflight
        answer = self._calls.answer(request) or self._plain(request)
        more = self._cors.headers(request.headers)
        if isinstance(answer, Streamed):
            return replace(answer, headers=answer.headers + more)
        if isinstance(answer, Deferred):
            return answer.then(lambda response: _with(response, more))
        return _with(answer, more)

    def knows(self, path: str) -> bool:
        """Whether anything answers at the path, by whatever method."""
        if path in self._exact or self._calls.knows(path):
            return True
        return any(path.startswith(prefix) for prefix, _ in self._prefixes)

    def unknown(self, headers: Headers) -> Response:
        """The response to a request for a path that is not known, before its body is read."""
        return refusal(404) if self._cors is None else _with(refusal(404), self._cors.headers(headers))

    def too_large(self, path: str, headers: Headers) -> Response:
        """The response to a request whose body is over the limit."""
        refused = self._calls.too_large(path, headers)
        if self._cors is None:
            return refused
        return _with(refused, self._cors.headers(headers))

    def _plain(self, request: Request) -> Answer:
        found = self._find(request)
        if isinstance(found, Response):
            return found
        try:
            response = found(request)
            if isinstance(response, Deferred):
                return response.through(partial(_later, request))
            check_headers(response.headers)
            if isinstance(response, Streamed):
                _check_status(response.status)
        except Exception:  # noqa: BLE001 - _failed logs it
            return _failed(request)
        return response

    def _find(self, request: Request) -> HttpHandler | Response:
        method, path = "GET" if request.method == "HEAD" else request.method, request.path
        known = [self._exact[path]] if path in self._exact else []
        known += [methods for prefix, methods in self._prefixes if path.startswith(prefix)]
        for methods in known:
            if method in methods:
                return methods[method]
        if known:
            allowed = {name for methods in known for name in methods}
            allowed |= {"HEAD"} if "GET" in allowed else set()
            return refusal(405, (("allow", ", ".join(sorted(allowed))),))
        return refusal(404)
