"""Many equally long waits with one timer, for deadlines and keep-alives. Pure: the clock is injected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class TimerHandle(Protocol):
    """The handle of a scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """The part of an event loop that a Countdown needs."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, `delay` seconds from now."""


T = TypeVar("T", bound="Hashable")


class Countdown(Generic[T]):
    """Calls `on_due(item)` a fixed time after each item's latest `restart`, with one timer for all."""

    def __init__(self, timers: Timers, seconds: float, on_due: Callable[[T], None]) -> None:
        self._timers = timers
        self._seconds = seconds
        self._on_due = on_due
        self._due: dict[T, float] = {}
        self._timer: TimerHandle | None = None

    def restart(self, item: T) -> None:
        """Restart the item's wait. All waits are equally long, so they end in the order of restarts."""
        self._due.pop(item, None)
        self._due[item] = self._timers.time() + self._seconds
        if self._timer is None:
            self._timer = self._timers.call_later(self._seconds, self._sweep)

    def forget(self, item: T) -> None:
        """Stop the timer of `item`."""
        self._due.pop(item, None)
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        # While the fired timer is still set, restarts from `on_due` start no other.
        fired, now = self._timer, self._timers.time()
        for item in [item for item, due in self._due.items() if due <= now]:
            if self._due.pop(item, None) is not None:
                self._on_due(item)
        if self._timer is fired:
            self._timer = None
            if self._due:
                first = next(iter(self._due.values()))
                self._timer = self._timers.call_later(max(0.0, first - now), self._sweep)
