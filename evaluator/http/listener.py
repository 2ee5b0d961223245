"""Listens on a port: accepts connections, tells HTTP/2 from HTTP/1.1, enforces timeouts, and drains."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from evaluator.http.dispatch import Dispatch
from evaluator.http.h2_frames import PREFACE
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.limits import Limits
from evaluator.http.peer import QUIET_SECONDS, Peer, Port
from evaluator.http.scheduler import FairQueue
from evaluator.http.sockets import MODE, TlsFiles, UnixSocket, bind, duplicate, peer_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evaluator.http.cors import Cors
    from evaluator.http.routes import Routes

SWEEP_SECONDS: Final = 1.0
_BACKLOG: Final = 4096
_TLS_BUFFER_BYTES: Final = 65_536
"""A transport's write buffer with TLS: as large as without; the event loops' default is eight times as much.
"""
_TLS_GOODBYE_SECONDS: Final = 30.0
"""Seconds for the client to read the last bytes and answer close_notify: closing earlier may lose bytes."""
_http_date = partial(formatdate, usegmt=True)


class _NewConnection(Peer):
    """A connection during the TLS handshake and until its first bytes show its protocol.

    It counts as a connection from when it is accepted, so that unfinished handshakes fall under the limits,
    too.
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
        self.adopt(made, peer_name(made.get_extra_info("peername")))
        if not self.port.enter(self) or self.port.draining:
            made.abort()
        elif self._tls is not None:
            # The handshake does not use the server's `ssl`: that would report a connection only after its
            # handshake, and a failed one never. Nor start_tls: uvloop may have read from the plain transport.
            # So the socket is duplicated for a transport with TLS. If no file descriptor is left for that,
            # the connection is closed.
            with suppress(OSError):
                self._accepted = duplicate(made)
                self._handshake = asyncio.create_task(self._secure(self._tls, self._accepted))
            made.abort()

    async def _secure(self, tls: TlsFiles, accepted: socket.socket) -> None:
        """Do the TLS handshake. A client that fails or takes too long is disconnected; nothing is logged."""
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
        # A handshake continues over a duplicate of the socket: what is closed is the first transport.
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
            # asyncio does not show the transport during a handshake; shutting the socket down ends it.
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
        self.port.replace(self, successor)
        self.transport.set_protocol(successor)
        successor.data_received(first)

    def measure(self) -> int:
        """Return 0: the first bytes are too few to count."""
        return 0

    def refuse(self) -> None:
        """Close the connection; Port calls this only for those that hold bytes."""
        self.transport.abort()

    def resume(self) -> None:
        """Do nothing: nothing was written."""

    def answer_waiting(self) -> None:
        """Do nothing: there was no request."""

    def check(self, now: float) -> None:
        limits = self.port.limits
        silent = limits.idle_seconds if not self.port.draining else 0.0
        since, patience = (
            (self.active, silent) if self._since is None else (self._since, limits.header_seconds)
        )
        if now - since > patience:
            self.transport.abort()


