"""The routes of a node's ports: each request is answered by the routes of its pod's flag sets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import orjson

from evaluator.http.deferred import Deferred, Wait, result_raising
from evaluator.http.messages import (
    JSON,
    Call,
    Code,
    Headers,
    MessageStream,
    Request,
    Response,
    RpcError,
    Streamed,
    header,
    host_of,
)
from evaluator.http.routes import Routes
from evaluator.wire.sync_messages import SELECTOR_HEADER, read_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from evaluator.http.routes import Answer, HttpHandler, StreamHandler, UnaryHandler

T = TypeVar("T")
S = TypeVar("S", bound=MessageStream)

_STATUSES: Final = {Code.UNAVAILABLE: 503, Code.PERMISSION_DENIED: 403, Code.RESOURCE_EXHAUSTED: 429}


class PodSets(Protocol):
    """The flag sets of pods."""

    def at_once(self, peer: str, selector: str) -> tuple[Routes, ...] | None:
        """The routes for a connection, a port after another; None: they are not known yet. Raises RpcError
        for one that gets none.
        """

    async def later(self, peer: str, selector: str) -> tuple[Routes, ...]:
        """The same, once they are known. Raises RpcError."""


def asked_set(text: str | None) -> str:
    """The flag set that a selector names by `namespace/name`; empty: it selects among the pod's own."""
    text = (text or "").removeprefix("source=").removeprefix("core.openfeature.dev/")
    return text if "/" in text and "=" not in text and "://" not in text else ""


class PodRoutes:
    """The routes of one port, and its open streams."""

    def __init__(self, sets: PodSets, port: int, routes: Routes, *, syncs: bool = False) -> None:
        """`routes`: those that the port has for every pod. syncs: whether messages may hold a selector."""
        self._sets, self._port, self._syncs = sets, port, syncs
        self._streams: dict[str, set[MessageStream]] = {}
        """Open streams by address."""
        self.routes = Routes(
            unary={path: self._unary("unary", path) for path in routes.unary},
            streams={path: self._stream("streams", path) for path in routes.streams},
            json_unary={path: self._unary("json_unary", path) for path in routes.json_unary},
            json_streams={path: self._stream("json_streams", path) for path in routes.json_streams},
            idempotent=routes.idempotent,
            http={key: self._http(key) for key in routes.http},
        )

    def end_streams(self, address: str) -> None:
        """End the streams of an address: its pod, or what it may have, has changed."""
        for stream in tuple(self._streams.pop(address, ())):
            # Its handler is told only of an end that is not its own.
            closed = stream.on_closed
            stream.close(Code.UNAVAILABLE, "which flag sets this pod may have has changed; connect again")
            if closed is not None:
                closed()

    def _selector(self, headers: Headers, message: bytes = b"") -> str:
        text = header(headers, SELECTOR_HEADER)
        return asked_set(read_selector(message) if text is None and self._syncs else text)

    def _unary(self, table: str, path: str) -> UnaryHandler:
        def handle(call: Call, message: bytes) -> bytes | Deferred[bytes]:
            def answer(routes: tuple[Routes, ...]) -> bytes | Deferred[bytes]:
                found: bytes | Deferred[bytes] = getattr(routes[self._port], table)[path](call, message)
                return found

            selector = self._selector(call.headers, message)
            routes = self._sets.at_once(call.peer, selector)
            if routes is not None:
                return answer(routes)
            return Deferred(_steps(self._sets.later(call.peer, selector), answer))

        return handle

    def _http(self, key: tuple[str, str]) -> HttpHandler:
        def handle(request: Request) -> Answer:
            def answer(routes: tuple[Routes, ...]) -> Answer:
                found = routes[self._port].http[key](request)
                if isinstance(found, Streamed):
                    return replace(found, start=partial(self._start, host_of(request.peer), found.start))
                return found

            def answer_whole(routes: tuple[Routes, ...]) -> Response | Deferred[Response]:
                found = answer(routes)
                # A stream cannot begin behind a wait: its client connects again, and the pod is known then.
                return (
                    Response(503, headers=(("retry-after", "0"),)) if isinstance(found, Streamed) else found
                )

            selector = self._selector(request.headers)
            try:
                routes = self._sets.at_once(request.peer, selector)
            except RpcError as error:
                return _refuse(error)
            if routes is not None:
                return answer(routes)
            waiting: Deferred[Response] = Deferred(
                _steps(self._sets.later(request.peer, selector), answer_whole)
            )
            return waiting.then(_refused)

        return handle

    def _stream(self, table: str, path: str) -> StreamHandler:
        def handle(call: Call, message: bytes, stream: MessageStream) -> None:
            def start(routes: tuple[Routes, ...]) -> None:
                begin = partial(getattr(routes[self._port], table)[path], call, message)
                self._start(host_of(call.peer), begin, stream)

            selector = self._selector(call.headers, message)
            routes = self._sets.at_once(call.peer, selector)
            if routes is not None:
                start(routes)
                return

            async def start_later() -> None:
                try:
                    found = await self._sets.later(call.peer, selector)
                    stream.on_closed = None
                    if not stream.closed:
                        start(found)
                except RpcError as error:
                    stream.close(error.code, error.message)

            task = asyncio.get_running_loop().create_task(start_later())
            stream.on_closed = partial(_cancel, task)

        return handle

    def _start(self, address: str, begin: Callable[[S], None], stream: S) -> None:
        """Have a handler begin a stream, which is one of this address until it ends."""
        self._streams.setdefault(address, set()).add(stream)
        begin(stream)
        stream.on_ended = partial(self._forget, address, stream, stream.on_ended)

    def _forget(
        self, address: str, stream: MessageStream, ended: Callable[[Code], None] | None, code: Code
    ) -> None:
        if address in self._streams:
            self._streams[address].discard(stream)
            if not self._streams[address]:
                del self._streams[address]
        if ended is not None:
            ended(code)


def _steps(
    found: Coroutine[Any, Any, tuple[Routes, ...]], answer: Callable[[tuple[Routes, ...]], T | Deferred[T]]
) -> Generator[Wait | None, None, T]:
    """Wait for the routes, then answer by them."""
    task = asyncio.get_running_loop().create_task(found)
    try:
        yield lambda resume: task.add_done_callback(lambda _: resume())
    finally:
        if not task.done():
            task.cancel()
    answered = answer(task.result())
    if not isinstance(answered, Deferred):
        return answered
    try:
        value = yield from answered.steps
    except BaseException as error:  # noqa: BLE001 - whoever made the answer is told of its end
        return answered.finish(result_raising(error))
    return answered.finish(lambda: value)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _refused(result: Callable[[], Response]) -> Response:
    try:
        return result()
    except RpcError as error:
        return _refuse(error)


def _refuse(error: RpcError) -> Response:
    return Response(
        _STATUSES.get(error.code, 500),
        orjson.dumps({"errorCode": "GENERAL", "errorDetails": error.message}),
        JSON,
    )
