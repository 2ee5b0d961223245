"""One port: accepts connections, tells HTTP/2 from HTTP/1.1, ends what lasts too long, and drains."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from evaluator.http.h1.connection import Http1Peer
from evaluator.http.h2.frames import PREFACE
from evaluator.http.h2.peer import Http2Peer
from evaluator.http.server.dispatch import Dispatch
from evaluator.http.server.limits import Limits
from evaluator.http.server.peer import QUIET_SECONDS, Peer, Port
from evaluator.http.server.scheduler import FairQueue
from evaluator.http.server.sockets import MODE, UnixSocket, bind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evaluator.http.routes import Routes
    from evaluator.http.server.cors import Cors
    from evaluator.http.server.tls import TlsFiles

SWEEP_SECONDS: Final = 1.0
_BACKLOG: Final = 4096
_TLS_BUFFER_BYTES: Final = 65_536
"""As a transport's without TLS; the loops' own figure for TLS is eight times as much for each connection."""
_TLS_GOODBYE_SECONDS: Final = 30.0
"""For the peer to read what is left and to say goodbye. No shorter way is safe."""
_wall_date = partial(formatdate, usegmt=True)


class _Greeting(Peer):
    """A connection until its first bytes show its protocol; with TLS, those after the handshake.

    It counts from when it is accepted, so that a client that never ends a handshake takes no more places than
    others.
    """

    __slots__ = ("_accepted", "_first", "_handshake", "_since", "_tls")

    def __init__(self, port: Port, clock: Callable[[], float], tls: TlsFiles | None = None) -> None:
        super().__init__(port, clock)
        self._tls = tls
        self._accepted: socket.socket | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._first = b""
        self._since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        if self._handshake is not None:
            made.set_write_buffer_limits(high=_TLS_BUFFER_BYTES)
            self.transport = made
            return
        self.adopt(made, _name(made.get_extra_info("peername")))
        if not self.port.enter(self) or self.port.draining:
            made.abort()
        elif self._tls is not None:
            # Not left to the server: it reports a connection only once the handshake is over, and of a
            # failed one never. Nor start_tls: uvloop may read from the plain transport before. So the socket
            # goes over to a transport of its own. Where descriptors have run out it is lost, and the place
            # with it.
            with suppress(OSError):
                self._accepted = _duplicate(made)
                self._handshake = asyncio.create_task(self._secure(self._tls, self._accepted))
            made.abort()

    async def _secure(self, tls: TlsFiles, accepted: socket.socket) -> None:
        """Shake hands. A client that fails or takes too long is disconnected without a line in the log."""
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self,
                accepted,
                ssl=tls.context,
                ssl_handshake_timeout=max(self.port.limits.header_seconds, SWEEP_SECONDS),
                ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS,
            )
        self._handshake = None
        if self.transport.is_closing():
            self.port.leave(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # During the handshake only the transport that was left is lost.
        if self._handshake is None:
            super().connection_lost(exc)

    def sweep(self, now: float) -> None:
        if self._handshake is None:
            super().sweep(now)
        elif self.port.draining and now - self.active > QUIET_SECONDS:
            self.cut()

    def cut(self) -> None:
        if self._handshake is None or self._accepted is None:
            super().cut()
        else:
            # The transport that shakes hands is out of reach; it sees that the connection has ended.
            with suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def data_received(self, data: bytes) -> None:
        first = self._first + data
        if len(first) < len(PREFACE) and PREFACE.startswith(first):
            self._first = first
            self._since = self.clock() if self._since is None else self._since
            return
        kind = Http2Peer if first.startswith(PREFACE) else Http1Peer
        successor = kind(self.port, self.clock)
        successor.adopt(self.transport, self.name)
        self.port.succeed(self, successor)
        self.transport.set_protocol(successor)
        successor.data_received(first)

    def measure(self) -> int:
        """A few bytes of a greeting."""
        return 0

    def refuse(self) -> None:
        """It holds nothing, so that it is never the largest."""
        self.transport.abort()

    def resumed(self) -> None:
        """Nothing was written, so nothing waits."""

    def go_on(self) -> None:
        """Nothing was asked, so nothing waits."""

    def check(self, now: float) -> None:
        limits = self.port.limits
        silent = limits.idle_seconds if not self.port.draining else 0.0
        since, patience = (
            (self.active, silent) if self._since is None else (self._since, limits.header_seconds)
        )
        if now - since > patience:
            self.transport.abort()


def _name(peer: object) -> str:
    """`host:port`; `unix:` for a client of a unix socket; empty for one that has gone already."""
    match peer:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case str() | bytes():
            return "unix:"
    return ""


def _duplicate(transport: asyncio.Transport) -> socket.socket:
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))


class Listener:
    """One port that answers `routes` within `limits`. All of it happens on the loop that `start` was called
    on.

    `name` is the port's in logs and errors; `cors` says which browsers' scripts may read it, none without;
    `date` gives the `date` header and is asked once a second.
    """

    def __init__(
        self,
        routes: Routes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        *,
        name: str,
        cors: Cors | None = None,
        date: Callable[[], str] = _wall_date,
        queue: FairQueue | None = None,
    ) -> None:
        """`queue`: shared with others that take turns of the loop; None: this listener's alone."""
        if limits.header_bytes <= 0:
            raise ValueError(f"{name}: header_bytes must be positive")
        self.name = name
        self._date = date
        self._port = Port(routes, Dispatch(routes, limits, cors), limits, date(), queue=queue or FairQueue())
        self._servers: list[asyncio.Server] = []
        self._unix: list[UnixSocket] = []
        self._tls: list[TlsFiles] = []
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._port.peers)

    @property
    def held_bytes(self) -> int:
        """About how many bytes requests and unread answers make the port keep."""
        return self._port.held

    @property
    def refused(self) -> int:
        """How many connections were refused, for their number or because they made the port keep too much."""
        return self._port.refused

    async def start(self, host: str, port: int, *, tls: TlsFiles | None = None) -> int:
        """Listen, and return the bound port (0 takes a free one). Raises OSError if the address cannot be
        had.

        With `tls` nothing else is spoken there, and its files are watched from now on.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(_Greeting, self._port, loop.time, tls), host, port, backlog=_BACKLOG
        )
        self._serve(server, tls, loop)
        return cast("int", server.sockets[0].getsockname()[1])

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a TCP socket that is bound already, for a caller that must know the port first."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(_Greeting, self._port, loop.time, None), sock=bound, backlog=_BACKLOG
        )
        self._serve(server, None, loop)

    async def start_unix(self, path: str | Path, *, tls: TlsFiles | None = None, mode: int = MODE) -> None:
        """Listen on a unix socket at `path`, for users that may write to it by `mode`. Raises OSError as
        `sockets.bind` does.

        The file goes when the listener drains.
        """
        loop = asyncio.get_running_loop()
        unix = bind(path, mode)
        self._unix.append(unix)
        server = await loop.create_unix_server(
            partial(_Greeting, self._port, loop.time, tls), sock=unix.socket, backlog=_BACKLOG
        )
        self._serve(server, tls, loop)

    def _serve(self, server: asyncio.Server, tls: TlsFiles | None, loop: asyncio.AbstractEventLoop) -> None:
        self._servers.append(server)
        if tls is not None:
            self._tls.append(tls)
        if self._sweeping is None:
            self._sweep_later(loop)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # At a whole second, as all listeners do: an idle process wakes up once for all of them.
        due = (loop.time() // SWEEP_SECONDS + 1) * SWEEP_SECONDS
        self._sweeping = loop.call_at(due, self._sweep_on, loop)

    def _sweep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_later(loop)
        for tls in self._tls:
            tls.poll(loop)
        self.sweep(loop.time())

    def sweep(self, now: float) -> None:
        """End what has lasted too long by `now` (loop.time()). Runs once a second in place of many timers."""
        self._port.date = self._date()
        for peer in tuple(self._port.peers):
            peer.sweep(now)

    async def drain(self, seconds: float) -> None:
        """Stop accepting, ask every peer to go elsewhere, wait up to `seconds` for calls in flight, then
        close.

        Streams are their owners' to close, before; one that is still open at the end is ended with
        UNAVAILABLE.
        """
        port = self._port
        port.draining = True
        port.emptied = asyncio.Event()
        for unix in self._unix:
            unix.remove()
        for server in self._servers:
            server.close()
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
