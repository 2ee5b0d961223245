"""What connections of all protocols share: back-pressure, memory accounting, turns on the loop, closing."""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from evaluator.http.deferred import Deferred, Job, Jobs, Result
from evaluator.http.sockets import certificate_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.dispatch import Dispatch
    from evaluator.http.limits import Limits
    from evaluator.http.routes import Routes
    from evaluator.http.scheduler import FairQueue

T = TypeVar("T")

LINGER_SECONDS: Final = 2.0
"""Seconds between half-closing and closing a connection: closing at once would lose what was written."""
MOST_DEFERRED: Final = 8
"""Most deferred answers in progress for one connection; then its further requests wait."""
QUIET_SECONDS: Final = 1.0
"""Seconds of silence after which draining closes a kept-alive connection: a request may be under way."""
BATCH_BYTES: Final = 65_536
"""Bytes of responses that are gathered into one write; then the transport says whether it accepts more."""
LARGE_READ_BYTES: Final = 32_768
"""Bytes of a read that is parsed in a turn of the FairQueue, and not at once: otherwise large reads of all
connections would be parsed in one iteration of the loop, and uvloop reads one connection up to 32 times
before it continues with others.
"""


class Port:
    """The state that the connections of one listener share."""

    def __init__(
        self, routes: Routes, dispatch: Dispatch, limits: Limits, date: str, queue: FairQueue
    ) -> None:
        self.routes = routes
        self.dispatch = dispatch
        self.limits = limits
        self.queue = queue
        self.date = date
        """The `date` header, renewed every second."""
        self.peers: set[Peer] = set()
        self.draining = False
        self.emptied: asyncio.Event | None = None
        """Set while draining when the last connection is closed."""
        self.held = 0
        """About how many bytes all connections take in memory."""
        self.refused = 0
        """How many connections were refused because they were too many or took too much memory."""
        self._hosts: Counter[str] = Counter()

    def enter(self, peer: Peer) -> bool:
        """Add an accepted connection; return False if there are too many, in all or from its address."""
        full = len(self.peers) >= self.limits.connections
        crowded = bool(peer.host) and self._hosts[peer.host] >= self.limits.connections_per_host
        self.peers.add(peer)
        self._hosts[peer.host] += 1
        self.refused += full or crowded
        return not (full or crowded)

    def replace(self, peer: Peer, successor: Peer) -> None:
        """Replace the object of a connection by another."""
        self.peers.discard(peer)
        self.peers.add(successor)

    def leave(self, peer: Peer) -> None:
        """Remove a connection that is closed."""
        if peer in self.peers:
            self.peers.discard(peer)
            self.charge(peer, 0)
            self._hosts[peer.host] -= 1
            if not self._hosts[peer.host]:
                del self._hosts[peer.host]
        if self.emptied is not None and not self.peers:
            self.emptied.set()

    def charge(self, peer: Peer, held: int) -> None:
        """Set how many bytes a connection takes; beyond the limit of all, end those that take most."""
        self.held += held - peer.held
        peer.held = held
        while self.held > self.limits.buffered_bytes:
            largest = self._largest()
            self.refused += 1
            self.held -= largest.held
            largest.held = 0
            largest.refuse()

    def _largest(self) -> Peer:
        """Return the connection that takes most memory, of the address that takes most."""
        totals: Counter[str] = Counter()
        for peer in self.peers:
            totals[peer.host] += peer.held
        host = max(totals, key=totals.__getitem__)
        return max((peer for peer in self.peers if peer.host == host), key=attrgetter("held"))


