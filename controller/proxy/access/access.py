"""Who calls, and what it may read: a bearer token is reviewed by the cluster, then what it asks for, and both
are remembered for a while.

A token is remembered by its keyed hash alone. With the API server down, what was allowed stays allowed for as
long as the token itself is valid, an hour at most: serving does not depend on control. What was refused is
asked again soon.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from controller.runtime.setbacks import Failed
from evaluator.http.messages import header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.delivery.claims import Place
    from evaluator.http.messages import Call

T = TypeVar("T")

TOKEN_SECONDS: Final = 300.0
"""For how long a token is taken for good without asking again."""
VERDICT_SECONDS: Final = 60.0
"""For how long it is remembered what somebody may read."""
REFUSED_SECONDS: Final = 5.0
"""For how long a refusal is remembered: a role may have been given meanwhile."""
KNOWN_REFUSED: Final = 60.0
"""For how long who bears a refused token need not wait for its next review."""
OUTAGE_SECONDS: Final = 3600.0
"""For how long what was allowed stays so while the API server does not answer."""
MOST_KEPT: Final = 50_000
REVIEWS: Final = 32
"""At a time; more wait."""
MOST_ASIDE: Final = 10_000
"""Reviews that nobody waits for; past this the next call asks."""
MOST_TOKEN: Final = 16_384
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    service_account: str = ""
    verified: bool = False
    """Whether the cluster says so; otherwise nothing is known."""


NOBODY: Final = Caller()


@dataclass(frozen=True, slots=True)
class User:
    """A token's user, as the API server tells it: what a review of access is asked with."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def caller(self) -> Caller:
        """The pod and the service account, as far as the token is bound to them."""
        extra = dict(self.extra)
        account = self.name.removeprefix(_ACCOUNT) if self.name.startswith(_ACCOUNT) else ""
        namespace, _, service_account = account.partition(":")
        return Caller(
            namespace=namespace,
            pod=next(iter(extra.get(_POD_NAME, ())), ""),
            pod_uid=next(iter(extra.get(_POD_UID, ())), ""),
            service_account=service_account,
            verified=True,
        )

    @property
    def reader(self) -> str:
        """The same for all that may read the same: pods of one service account share it."""
        told = json.dumps([self.name, self.groups])
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


class Reviews(Protocol):
    """What the cluster is asked."""

    async def user(self, token: str) -> User | None:
        """Whose token it is; None: nobody's that is known. Raises Failed."""

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        """Whether `user` may `get` this FeatureFlagConfiguration. Raises Failed."""


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    value: T
    fresh_until: float
    good_until: float
    refused_until: float = 0.0
    """Until then it is known that it was a refusal, though it no longer counts as one."""


class _Remembered(Generic[T]):
    """Answers by key, asked once however many wait for one; the least recently used go first."""

    def __init__(self, clock: Callable[[], float], turns: asyncio.Semaphore, most: int) -> None:
        self._clock = clock
        self._turns = turns
        self._most = most
        self._answers: OrderedDict[object, _Answer[T]] = OrderedDict()
        self._asking: dict[object, asyncio.Task[_Answer[T]]] = {}

    def known(self, key: object) -> _Answer[T] | None:
        """The answer, if it is fresh."""
        found = self._answers.get(key)
        if found is None or found.fresh_until <= self._clock():
            return None
        self._answers.move_to_end(key)
        return found

    def latest(self, key: object) -> _Answer[T] | None:
        """The last answer, if it is still good for want of a fresh one."""
        found = self._answers.get(key)
        return found if found is not None and found.good_until > self._clock() else None

    def answered(self, key: object) -> bool:
        """Whether there is an answer, if only a refusal of a minute ago."""
        found = self._answers.get(key)
        if found is None:
            return False
        return max(found.fresh_until, found.good_until, found.refused_until) > self._clock()

    @property
    def asking(self) -> int:
        """How many answers are waited for."""
        return len(self._asking)

    async def ask(self, key: object, question: Callable[[], Awaitable[_Answer[T]]]) -> T:
        """The answer, asked for where it is not fresh. Raises Failed."""
        found = self.known(key)
        if found is not None:
            return found.value
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, question))
        # Whoever hangs up must not take the answer from the others who wait for it.
        return (await asyncio.shield(task)).value

    async def _ask(self, key: object, question: Callable[[], Awaitable[_Answer[T]]]) -> _Answer[T]:
        try:
            async with self._turns:
                answer = await question()
        except Failed:
            known = self.latest(key)
            if known is None:
                raise
            # For a moment: whoever asks meanwhile need not wait for an API server that is down.
            soon = min(self._clock() + REFUSED_SECONDS, known.good_until)
            answer = replace(known, fresh_until=soon)
        finally:
            del self._asking[key]
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()


