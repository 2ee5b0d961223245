"""Keeps Python's cyclic collector from stopping the process while flag sets come and go.

A flag set of 10,000 flags is 450,000 objects that the collector knows. A full collection visits every one,
100 ms or more during which no thread runs, and reading a set makes several of them. Flag sets have no cycles:
counting references frees them, so the collector has nothing to find in them. Hence:

* While a set is read and compiled there are no full collections. Young ones go on, a few milliseconds each,
  so the garbage of requests does not pile up.
* Then what is alive is frozen: full collections traverse only what comes later. Freezing takes no time.
* What is frozen and becomes a cycle of garbage later (a connection of that time) is found by no collection.
  So once the memory in use is three times what it was at the last full collection, or once the first set
  was served, there is another: with flag sets of one size next to never, since the old and the new set
  together are twice that, and the garbage is bounded.
"""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEVER: Final = 2**31 - 1
_GROWTH: Final = 3


class GcPolicy:
    """The policy of one process: make one, where the process is put together. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._growing = 0
        self._thresholds = gc.get_threshold()
        self._allocated = 0

    @contextmanager
    def pause_full_collections(self) -> Iterator[None]:
        """Make no full collection in the block, and let none traverse its objects afterwards. Blocks may be
        nested, and overlap in several threads.
        """
        with self._lock:
            if not self._growing:
                self._thresholds = gc.get_threshold()
                gc.set_threshold(*self._thresholds[:2], _NEVER)
            self._growing += 1
        try:
            yield
        finally:
            with self._lock:
                self._growing -= 1
                if not self._growing:
                    self._freeze()
                    gc.set_threshold(*self._thresholds)

    def settle(self) -> None:
        """Remember the memory in use now, the first set included, to compare with it later."""
        with self._lock:
            self._allocated = self._allocated or sys.getallocatedblocks()

    def _freeze(self) -> None:
        if self._allocated and sys.getallocatedblocks() > self._allocated * _GROWTH:
            gc.unfreeze()
            gc.collect()
            self._allocated = sys.getallocatedblocks()
        gc.freeze()
