"""Answers of the cluster by key, each asked for once however many callers wait for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from cachetools import LRUCache

from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controller.runtime.tenancy.places import Places

T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
"""Seconds for which the last good answer is used after the API server could not be asked."""
MOST_UNAWAITED: Final = 10_000
"""Most questions in progress for which no caller waits; beyond, only a caller that waits asks."""


@dataclass(frozen=True, slots=True)
class CachedReview(Generic[T]):
    """An answer of the cluster, with times on the clock of `ReviewCache`."""

    value: T
    fresh_until: float
    """Time until which it is used without asking again."""
    good_until: float
    """Time until which it is used if the API server does not answer."""
    refused_until: float = 0.0
    """Time until which it is known that the answer was a refusal, though it no longer counts as one."""


class ReviewCache(Generic[T]):
    """The answers to one kind of question; the least recently used are dropped. Refusals are kept apart, so
    that no number of them drops an answer that is good while the API server is away.
    """

    def __init__(self, clock: Callable[[], float], turns: Places, most: int) -> None:
        """`clock` is monotonic seconds; `turns` bounds the questions at a time; `most` answers are kept."""
        self._clock = clock
        self._turns = turns
        self._answers: LRUCache[object, CachedReview[T]] = LRUCache(most)
        self._refusals: LRUCache[object, CachedReview[T]] = LRUCache(most)
        self._asking: dict[object, asyncio.Task[CachedReview[T]]] = {}
        self._unawaited: set[asyncio.Future[T]] = set()

    def fresh(self, key: object) -> CachedReview[T] | None:
        """Return the answer, if it is fresh."""
        answer = self._last_answer(key)
        return answer if answer is not None and answer.fresh_until > self._clock() else None

    def good(self, key: object) -> CachedReview[T] | None:
        """Return the last answer, if it may be used while there is no fresh one."""
        answer = self._answers.get(key)
        return answer if answer is not None and answer.good_until > self._clock() else None

    def was_refused(self, key: object) -> bool:
        """Whether the last answer was a refusal, of up to a minute ago."""
        refusal = self._refusals.get(key)
        return refusal is not None and refusal.refused_until > self._clock()

    def has_answer(self, key: object) -> bool:
        """Whether there is any answer, be it a refusal of up to a minute ago."""
        answer = self._last_answer(key)
        if answer is None:
            return False
        return max(answer.fresh_until, answer.good_until, answer.refused_until) > self._clock()

    async def ask(self, key: object, owner: str, question: Callable[[], Awaitable[CachedReview[T]]]) -> T:
        """Return the answer; ask for it, in `owner`'s turn, if it is not fresh. Raises Failed."""
        answer = self.fresh(key)
        if answer is not None:
            return answer.value
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, owner, question))
        # A caller that is cancelled must not cancel the question for the others who wait for it.
        return (await asyncio.shield(task)).value

    def ask_without_waiting(self, key: object, question: Callable[[], Awaitable[T]]) -> None:
        """Ask in the background if the answer is not fresh; after a failure a later call asks again."""
        if self.fresh(key) is None and len(self._asking) < MOST_UNAWAITED:
            asked = asyncio.ensure_future(question())
            self._unawaited.add(asked)
            asked.add_done_callback(self._forget_unawaited)

    def close(self) -> None:
        """Cancel all questions."""
        for unawaited in tuple(self._unawaited):
            unawaited.cancel()
        for task in self._asking.values():
            task.cancel()

    def _last_answer(self, key: object) -> CachedReview[T] | None:
        return self._answers.get(key) or self._refusals.get(key)

    def _forget_unawaited(self, asked: asyncio.Future[T]) -> None:
        self._unawaited.discard(asked)
        if not asked.cancelled():
            # Otherwise asyncio logs that the exception was never retrieved.
            asked.exception()

    async def _ask(
        self, key: object, owner: str, question: Callable[[], Awaitable[CachedReview[T]]]
    ) -> CachedReview[T]:
        try:
            async with self._turns.place(owner):
                answer = await question()
        except Failed:
            known = self.good(key)
            if known is None:
                raise
            # Callers of the next seconds need not wait for an API server that is down.
            soon = min(self._clock() + RETRY_SECONDS, known.good_until)
            answer = replace(known, fresh_until=soon)
        finally:
            del self._asking[key]
        good = answer.good_until > self._clock()
        (self._refusals if good else self._answers).pop(key, None)
        (self._answers if good else self._refusals)[key] = answer
        return answer
