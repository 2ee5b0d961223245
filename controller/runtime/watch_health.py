"""How current each watch of a process is, as the engines report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


STALE_SECONDS: Final = 120.0
"""A watch is opened anew once a minute: one that the API server has not confirmed for two is stale."""


@dataclass(slots=True)
class _Watch:
    """One watched path, whose state others report."""

    kind: str
    clock: Callable[[], float]
    confirmed: float | None = None
    fault: str = ""

    def age(self) -> float | None:
        return None if self.confirmed is None else self.clock() - self.confirmed


@dataclass(frozen=True, slots=True)
class WatchReport:
    """The states of all watches of one kind."""

    kind: str
    """The plural: `flagsets`."""
    connected: bool
    age: float | None
    """Seconds since the API server last confirmed the oldest of them; None: never."""
    fault: str
    """Why it is not connected."""

    @property
    def is_stale(self) -> bool:
        """Whether changes may be missed."""
        return self.age is None or self.age > STALE_SECONDS

    def page(self) -> dict[str, Any]:
        """Return the entry of `/readyz`."""
        age = None if self.age is None else round(self.age, 1)
        return {
            "kind": self.kind,
            "connected": self.connected,
            "stale": self.is_stale,
            "ageSeconds": age,
            "fault": self.fault,
        }


class Watching(Protocol):
    """A watch that reports its own health."""

    fault: str
    """Why it is not connected."""

    def age(self) -> float | None:
        """Return the seconds since the API server last confirmed its view; None: never."""


class WatchHealth:
    """The watches of one process. Written by the thread that watches, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._followed: dict[str, tuple[str, Watching]] = {}

    def follow(self, kind: str, path: str, watch: Watching) -> None:
        """Include the health of `watch`, until `unfollow`."""
        self._followed[path] = kind, watch

    def unfollow(self, path: str) -> None:
        """Stop reporting the watch of `path`."""
        self._followed.pop(path, None)

    def record_answer(self, kind: str, path: str) -> bool:
        """The API server answered on `path`. True where that ends a fault, and no other is left."""
        watch = self._watches.setdefault(path, _Watch(kind, self._clock))
        ended, watch.fault = watch.fault, ""
        watch.confirmed = self._clock()
        return bool(ended) and not any(other.fault for other in tuple(self._watches.values()))

    def record_failure(self, kind: str, path: str, why: str) -> bool:
        """`path` was refused, or could not be reached. True where no other watch has this fault yet."""
        new = all(other.fault != why for other in tuple(self._watches.values()))
        self._watches.setdefault(path, _Watch(kind, self._clock)).fault = why
        return new

    def remove_kind(self, kind: str) -> None:
        """Remove the watches of a kind that is not installed."""
        self._watches = {path: watch for path, watch in tuple(self._watches.items()) if watch.kind != kind}

    def of(self, kind: str) -> WatchReport | None:
        """Return the report on the watches of one kind, or None if it is not watched."""
        watches = [watch for of, watch in self._all() if of == kind]
        if not watches:
            return None
        ages = [age for watch in watches if (age := watch.age()) is not None]
        age = max(0.0, *ages) if len(ages) == len(watches) else None
        fault = next((watch.fault for watch in watches if watch.fault), "")
        return WatchReport(kind, not fault and age is not None, age, fault)

    def reports(self) -> tuple[WatchReport, ...]:
        """Return a report for each watched kind, by name."""
        kinds = sorted({kind for kind, _ in self._all()})
        return tuple(report for kind in kinds if (report := self.of(kind)) is not None)

    def _all(self) -> list[tuple[str, Watching]]:
        """Each watch with its kind."""
        reported = [(watch.kind, watch) for watch in tuple(self._watches.values())]
        return [*reported, *tuple(self._followed.values())]
