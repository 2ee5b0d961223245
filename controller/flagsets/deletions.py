"""Which flags that a revision deletes stay, since applications ask for them, and what is said of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from controller.runtime.plain_text import one_line
from evaluator.flags.text import quote
from evaluator.host.texts import cut
from evaluator.host.times import query_duration, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controller.api.flagset import DeletionGuard
    from controller.authoring.request_queries import FlagRequests

CODE: Final = "deletion-guard"
"""The code of the problem of a flag that stays."""
_AGAIN: Final = timedelta(minutes=1)
"""Until a server without an answer is asked again."""
_CAUSE: Final = 160
"""Characters."""


class RequestReader(Protocol):
    """Knows who asks evaluators for flags."""

    async def ask(
        self, namespace: str, guard: DeletionGuard, keys: Sequence[str], now: datetime
    ) -> Mapping[str, FlagRequests] | str:
        """Return the requests for each of the flags that has any, or why they are not known; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class KeptFlags:
    """The flags that a revision deletes and that stay."""

    messages: Mapping[str, str] = field(default_factory=dict)
    """Why each does, by key."""
    requested: frozenset[str] = frozenset()
    """Those that are asked for. Of the others, that is not known."""
    deleted: tuple[str, ...] = ()
    """All that the revision deletes."""
    ask_again: datetime | None = None
    """When those who ask may have gone; None: no flag stays."""

    def stays(self, other: KeptFlags) -> bool:
        """Whether the same is to be said of the same flags."""
        return (self.messages.keys(), self.requested) == (other.messages.keys(), other.requested)


NONE_KEPT: Final = KeptFlags()


@dataclass(frozen=True, slots=True)
class DeletionCheck:
    """Asks about one revision of a FlagSet."""

    requests: RequestReader
    namespace: str
    guard: DeletionGuard
    override: str
    """What a person does to have the flags deleted at once."""
    interval: float
    """Seconds until those who were asked for are asked for again."""

    async def kept(self, deleted: Iterable[str], now: datetime) -> KeptFlags:
        """Return the flags that stay: those with requests, and all where nobody knows."""
        keys = tuple(sorted(deleted))
        if not keys:
            return NONE_KEPT
        found = await self.requests.ask(self.namespace, self.guard, keys, now)
        if isinstance(found, str):
            messages = {key: self._unknown(key, found) for key in keys}
            return KeptFlags(messages, frozenset(), keys, now + _AGAIN)
        messages = {key: self._requested(key, found[key]) for key in keys if key in found}
        again = now + timedelta(seconds=self.interval) if messages else None
        return KeptFlags(messages, frozenset(messages), keys, again)

    def _requested(self, key: str, requests: FlagRequests) -> str:
        within = query_duration(self.guard.requested_within)
        users = ", ".join(f"{one_line(who, 100)} ({_count(count)})" for who, count in requests.by)
        earliest = ""
        if requests.last is not None:
            moment = requests.last + timedelta(seconds=self.guard.requested_within)
            earliest = f", not before {timestamp(moment)}"
        return (
            f"the deletion of {_key(key)} waits: {_count(requests.total)} requests in {within}"
            f"{f', by {users}' if users else ''}. It is deleted after {within} without any{earliest}. "
            f"To delete it now: {self.override}"
        )

    def _unknown(self, key: str, why: str) -> str:
        within = query_duration(self.guard.requested_within)
        return (
            f"the deletion of {_key(key)} waits: whether anybody asked for it in {within} is not known: "
            f"{one_line(why, _CAUSE)}. It is asked again each minute. To delete it now: {self.override}"
        )


def _key(key: str) -> str:
    return quote(cut(key, 64))


def _count(count: float) -> str:
    return f"{max(1, round(count)):,}"
