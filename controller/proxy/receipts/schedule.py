"""Schedules the writes of each flag set's FlagReceipt: soon after a change, and at most once a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.delivery.claims import Place
    from controller.runtime.reconciling.queue import KeyedQueue

SETTLE: Final = 0.05
"""Seconds for which a change waits for others to come."""
PACE: Final = 1.0
"""Seconds between two writes of one flag set."""


class Schedule:
    """The flag sets to write; `changed` fills its queue, the Recorder empties it."""

    def __init__(self, queue: KeyedQueue[Place], clock: Callable[[], float]) -> None:
        """`clock` is the queue's: monotonic seconds."""
        self.queue = queue
        self._clock = clock
        self._begun: dict[Place, float] = {}

    def changed(self, place: Place) -> None:
        """The receipts of a flag set have changed."""
        since = self._clock() - self._begun.get(place, -PACE)
        self.queue.put(place, max(SETTLE, PACE - since))

    def begin(self, place: Place) -> float:
        """A write of the flag set begins; the time."""
        now = self._begun[place] = self._clock()
        return now

    def forget(self, place: Place) -> None:
        """The flag set has no subscribers any more."""
        self._begun.pop(place, None)
