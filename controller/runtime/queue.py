"""A delayed queue that holds each key once, for one worker at a time, and shares workers among groups."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from controller.runtime.setbacks import Failed, Setback
from evaluator.host.backoff import Backoff
from evaluator.host.shares import FairShare
from evaluator.host.threads import work_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

log = logging.getLogger(__name__)

Key = TypeVar("Key", bound="Hashable")
_STALE: Final = 64
"""Most outdated heap entries, left by keys that moved forward, before they are removed."""


class RetryLater(Exception):
    """Raised by a handler that has reported its failure: the key comes again after its backoff."""


class KeyedQueue(Generic[Key]):
    """A queue of keys for one loop.

    A key that is put again before its time moves forward, never back. A key that is put while it is taken
    comes again after `release`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        random: Callable[[], float],
        backoff: Backoff | None = None,
        *,
        places: float = math.inf,
        firsts: int = 0,
        group: Callable[[Key], Hashable] = lambda _: None,
    ) -> None:
        """`places`: keys that are out at a time, shared out among the keys' groups; `firsts`: beyond them,
        for groups that have none.
        """
        self._clock = clock
        self._random = random
        self._backoff = backoff or Backoff()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0
        self._group = group
        self._shares: FairShare[Key] = FairShare(places, firsts)
        """Due keys that wait for a worker."""
        self._taken: set[Key] = set()
        self._again: set[Key] = set()
        """Keys that became due again while they were worked on."""
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Number of keys that are due now."""
        now = self._clock()
        return sum(due <= now for due in self._due.values())

    def put(self, key: Key, delay: float = 0.0) -> None:
        """Schedule `key` in `delay` seconds, unless it is scheduled earlier."""
        due = self._clock() + delay
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        if len(self._heap) > 2 * len(self._due) + _STALE:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._changed.set()

    def put_after_failure(self, key: Key, most: float = math.inf) -> float:
        """Schedule `key` after its backoff, of at most `most` seconds; return the backoff."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(most, self._backoff.delay(failures, self._random()))
        self.put(key, delay)
        return delay

    def reset_backoff(self, key: Key) -> None:
        """Reset the backoff of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Forget the key of a deleted object."""
        if self._due.pop(key, None) is not None:
            self._shares.remove(self._group(key), key)
            self._again.discard(key)
        self._failures.pop(key, None)

    async def take(self) -> Key:
        """Wait for a due key whose turn it is; `release` must follow."""
        while True:
            wait = self._move_due(self._clock())
            key = self._shares.take()
            if key is not None:
                del self._due[key]
                self._taken.add(key)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def release(self, key: Key) -> None:
        """Mark the work on `key` as ended: it may be taken again."""
        if key not in self._taken:
            return
        self._taken.discard(key)
        self._shares.release(self._group(key))
        if key in self._again:
            self._again.discard(key)
            self._shares.add(self._group(key), key)
        self._changed.set()

    @property
    def busy(self) -> bool:
        """Whether a key is due or worked on."""
        return bool(self._taken) or len(self) > 0

    async def work(
        self,
        handler: Callable[[Key], Awaitable[None]],
        failed: Callable[[Key, Setback], None],
        *,
        longest: float = math.inf,
    ) -> None:
        """Have `handler` work on each key as it becomes due, until cancelled: on as many at a time as there
        are places.

        A key whose handler returns begins with a short backoff the next time. One whose handler raises comes
        again after its backoff: a Setback, or Failed (InternalError) for an exception, which is logged, is
        passed to `failed` and waits `longest` seconds at most; RetryLater is not reported, without a bound.
        """
        async with asyncio.TaskGroup() as group:
            while True:
                key = await self.take()
                # Not the handler's own last step: a task that is cancelled before its first step has none.
                task = group.create_task(self._handle(key, handler, failed, longest))
                task.add_done_callback(partial(self._end_task, key))

    def _end_task(self, key: Key, _: asyncio.Task[None]) -> None:
        self.release(key)

    async def _handle(
        self,
        key: Key,
        handler: Callable[[Key], Awaitable[None]],
        failed: Callable[[Key, Setback], None],
        longest: float,
    ) -> None:
        try:
            with work_for(self._group(key)):
                await handler(key)
        except RetryLater:
            self.put_after_failure(key)
        except Setback as setback:
            failed(key, setback)
            self.put_after_failure(key, longest)
        except Exception as error:
            log.exception("work on a key failed unexpectedly", extra={"key": str(key)})
            failed(key, Failed("InternalError", f"{type(error).__name__}; the log has more"))
            self.put_after_failure(key, longest)
        else:
            self.reset_backoff(key)

    def _move_due(self, now: float) -> float | None:
        """Move due keys to the fair queue; return the seconds until the next is due, or None."""
        while self._heap:
            due, _, key = self._heap[0]
            current = self._due.get(key) == due
            if current and due > now:
                return due - now
            heapq.heappop(self._heap)
            if current and key in self._taken:
                self._again.add(key)
            elif current:
                self._shares.add(self._group(key), key)
        return None
