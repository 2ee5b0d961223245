"""One accepted connection as all protocols share it: back-pressure, its end, and what it belongs to."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import abstractmethod
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from evaluator.http.deferred import Job
from evaluator.http.server.scheduler import FairQueue
from evaluator.http.statuses import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.deferred import Deferred, Result
    from evaluator.http.messages import Response
    from evaluator.http.routes import Routes
    from evaluator.http.server.dispatch import Dispatch
    from evaluator.http.server.limits import Limits

log = logging.getLogger(__name__)
T = TypeVar("T")

LINGER_SECONDS: Final = 2.0
"""How long a connection that we half-closed may still send: closing at once would lose what we wrote."""
MOST_DEFERRED: Final = 8
"""Deferred answers of one connection; its further requests wait, as those of a peer that does not read."""
QUIET_SECONDS: Final = 1.0
"""While draining, a kept-alive connection is closed after as long a silence: a request may be on its way."""
BATCH_BYTES: Final = 65_536
"""Responses are gathered into one write up to this; then the transport says whether the peer takes more."""


LARGE_READ_BYTES: Final = 32_768
"""A read of as much is parsed in a turn, and the next read waits for it: parsed at once, as many as there are
connections would be between two turns of the loop. uvloop alone would read one connection 32 times before it
looks at others.
"""


@dataclass(slots=True, eq=False)
class Port:
    """What the connections of one listener have in common."""

    routes: Routes
    dispatch: Dispatch
    limits: Limits
    date: str
    """The `date` header, renewed every second."""
    peers: set[Peer] = field(default_factory=set)
    queue: FairQueue = field(default_factory=FairQueue)
    draining: bool = False
    emptied: asyncio.Event | None = None
    """Set, while draining, once the last connection is gone."""
    held: int = 0
    """About how many bytes all peers make us keep."""
    refused: int = 0
    """Connections that were refused, for their number or for what they held."""
    _hosts: Counter[str] = field(default_factory=Counter)

    def enter(self, peer: Peer) -> bool:
        """Count a connection that was accepted; False if there are too many, in all or from its address."""
        full = len(self.peers) >= self.limits.connections
        crowded = bool(peer.host) and self._hosts[peer.host] >= self.limits.connections_per_host
        self.peers.add(peer)
        self._hosts[peer.host] += 1
        self.refused += full or crowded
        return not (full or crowded)

    def succeed(self, peer: Peer, successor: Peer) -> None:
        """Another object stands for the same connection from now on."""
        self.peers.discard(peer)
        self.peers.add(successor)

    def leave(self, peer: Peer) -> None:
        """Forget a connection that is lost."""
        if peer in self.peers:
            self.peers.discard(peer)
            self.charge(peer, 0)
            self._hosts[peer.host] -= 1
            if not self._hosts[peer.host]:
                del self._hosts[peer.host]
        if self.emptied is not None and not self.peers:
            self.emptied.set()

    def charge(self, peer: Peer, held: int) -> None:
        """Have `held` bytes counted for a peer; beyond the budget the largest are refused."""
        self.held += held - peer.held
        peer.held = held
        while self.held > self.limits.buffered_bytes:
            largest = self._largest()
            self.refused += 1
            self.held -= largest.held
            largest.held = 0
            largest.refuse()

    def _largest(self) -> Peer:
        """The peer that holds most, of the address that does."""
        totals: Counter[str] = Counter()
        for each in self.peers:
            totals[each.host] += each.held
        host = max(totals, key=totals.__getitem__)
        return max((each for each in self.peers if each.host == host), key=attrgetter("held"))


class Peer(asyncio.Protocol):
    """One connection. While `paused`, the transport's buffer is full, and nothing is read or grows."""

    __slots__ = (
        "_jobs", "_late", "_left", "_left_since", "_queued", "active", "clock", "ended", "held", "host",
        "name", "paused", "port", "transport", "until",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self.port = port
        self.clock = clock
        """The loop's."""
        self.transport = cast("asyncio.Transport", None)
        self.name = self.host = ""
        """`host` is empty for a unix socket."""
        self.held = 0
        """About how many bytes it makes us keep."""
        self.active = clock()
        """When the peer last asked for something."""
        self.paused = False
        self.ended: float | None = None
        """When our side was half-closed; nothing that comes after is read."""
        self.until = 0.0
        """When the turn that is being taken is over, by the port's stopwatch."""
        self._jobs: deque[Job[Any]] = deque()
        """Answers that are being made, in turn: the fewest are half made at any moment."""
        self._queued = False
        self._late = False
        """Requests wait for the next turn."""
        self._left = 0
        self._left_since = 0.0

    def adopt(self, transport: asyncio.Transport, name: str) -> None:
        """Take the connection over; `name`: `host:port`, or `unix:`."""
        self.transport = transport
        self.name = name
        self.host = "" if name == "unix:" else name.rpartition(":")[0]

    def recharge(self) -> None:
        """Have what the peer makes us keep counted anew."""
        if self.ended is None and not self.transport.is_closing():
            held = self.measure()
            if held != self.held:
                self.port.charge(self, held)

    def write(self, output: bytes) -> None:
        """Give `output` to the transport, which may pause us at once. Nothing goes out once half-closed."""
        if output and self.ended is None and not self.transport.is_closing():
            self.transport.write(output)

    def finish(self) -> None:
        """Half-close; the connection is closed once the peer has read all, or by the sweep."""
        if self.ended is not None or self.transport.is_closing():
            return
        self.ended = self.clock()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        elif not self.paused:
            self.transport.close()

    def pause_writing(self) -> None:
        """The transport's buffer is full (asyncio calls this, perhaps in the middle of `write`)."""
        self.paused = True
        self._left = sys.maxsize
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has read enough (asyncio calls this)."""
        self.paused = False
        if not self.transport.is_closing():
            self.transport.resume_reading()
            if self.ended is None:
                self.start_turn()
                self.resumed()
            elif not self.transport.can_write_eof():
                # TLS has no half to end, and closing it bounds the time for what is left: only little may be.
                self.transport.close()

    def defer(self, answer: Deferred[T], done: Callable[[Result[T]], None]) -> Job[T]:
        """Have an answer made, a step at a time, and call `done`; then what waits behind it is answered."""
        job = Job(answer, self.clock, done)
        self._jobs.append(job)
        self._enqueue()
        return job

    def answer_later(self) -> None:
        """Have what waits answered at the next turn. Nothing is read meanwhile, so nothing grows."""
        if not (self._late or self.transport.is_closing()):
            self._late = True
            self.transport.pause_reading()
            self._enqueue()

    def _enqueue(self) -> None:
        if not self._queued:
            self._queued = True
            self.port.queue.put(self.run)

    def run(self, until: float) -> bool:
        """Take a turn (a FairQueue calls this)."""
        self.until = until
        if self._jobs:
            self._make(until)
        late, self._late = self._late, False
        if late and not self.transport.is_closing():
            if not self.paused:
                self.transport.resume_reading()
            if self.ended is None:
                self.go_on()
        self._queued = bool(self._jobs) or self._late
        return self._queued

    def _make(self, until: float) -> None:
        jobs, stopwatch = self._jobs, self.port.queue.stopwatch
        while jobs:
            if jobs[0].advance():
                jobs.popleft()
            if stopwatch() >= until:
                break

    def start_turn(self, size: int = 0) -> bool:
        """Whether bytes that came are to be answered at once, and not at the next turn."""
        if size < LARGE_READ_BYTES:
            self.until = self.port.queue.deadline()
            return True
        self.until = 0.0
        self.answer_later()
        return False

    def out_of_time(self) -> bool:
        """Whether the turn is over."""
        return self.port.queue.stopwatch() >= self.until

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone (asyncio calls this)."""
        for job in self._jobs:
            job.cancel()
        self.port.leave(self)

    def sweep(self, now: float) -> None:
        """End what has lasted too long by `now` (loop.time()); called about once a second."""
        if self.paused:
            # Also once half-closed: what was written last is still to be read.
            if self._unread(now):
                self.transport.abort()
            elif self._left_since < now:
                # It has read nothing since the last sweep.
                self.recharge()
        elif self.transport.is_closing():
            return
        elif self.ended is None:
            self.check(now)
        elif now - self.ended > LINGER_SECONDS:
            self.transport.close()

    def _unread(self, now: float) -> bool:
        """True once the peer has read nothing for too long, which is sooner if much waits for it."""
        left, limits = self.transport.get_write_buffer_size(), self.port.limits
        if left < self._left:
            self._left, self._left_since = left, now
            return False
        patience = limits.body_seconds if left > limits.write_buffer_bytes else limits.idle_seconds
        return now - self._left_since > patience

    @abstractmethod
    def measure(self) -> int:
        """About how many bytes the peer makes us keep."""

    @abstractmethod
    def refuse(self) -> None:
        """End the connection, which holds too much, and keep nothing of it."""

    @abstractmethod
    def resumed(self) -> None:
        """Go on with what waited for the transport."""

    @abstractmethod
    def go_on(self) -> None:
        """Answer the requests that wait."""

    @abstractmethod
    def check(self, now: float) -> None:
        """End what has lasted too long on a connection that reads and writes freely."""

    def drain(self) -> None:
        """The port is draining: ask the peer to go elsewhere. HTTP/1.1 says so with its next response."""

    def cut(self) -> None:
        """Drained long enough: end what is still open, as politely as the protocol can."""
        self.transport.close()


def response_of(result: Result[Response]) -> Response:
    """A deferred response; 500 if making it failed unexpectedly, which is logged."""
    try:
        return result()
    except Exception:
        log.exception("a deferred response failed")
        return refusal(500)
