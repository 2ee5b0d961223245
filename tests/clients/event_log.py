"""The events that a process writes as it runs."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Event = dict[str, Any]

PATIENCE = 60.0


class EventLog:
    """Reads events in a thread of its own, which ends with what it reads from; keeps those that nobody waited
    for yet.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.all: list[Event] = []
        self._next: queue.Queue[Event] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    def _read(self, events: Iterable[Event]) -> None:
        for event in events:
            self.all.append(event)
            self._next.put(event)

    def wait(self, wanted: Callable[[Event], bool], otherwise: Callable[[], object]) -> Event:
        """The next event that `wanted` accepts; `otherwise` says what there is to know if none comes."""
        while True:
            try:
                event = self._next.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no such event: {otherwise()}") from None
            if wanted(event):
                return event

    def close(self) -> None:
        """Wait for the end of what is read."""
        self._reader.join(PATIENCE)
