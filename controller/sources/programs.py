"""The programs that run for one owner: whoever stops does not wait until a server answers or a deadline is over."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Programs:
    """Those that run, until all are ended. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Callable[[], None]] = set()
        self._ended = False

    @contextlib.contextmanager
    def running(self, end: Callable[[], None]) -> Iterator[None]:
        """For as long as a program runs that `end` ends, from any thread and at once; at the start where all were ended before."""
        with self._lock:
            self._running.add(end)
            if self._ended:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(end)

    def end(self) -> None:
        """End those that run, and each that is started from now on."""
        with self._lock:
            self._ended = True
            for each in self._running:
                each()
