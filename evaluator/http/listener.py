"""One port: accepts connections, tells HTTP/2 from HTTP/1.1, sweeps up what lasts too long, drains at the end."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from evaluator.http.dispatch import Dispatch
from evaluator.http.frames import PREFACE
from evaluator.http.http1 import Http1Peer
from evaluator.http.http2 import Http2Peer
from evaluator.http.peer import Peer, Port
from evaluator.http.routes import Limits, Routes

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_SECONDS: Final = 1.0
_BACKLOG: Final = 4096
_wall_date = partial(formatdate, usegmt=True)


class _Greeting(Peer):
    """A connection until its first bytes tell its protocol."""

    __slots__ = ("_first", "_since")

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self._first = b""
        self._since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        host = peer[0] if isinstance(peer, tuple) else ""
        name = f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}" if host else ""
        full = len(self.port.peers) >= self.port.limits.connections
        self.adopt(cast("asyncio.Transport", transport), name)
        if full or self.port.draining:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        first = self._first + data
        if len(first) < len(PREFACE) and PREFACE.startswith(first):
            self._first = first
            self._since = self.clock() if self._since is None else self._since
            return
        kind = Http2Peer if first.startswith(PREFACE) else Http1Peer
        successor = kind(self.port, self.clock)
        self.port.peers.discard(self)
        successor.adopt(self.transport, self.name)
        self.transport.set_protocol(successor)
        successor.data_received(first)

    def resumed(self) -> None:
        """Nothing was written, so nothing waits."""

    def check(self, now: float) -> None:
        limits = self.port.limits
        silent = limits.idle_seconds if not self.port.draining else 0.0
        since, patience = (
            (self.active, silent) if self._since is None else (self._since, limits.header_seconds)
        )
        if now - since > patience:
            self.transport.abort()


class Listener:
    """One port that answers `routes` within `limits`. All of it happens on the loop that `start` was called on.

    `name` tells the port in logs and errors; `date` gives the `date` header and is asked once a second.
    """

    def __init__(
        self,
        routes: Routes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        *,
        name: str,
        date: Callable[[], str] = _wall_date,
    ) -> None:
        if limits.header_bytes <= 0:
            raise ValueError(f"{name}: header_bytes must be positive")
        self.name = name
        self._date = date
        self._port = Port(routes, Dispatch(routes), limits, date())
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._port.peers)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the bound port (0 takes a free one). Raises OSError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        factory = partial(_Greeting, self._port, loop.time)
        self._server = await loop.create_server(factory, host, port, backlog=_BACKLOG)
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep_on, loop)
        return cast("int", self._server.sockets[0].getsockname()[1])

    def _sweep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep_on, loop)
        self.sweep(loop.time())

    def sweep(self, now: float) -> None:
        """End what has lasted too long by `now` (loop.time()). Once a second, by itself: no request has a timer of its own."""
        self._port.date = self._date()
        for peer in tuple(self._port.peers):
            peer.sweep(now)

    async def drain(self, seconds: float) -> None:
        """Stop accepting, ask every peer to go elsewhere, wait up to `seconds` for calls in flight, then close.

        Streams are their owners' to close, before; one that is still open at the end is told UNAVAILABLE.
        """
        port = self._port
        port.draining = True
        port.emptied = asyncio.Event()
        if self._server is not None:
            self._server.close()
        for peer in tuple(port.peers):
            peer.drain()
        await self._emptied(seconds)
        for peer in tuple(port.peers):
            peer.cut()
        await self._emptied(min(seconds, SWEEP_SECONDS))
        for peer in tuple(port.peers):
            peer.transport.abort()
        await self._emptied(SWEEP_SECONDS)
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _emptied(self, seconds: float) -> None:
        emptied = self._port.emptied
        if not self._port.peers or emptied is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await emptied.wait()
        except TimeoutError:
            return