class Peer(asyncio.Protocol):
    """One connection. While `paused`, the transport's write buffer is full, and nothing is read."""

    __slots__ = (
        "_jobs", "_late", "_left", "_left_since", "_queued", "active", "calm_until", "client", "clock",
        "ended", "held", "host", "name", "paused", "port", "transport", "until",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self.port = port
        self.clock = clock
        """Returns the event loop's time."""
        self.transport = cast("asyncio.Transport", None)
        self.name = self.host = self.client = ""
        """The name is `host:port`, or `unix:` with an empty host for a unix socket. The client is the name in
        the certificate that it has shown, if any.
        """
        self.held = 0
        """About how many bytes the connection takes in memory."""
        self.active = clock()
        """Time of the client's last request."""
        self.calm_until = 0.0
        """Time before which no timeout can end, unless something happens on the connection."""
        self.paused = False
        self.ended: float | None = None
        """Time at which our side was half-closed; later requests are not read."""
        self.until = 0.0
        """Time at which the current turn ends, by the queue's stopwatch."""
        self._jobs = Jobs()
        """Answers in progress. The first is completed before the next is begun."""
        self._queued = False
        self._late = False
        """Whether requests wait for the next turn."""
        self._left = 0
        self._left_since = 0.0

    def adopt(self, transport: asyncio.Transport, name: str) -> None:
        """Take over the connection of a transport; `name` is `host:port` or `unix:`."""
        self.transport = transport
        self.name = name
        self.host = "" if name == "unix:" else name.rpartition(":")[0]
        self.client = certificate_name(transport.get_extra_info("peercert"))

    def update_held(self) -> None:
        """Measure again how many bytes the connection takes in memory."""
        if self.ended is None and not self.transport.is_closing():
            held = self.measure()
            if held != self.held:
                self.port.charge(self, held)

    def write(self, output: bytes) -> None:
        """Pass bytes to the transport, which may call `pause_writing` at once; nothing once half-closed."""
        if output and self.ended is None and not self.transport.is_closing():
            self.transport.write(output)

    def finish(self) -> None:
        """Half-close; the connection is closed when the client has read everything, or by the sweep."""
        if self.ended is not None or self.transport.is_closing():
            return
        self.ended = self.clock()
        self.calm_until = 0.0
        if self.transport.can_write_eof():
            self.transport.write_eof()
        elif not self.paused:
            self.transport.close()

    def pause_writing(self) -> None:
        """Stop reading: the transport's buffer is full (asyncio calls this, perhaps during `write`)."""
        self.paused = True
        self.calm_until = 0.0
        self._left = sys.maxsize
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read and answer again: the client has read enough (asyncio calls this)."""
        self.paused = False
        if not self.transport.is_closing():
            self.transport.resume_reading()
            if self.ended is None:
                self.start_turn()
                self.resume()
            elif not self.transport.can_write_eof():
                # TLS cannot half-close, and closing it gives the client a limited time for the last bytes: so
                # it is closed only now that few are left.
                self.transport.close()

    def defer(self, answer: Deferred[T], done: Callable[[Result[T]], None]) -> Job[T]:
        """Make an answer step by step in turns of the queue, then call `done`."""
        job = Job(answer, self.clock, done)
        self._start(job)
        return job

    def _start(self, job: Job[Any]) -> None:
        self._jobs.add(job)
        self._enqueue()

    def answer_later(self) -> None:
        """Answer the waiting requests at the next turn, and read nothing until then."""
        if not (self._late or self.transport.is_closing()):
            self._late = True
            self.transport.pause_reading()
            self._enqueue()

    def _enqueue(self) -> None:
        if not self._queued:
            self._queued = True
            self.port.queue.put(self.run)

    def run(self, until: float) -> bool:
        """Work until the stopwatch reaches `until`; return whether work is left (FairQueue calls this)."""
        self.until = until
        if self._jobs.due:
            self._jobs.advance(until, self.port.queue.stopwatch, self._start)
        late, self._late = self._late, False
        if late and not self.transport.is_closing():
            if not self.paused:
                self.transport.resume_reading()
            if self.ended is None:
                self.answer_waiting()
        self._queued = bool(self._jobs.due) or self._late
        return self._queued

    def start_turn(self, size: int = 0) -> bool:
        """Begin a turn for a read of `size` bytes; return False if it must wait for the next turn."""
        if size < LARGE_READ_BYTES:
            self.until = self.port.queue.deadline()
            return True
        self.until = 0.0
        self.answer_later()
        return False

    def out_of_time(self) -> bool:
        """Return whether the turn is over."""
        return self.port.queue.stopwatch() >= self.until

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel its answers: the connection is closed (asyncio calls this)."""
        self._jobs.cancel()
        self.port.leave(self)

    def sweep(self, now: float) -> None:
        """Enforce the timeouts at `now` (loop.time()); called about once a second."""
        if now < self.calm_until:
            return
        if self.paused:
            # This holds once half-closed, too: the client has not read the last bytes.
            if self._unread(now):
                self.transport.abort()
            elif self._left_since < now:
                # The client has read nothing since the last sweep.
                self.update_held()
        elif self.transport.is_closing():
            return
        elif self.ended is None:
            self.check(now)
        elif now - self.ended > LINGER_SECONDS:
            self.transport.close()

    def _unread(self, now: float) -> bool:
        """Return whether the client has read nothing for too long, which is sooner if much is unread."""
        left, limits = self.transport.get_write_buffer_size(), self.port.limits
        if left < self._left:
            self._left, self._left_since = left, now
            return False
        patience = limits.body_seconds if left > limits.write_buffer_bytes else limits.idle_seconds
        return now - self._left_since > patience

    @abstractmethod
    def measure(self) -> int:
        """Return about how many bytes the connection takes in memory."""

    @abstractmethod
    def refuse(self) -> None:
        """End the connection and drop its buffers, because it takes too much memory."""

    @abstractmethod
    def resume(self) -> None:
        """Continue to send: the transport accepts more."""

    @abstractmethod
    def answer_waiting(self) -> None:
        """Answer the waiting requests."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Enforce the timeouts of a connection whose client reads what is sent."""

    def drain(self) -> None:
        """Ask the client to disconnect because the port drains. HTTP/1.1 does so with its next response."""

    def cut(self) -> None:
        """End what is still open after the time for draining, with an error of the protocol if it has one."""
        self.transport.close()
