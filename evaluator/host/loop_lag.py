"""Measures how late an event loop runs its timers, and which of our code delayed it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

log = logging.getLogger(__name__)

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram's buckets, in seconds."""
NAME: Final = "flagstaff_loop_lag_seconds"
WHAT: Final = "How late the event loop ran what was due, measured four times a second."
HELD_SECONDS: Final = 0.25
"""Seconds of delay from which the place in the code is logged."""
_EVERY: Final = 0.25
"""Seconds between two measurements. Timers fire at whole quarters of a second, as others do at whole seconds,
so that an idle process wakes up once for all of them.
"""
_LATE: Final = 0.2
"""Seconds of delay after which the thread looks up where the loop is, before the delay is reported."""
_FRAMES: Final = 3
_OURS: Final = ("controller.", "evaluator.")
_LOOP: Final = frozenset({"asyncio.base_events", "asyncio.runners"})


class LoopLag:
    """The lag of one loop, measured by a timer of the loop and a thread, four times a second each."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """Number of measurements in each bucket."""
        self.seconds = 0.0
        """Sum of all lags, in seconds."""
        self._due = 0.0
        self._thread_id = 0
        self._seen: tuple[float, str] = (0.0, "")
        """The timer that was due when the loop was found blocked, and the place in the code."""
        self._over = threading.Event()
        self._next: asyncio.TimerHandle | None = None

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Prometheus' cumulative buckets."""
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), list(self.counts), strict=True):
            total += count
            yield bound, float(total)

    def start(self) -> None:
        """Start to measure the running loop."""
        self._thread_id = threading.get_ident()
        self._await_next(asyncio.get_running_loop())
        threading.Thread(target=self._watch, name="loop lag", daemon=True).start()

    def stop(self) -> None:
        """Stop to measure; may be called twice."""
        self._over.set()
        if self._next is not None:
            self._next.cancel()

    def _await_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = (max(self._due, time.monotonic()) // _EVERY + 1) * _EVERY
        self._next = loop.call_later(self._due - time.monotonic(), self._note_arrival, loop)

    def _note_arrival(self, loop: asyncio.AbstractEventLoop) -> None:
        self._count(max(0.0, time.monotonic() - self._due))
        self._await_next(loop)

    def _count(self, late: float) -> None:
        self.counts[bisect_left(BOUNDS, late)] += 1
        self.seconds += late
        if late > HELD_SECONDS:
            due, place = self._seen
            where = place if due == self._due else ""
            log.warning(
                "the event loop was held for %.2f s %s",
                late,
                f"in {where}" if where else "by no code of ours: the machine is busy, or was paused",
            )

    def _watch(self) -> None:
        wait = _LATE
        while not self._over.wait(wait):
            due, now = self._due, time.monotonic()
            if now >= due + _LATE and self._seen[0] != due:
                frame = sys._current_frames().get(self._thread_id)
                self._seen = (due, place(frame))
            wait = _EVERY if self._seen[0] == due else max(0.0, due + _LATE - now)


def place(frame: FrameType | None) -> str:
    """Return the innermost frames of our packages on the loop's stack, the caller last:
    `evaluator.flags.merge:90 parse, …`; empty if there are none.
    """
    places: list[str] = []
    while frame is not None and len(places) < _FRAMES:
        module = str(frame.f_globals.get("__name__"))
        if module in _LOOP:
            # Frames that started the loop do not block it, though they are ours. uvloop has no frames, its
            # caller has.
            break
        if module.startswith(_OURS) and module != __name__:
            places.append(f"{module}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return ", ".join(places)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop where that is installed, one of asyncio elsewhere."""
    try:
        import uvloop  # noqa: PLC0415 - not a part of every installation
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
