"""A scheduler that runs when the test says so, and subscribers whose reading is under the test's control."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evaluator.http.scheduler import FairQueue
from evaluator.wire.hub import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from evaluator.http.messages import Zipped
    from evaluator.wire.hub import Hub, Subscription

BUDGET = 64


class FakeScheduler:
    """Readings of its stopwatch are a second apart; a slice takes BUDGET of them, and what takes longer."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.seconds = 0.0

    def queue(self) -> FairQueue:
        return FairQueue(BUDGET, self.stopwatch, self)

    def stopwatch(self) -> float:
        self.seconds += 1
        return self.seconds

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def step(self) -> None:
        """One slice, if any is due."""
        if self.waiting:
            self.waiting.popleft()()

    def run(self, *, most: int = 100_000) -> None:
        while self.waiting and most:
            most -= 1
            self.step()
        assert not self.waiting, "the hub never comes to rest"


@dataclass(eq=False)
class Reader:
    """Writable for as many values as it has room for."""

    room: float = float("inf")
    failing: bool = False
    received: list[bytes | tuple[str, object]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    on_receive: Callable[[], None] | None = None
    subscription: Subscription | None = None

    @property
    def writable(self) -> bool:
        return self.room > 0

    def send(self, payload: bytes | Zipped) -> bool:
        assert isinstance(payload, bytes)
        if self.writable:
            self._receive(payload)
            return True
        return False

    def retract(self, reason: object) -> None:
        self._receive(("gone", reason))

    def on_failure(self, error: Exception) -> None:
        self.errors.append(error)

    def read(self, hub: Hub, room: float = float("inf")) -> None:
        self.room = room
        assert self.subscription is not None
        hub.offer(self.subscription)

    def _receive(self, value: bytes | tuple[str, object]) -> None:
        assert self.writable, "sent while not writable"
        if self.failing:
            raise OSError("broken pipe")
        self.room -= 1
        self.received.append(value)
        if self.on_receive is not None:
            self.on_receive()


def join(hub: Hub, key: object, reader: Reader | None = None) -> Reader:
    reader = reader or Reader()
    reader.subscription = hub.subscribe(key, reader)
    return reader


def publish(hub: Hub, key: Hashable, payload: bytes, *, quiet: bool = False) -> None:
    """`Hub.publish` with the payload's digest."""
    hub.publish(key, payload, digest(payload), quiet=quiet)
