"""Connections with and without sockets: a listener on loopback, or one peer on a transport and a clock of
ours.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from evaluator.http.dispatch import Dispatch
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Call, Code, MessageStream, Request, Response, RpcError
from evaluator.http.peer import Peer, Port
from evaluator.http.routes import Routes
from evaluator.http.scheduler import FairQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evaluator.http.sockets import TlsFiles

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"
PeerT = TypeVar("PeerT", bound=Peer)


def echo(call: Call, message: bytes) -> bytes:
    return message


def fail(call: Call, message: bytes) -> bytes:
    raise ValueError("a bug")


def refuse(call: Call, message: bytes) -> bytes:
    raise RpcError(Code.NOT_FOUND, "flag 'ß' is 100% missing\n")


def count(call: Call, message: bytes, stream: MessageStream) -> None:
    """As many messages as the request has bytes."""
    for number in range(len(message)):
        stream.send(b"%d" % number)
    stream.close()


def post(request: Request) -> Response:
    return Response(200, request.body)


def get(request: Request) -> Response:
    return Response(200, f"{request.path}|{request.query}".encode(), (("content-type", "a/b"),))


def bug(request: Request) -> Response:
    raise ValueError("a bug")


def large(request: Request) -> Response:
    return Response(200, bytes(100_000))


ROUTES = Routes(
    unary={"/t.T/Echo": echo, "/t.T/Fail": fail, "/t.T/Refuse": refuse},
    streams={"/t.T/Count": count},
    http={
        ("GET", "/"): get, ("POST", "/"): post, ("GET", "/tree/*"): get, ("PUT", "/tree/leaf"): post,
        ("GET", "/bug"): bug, ("GET", "/large"): large,
    },
)  # fmt: skip


class Pipe(asyncio.Transport):
    """A transport that keeps what is written, and pauses its writer after `fills_after` bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = self.aborted = self.ended = False
        self.waiting = 0
        self.fills_after: int | None = None
        self.peer: Any = None

    def write(self, data: Any) -> None:
        self.written += data
        self.writes += 1
        if self.fills_after is not None and len(self.written) >= self.fills_after:
            self.fills_after = None
            self.peer.pause_writing()

    def take(self) -> bytes:
        out = bytes(self.written)
        self.written.clear()
        return out

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Line(Generic[PeerT]):
    """One peer, its transport and its clocks."""

    def __init__(self, kind: type[PeerT], limits: Limits | None = None, routes: Routes = ROUTES) -> None:
        self.now = 1000.0
        self.spent = 0.0
        """Seconds of the processor."""
        queue = FairQueue(stopwatch=self._stopwatch)
        self.port = Port(routes, Dispatch(routes), limits or Limits(), DATE, queue=queue)
        self.pipe = Pipe()
        self.peer = kind(self.port, lambda: self.now)
        self.pipe.peer = self.peer
        self.peer.adopt(self.pipe, "127.0.0.1:5")
        self.port.enter(self.peer)

    def _stopwatch(self) -> float:
        # To read it takes time, too: others that wait are to get their turn.
        self.spent += 1e-6
        return self.spent

    def feed(self, *pieces: bytes) -> bytes:
        for piece in pieces:
            self.peer.data_received(piece)
        return self.pipe.take()

    def over(self) -> bool:
        """Whether we have said our last word."""
        return self.pipe.ended

    def wait(self, seconds: float) -> bytes:
        """Let time pass, in sweeps."""
        for _ in range(10):
            self.now += seconds / 10
            self.peer.sweep(self.now)
        return self.pipe.take()


@asynccontextmanager
async def run_listener(
    routes: Routes = ROUTES, limits: Limits | None = None, port: int = 0, tls: TlsFiles | None = None
) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(routes, limits or Limits(), name="test")
    port = await listener.start("127.0.0.1", port, tls=tls)
    try:
        yield listener, port
    finally:
        await listener.drain(0)


async def exchange(port: int, data: bytes) -> bytes:
    """Send `data` on a connection of its own, read until the server ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def say_the_last(stream: MessageStream) -> None:
    stream.send(b"newest")
    stream.close()
