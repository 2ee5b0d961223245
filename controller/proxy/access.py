"""Remembers what the cluster said of tokens, and of who may read what; each is asked for once.

A token is remembered by its keyed hash alone. While the API server does not answer, what was allowed stays
allowed for as long as the token itself is valid, an hour at most: serving does not depend on control. A
refusal is asked for again within seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from cachetools import LRUCache, TTLCache

from controller.proxy.users import ANONYMOUS, Caller, Reviews, User, bearer, seconds_left
from controller.runtime.limits import Places
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Call, host_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controller.delivery.claims import Place


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


TOKEN_SECONDS: Final = 300.0
"""Seconds for which a token is accepted without another review."""
VERDICT_SECONDS: Final = 60.0
"""Seconds for which it is cached what a user may read."""
REFUSED_SECONDS: Final = RETRY_SECONDS
"""Seconds for which a refusal is cached: a role may be granted meanwhile."""
KNOWN_REFUSED: Final = 60.0
"""Seconds for which the sender of a refused token need not wait for its next review."""
OUTAGE_SECONDS: Final = 3600.0
"""Seconds for which permissions are kept while the API server does not answer."""
MOST_KEPT: Final = 50_000
MOST_REFUSED: Final = 600
"""Most refused tokens of an address; then it must send none for REFUSED_WINDOW seconds."""
MOST_REFUSED_IN_ALL: Final = 3_000
"""Most refused tokens of all addresses in REFUSED_WINDOW seconds; from then on an address with a refused
token must send no other, and at twice as many only tokens that are known are accepted.
"""
REFUSED_WINDOW: Final = 60.0
REVIEWS: Final = 32
"""Most reviews at a time, half of them for one address or reader; more wait."""


class AccessReviews:
    """The cluster's reviews of tokens and users."""

    def __init__(
        self,
        reviews: Reviews,
        *,
        clock: Callable[[], float],
        unix_time: Callable[[], float],
        most: int = MOST_KEPT,
    ) -> None:
        """`clock` is monotonic seconds; `unix_time` is what tokens expire by; `most` answers are kept."""
        self._reviews = reviews
        self._clock = clock
        self._unix_time = unix_time
        self._key = secrets.token_bytes(32)
        turns = Places(REVIEWS, REVIEWS, resource="reviews")
        self._users: ReviewCache[User | None] = ReviewCache(clock, turns, most)
        self._verdicts: ReviewCache[bool] = ReviewCache(clock, turns, most)
        self._readers: LRUCache[str, User] = LRUCache(most)
        """For each reader, one of its users."""
        self._refused: TTLCache[str, int] = TTLCache(most, REFUSED_WINDOW, clock)
        """The number of refused tokens by address."""
        self._refused_in_all = 0
        self._window_ends = 0.0
        """Time at which the count of refused tokens of all addresses begins anew."""

    def known_user(self, call: Call) -> User | None:
        """The user of the call's token, if it was reviewed and the review is fresh."""
        token = bearer(call)
        review = None if token is None else self._users.fresh(self._hash(token))
        return None if review is None else review.value

    def caller(self, call: Call) -> Caller:
        """Return the caller, by the last review; one that is not fresh is repeated in the background."""
        token = bearer(call)
        if token is None:
            return ANONYMOUS
        self._users.ask_without_waiting(self._hash(token), partial(self.user, token, host_of(call.peer)))
        user = self.last_known(call)
        return ANONYMOUS if user is None else user.caller

    def last_known(self, call: Call) -> User | None:
        """The user of the call's token, also while it is reviewed again."""
        token = bearer(call)
        review = None if token is None else self._users.good(self._hash(token))
        return None if review is None else review.value

    def needs_review(self, call: Call) -> bool:
        """Whether the call has a token without a recent review that names its user or rejects it."""
        token = bearer(call)
        return token is not None and not self._users.has_answer(self._hash(token))

    def may_read_now(self, call: Call, place: Place) -> bool | None:
        """Return whether the caller may read the flags; None: unknown yet, a review is under way."""
        token = bearer(call)
        if token is None:
            return False
        self.caller(call)
        key = self._hash(token)
        fresh, last = self._users.fresh(key), self._users.good(key)
        if last is None or last.value is None:
            return None if fresh is None else False
        about = (last.value.reader, place)
        self._verdicts.ask_without_waiting(about, partial(self.may_read, last.value, place))
        verdict = self._verdicts.fresh(about) or self._verdicts.good(about)
        return None if verdict is None else verdict.value

    async def user(self, token: str, host: str) -> User | None:
        """The token's user; None: the cluster does not know it. Raises Failed where no review is possible,
        and for a token that is new from a `host` that has sent too many wrong ones.
        """

        async def review() -> CachedReview[User | None]:
            refused = self._refused.get(host, 0)
            if refused >= self._most_refused():
                raise Failed("TooManyTokens", f"{host} sends too many tokens that the cluster does not know")
            user = await self._reviews.user(token)
            now = self._clock()
            if user is None:
                self._refused[host] = refused + 1
                self._refused_in_all += 1
                return CachedReview(None, now + REFUSED_SECONDS, now, now + KNOWN_REFUSED)
            left = seconds_left(token, self._unix_time(), unlimited=OUTAGE_SECONDS)
            return CachedReview(user, now + min(TOKEN_SECONDS, left), now + min(OUTAGE_SECONDS, left))

        user = await self._users.ask(self._hash(token), host, review)
        if user is not None:
            self._readers[user.reader] = user
        return user

    def _most_refused(self) -> int:
        """How many refused tokens an address may have now: the API server reviews each."""
        now = self._clock()
        if now >= self._window_ends:
            self._refused_in_all, self._window_ends = 0, now + REFUSED_WINDOW
        if self._refused_in_all < MOST_REFUSED_IN_ALL:
            return MOST_REFUSED
        return 1 if self._refused_in_all < 2 * MOST_REFUSED_IN_ALL else 0

    async def may_read(self, user: User, place: Place) -> bool:
        """Whether `user` may read the flags there. Raises Failed where no review is possible."""

        async def review() -> CachedReview[bool]:
            allowed = await self._reviews.may_read(user, *place)
            now = self._clock()
            if not allowed:
                return CachedReview(False, now + REFUSED_SECONDS, now, now + VERDICT_SECONDS)
            return CachedReview(True, now + VERDICT_SECONDS, now + OUTAGE_SECONDS)

        return await self._verdicts.ask((user.reader, place), user.reader, review)

    def readable(self, reader: str, place: Place) -> bool | None:
        """Whether the users of `reader` may read the flags there; None: not known now."""
        verdict = self._verdicts.fresh((reader, place))
        return None if verdict is None else verdict.value

    def may_see(self, reader: str, place: Place) -> bool | None:
        """Decide as `readable` does, but cache a refusal as long as a permission: a search for one object
        among many need not ask about the refused ones again and again.
        """
        verdict = self.readable(reader, place)
        return False if verdict is None and self._verdicts.was_refused((reader, place)) else verdict

    def user_of(self, reader: str) -> User | None:
        """A user of a reader."""
        return self._readers.get(reader)

    def close(self) -> None:
        """Cancel all reviews."""
        self._users.close()
        self._verdicts.close()

    def _hash(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