class Listener:
    """Answers the requests of one port by `routes`, on the event loop that `start` was called on.

    `name` names the port in logs and errors. Without `cors` no script of a browser may read answers.
    """

    def __init__(
        self,
        routes: Routes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        *,
        name: str,
        cors: Cors | None = None,
        queue: FairQueue | None = None,
    ) -> None:
        """Listeners that share a `queue` share its time budget; None makes one for this listener alone."""
        if limits.header_bytes <= 0:
            raise ValueError(f"{name}: header_bytes must be positive")
        self.name = name
        dispatch = Dispatch(routes, limits, cors)
        self._port = Port(routes, dispatch, limits, _http_date(), queue or FairQueue())
        self._servers: list[asyncio.Server] = []
        self._unix_sockets: list[UnixSocket] = []
        self._tls: list[TlsFiles] = []
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def peers(self) -> list[Peer]:
        """Return the open connections."""
        return list(self._port.peers)

    @property
    def connections(self) -> int:
        """Return how many connections are open."""
        return len(self._port.peers)

    @property
    def held_bytes(self) -> int:
        """Return about how many bytes requests and unread answers take in memory."""
        return self._port.held

    @property
    def refused_connections(self) -> int:
        """Return how many connections were refused because they were too many or took too much memory."""
        return self._port.refused

    async def start(self, host: str, port: int, *, tls: TlsFiles | None = None) -> int:
        """Listen, and return the bound port (0 takes a free one). Raises OSError if it cannot be bound.

        With `tls` the port accepts nothing but TLS, and the files are watched from now on.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(_NewConnection, self._port, loop.time, tls), host, port, backlog=_BACKLOG
        )
        self._serve(server, tls, loop)
        # uvloop has a list of sockets, where asyncio has a tuple.
        sockets: Sequence[socket.socket] = cast("Any", server).sockets
        return cast("int", sockets[0].getsockname()[1])

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a bound TCP socket, for a caller that must know the port before it makes the listener."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(_NewConnection, self._port, loop.time, None), sock=bound, backlog=_BACKLOG
        )
        self._serve(server, None, loop)

    async def start_unix(self, path: str | Path, *, tls: TlsFiles | None = None, mode: int = MODE) -> None:
        """Listen on a unix socket at `path` with the mode `mode`. Raises OSError as `sockets.bind` does.

        The file is removed when the listener drains.
        """
        loop = asyncio.get_running_loop()
        unix = bind(path, mode)
        self._unix_sockets.append(unix)
        server = await loop.create_unix_server(
            partial(_NewConnection, self._port, loop.time, tls), sock=unix.socket, backlog=_BACKLOG
        )
        self._serve(server, tls, loop)

    def _serve(self, server: asyncio.Server, tls: TlsFiles | None, loop: asyncio.AbstractEventLoop) -> None:
        self._servers.append(server)
        if tls is not None:
            self._tls.append(tls)
        if self._sweeping is None:
            self._sweep_later(loop)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # All listeners sweep at whole seconds, so that an idle process wakes up once for all of them.
        due = (loop.time() // SWEEP_SECONDS + 1) * SWEEP_SECONDS
        self._sweeping = loop.call_at(due, self._sweep_on, loop)

    def _sweep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_later(loop)
        for tls in self._tls:
            tls.poll(loop)
        self._port.date = _http_date()
        # In turns: ten thousand connections at once would hold up the others for a twentieth of a second.
        self._port.queue.put(partial(self._sweep_some, iter(tuple(self._port.peers)), loop.time()))

    def sweep(self, now: float) -> None:
        """Enforce all timeouts at `now` (loop.time()). Runs once a second in place of many timers."""
        self._port.date = _http_date()
        self._sweep_some(iter(tuple(self._port.peers)), now, inf)

    def _sweep_some(self, peers: Iterator[Peer], now: float, until: float) -> bool:
        for peer in peers:
            peer.sweep(now)
            if self._port.queue.stopwatch() >= until:
                return True
        return False

    async def drain(self, seconds: float) -> None:
        """Stop accepting, ask clients to disconnect, wait up to `seconds` for calls in flight, then close.

        Handlers must close their streams before; one that is still open after `seconds` ends with
        UNAVAILABLE.
        """
        port = self._port
        port.draining = True
        port.emptied = asyncio.Event()
        for unix in self._unix_sockets:
            unix.remove()
        for server in self._servers:
            server.close()
        for peer in tuple(port.peers):
            peer.drain()
        await self._wait_empty(seconds)
        for peer in tuple(port.peers):
            peer.cut()
        await self._wait_empty(min(seconds, SWEEP_SECONDS))
        for peer in tuple(port.peers):
            peer.transport.abort()
        await self._wait_empty(SWEEP_SECONDS)
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _wait_empty(self, seconds: float) -> None:
        emptied = self._port.emptied
        if not self._port.peers or emptied is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await emptied.wait()
        except TimeoutError:
            return