class Access:
    """Remembers what the cluster said of tokens and of who may read what."""

    def __init__(
        self,
        reviews: Reviews,
        *,
        clock: Callable[[], float],
        unix_time: Callable[[], float],
        most: int = MOST_KEPT,
    ) -> None:
        """`clock` is monotonic seconds; `unix_time` is what tokens expire by."""
        self._reviews = reviews
        self._clock = clock
        self._unix_time = unix_time
        self._key = secrets.token_bytes(32)
        turns = asyncio.Semaphore(REVIEWS)
        self._users: _Remembered[User | None] = _Remembered(clock, turns, most)
        self._verdicts: _Remembered[bool] = _Remembered(clock, turns, most)
        self._readers: OrderedDict[str, User] = OrderedDict()
        """Whom a topic's reader stands for."""
        self._most = most
        self._aside: set[asyncio.Future[Any]] = set()

    def known(self, call: Call) -> User | None:
        """Whose token the call bears, if that is known now."""
        token = bearer(call)
        found = None if token is None else self._users.known(self._hash(token))
        return None if found is None else found.value

    def caller(self, call: Call) -> Caller:
        """Who calls, as far as the cluster has said so by now; an answer that is not fresh is asked for
        meanwhile.
        """
        token = bearer(call)
        if token is None:
            return NOBODY
        key = self._hash(token)
        if self._users.known(key) is None and self._users.asking < MOST_ASIDE:
            aside = asyncio.ensure_future(self.user(token))
            self._aside.add(aside)
            aside.add_done_callback(self._ended)
        user = self.last_known(call)
        return NOBODY if user is None else user.caller

    def last_known(self, call: Call) -> User | None:
        """Whose token the call bears, also while it is asked again."""
        token = bearer(call)
        found = None if token is None else self._users.latest(self._hash(token))
        return None if found is None else found.value

    def undecided(self, call: Call) -> bool:
        """Whether the call bears a token, and nobody has said for a while whose it is, or that it is
        nobody's.
        """
        token = bearer(call)
        return token is not None and not self._users.answered(self._hash(token))

    def may_read_now(self, call: Call, place: Place) -> bool | None:
        """Whether who calls may read the flags there; None: it is not known now, and asked meanwhile."""
        token = bearer(call)
        if token is None:
            return False
        self.caller(call)
        key = self._hash(token)
        fresh, found = self._users.known(key), self._users.latest(key)
        if found is None or found.value is None:
            return None if fresh is None else False
        about = (found.value.reader, place)
        verdict = self._verdicts.known(about)
        if verdict is None and self._verdicts.asking < MOST_ASIDE:
            aside = asyncio.ensure_future(self.may_read(found.value, place))
            self._aside.add(aside)
            aside.add_done_callback(self._ended)
        verdict = verdict or self._verdicts.latest(about)
        return None if verdict is None else verdict.value

    def _ended(self, aside: asyncio.Future[Any]) -> None:
        self._aside.discard(aside)
        if not aside.cancelled():
            # It is asked again with the next call.
            aside.exception()

    async def user(self, token: str) -> User | None:
        """Whose token it is; None: nobody's. Raises Failed where nobody can say."""

        async def review() -> _Answer[User | None]:
            found = await self._reviews.user(token)
            now = self._clock()
            if found is None:
                return _Answer(None, now + REFUSED_SECONDS, now, now + KNOWN_REFUSED)
            left = _left(token, self._unix_time())
            return _Answer(found, now + min(TOKEN_SECONDS, left), now + min(OUTAGE_SECONDS, left))

        user = await self._users.ask(self._hash(token), review)
        if user is not None:
            self._readers[user.reader] = user
            self._readers.move_to_end(user.reader)
            while len(self._readers) > self._most:
                self._readers.popitem(last=False)
        return user

    async def may_read(self, user: User, place: Place) -> bool:
        """Whether `user` may read the flags there. Raises Failed where nobody can say."""

        async def review() -> _Answer[bool]:
            allowed = await self._reviews.may_read(user, *place)
            now = self._clock()
            if not allowed:
                return _Answer(False, now + REFUSED_SECONDS, now)
            return _Answer(True, now + VERDICT_SECONDS, now + OUTAGE_SECONDS)

        return await self._verdicts.ask((user.reader, place), review)

    def readable(self, reader: str, place: Place) -> bool | None:
        """Whether whoever `reader` stands for may read the flags there; None: not known now."""
        found = self._verdicts.known((reader, place))
        return None if found is None else found.value

    def reader(self, name: str) -> User | None:
        """Whom a reader stands for."""
        return self._readers.get(name)

    def close(self) -> None:
        """Ask nothing more."""
        for aside in tuple(self._aside):
            aside.cancel()
        self._users.close()
        self._verdicts.close()

    def _hash(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()


def bearer(call: Call) -> str | None:
    """The bearer token of a call; None where there is none that could be one."""
    shown = header(call.headers, "authorization")
    scheme, _, token = (shown or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= MOST_TOKEN or not token.isascii():
        return None
    return token


def _left(token: str, now: float) -> float:
    """Seconds until a token that the cluster has found good expires by its own account; without one it never
    does.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return OUTAGE_SECONDS
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return OUTAGE_SECONDS
    expires = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(expires, int | float):
        return OUTAGE_SECONDS
    return max(0.0, expires - now)


def as_extra(told: Mapping[str, object]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`userInfo.extra` as a User keeps it."""
    return tuple(
        (key, tuple(str(each) for each in values))
        for key, values in sorted(told.items())
        if isinstance(values, list)
    )
