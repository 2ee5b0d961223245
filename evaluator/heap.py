"""Keeps Python's cyclic collector from stopping the process while flag sets come and go.

A flag set of 10,000 flags is 450,000 objects that the collector knows. A full collection looks at every one, 100 ms or more during which
no thread runs, and reading a set makes several of them. Flag sets have no cycles: counting references frees them, so the collector
has nothing to find in them. Hence:

* While a set is read and compiled there are no full collections. Young ones go on, a millisecond each, so the garbage of
  requests does not pile up.
* Once it is served, what is alive is frozen: full collections look only at what came later. Freezing takes no time.
* What is frozen and becomes a cycle of garbage later (a connection of that time) is found by no collection. So once the memory in use has
  doubled since the last look at everything, there is one: with flag sets of one size next to never, and the garbage is bounded.
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
_GROWTH: Final = 2


class Heap:
    """The policy of one process: make one, where the process is put together. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._growing = 0
        self._thresholds = gc.get_threshold()
        self._looked_at = 0

    @contextmanager
    def growing(self) -> Iterator[None]:
        """No full collection within; may be nested, and overlap in several threads."""
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
                    gc.set_threshold(*self._thresholds)

    def settle(self) -> None:
        """What is alive now will live long: call it once a new set is served and the old one is gone."""
        with self._lock:
            blocks = sys.getallocatedblocks()
            if self._looked_at and blocks > self._looked_at * _GROWTH:
                gc.unfreeze()
                gc.collect()
                blocks = sys.getallocatedblocks()
                self._looked_at = blocks
            self._looked_at = self._looked_at or blocks
            gc.freeze()
