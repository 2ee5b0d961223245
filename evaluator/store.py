"""The flag set that is served, swapped whole: whoever reads sees one set or the next, never a mix."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from evaluator.flags.canonical import digest
from evaluator.flags.model import REVISION_KEY, Bucketing
from evaluator.resolve import compile_flag_set

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.resolve import CompiledFlagSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A flag set as it is served from one swap to the next."""

    compiled: CompiledFlagSet
    digest: str
    """Of what decides an evaluation; provenance is not covered."""
    revision: str | None
    """The source revision that last changed the content, where the set names one."""
    served_since: float
    """Unix seconds."""

    @property
    def flag_set(self) -> FlagSet:
        """The definitions behind it."""
        return self.compiled.flag_set


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why what is served may be outdated."""

    reason: str
    since: float
    """Unix seconds: the last moment at which it was known to be current."""


Subscriber: TypeAlias = Callable[[Snapshot], None]


class Store:
    """Holds the current snapshot and tells subscribers of the next, synchronously and in the order of subscription."""

    def __init__(
        self,
        *,
        bucketing: Bucketing = Bucketing.V2,
        expose_bucketing: bool = False,
        source: str | None = None,
    ) -> None:
        """`source` is the name by which a `source=` selector may ask for the set."""
        self.source = source
        self._bucketing = bucketing
        self._expose_bucketing = expose_bucketing
        self._snapshot: Snapshot | None = None
        self._last_success: float | None = None
        self._stale: Staleness | None = None
        self._subscribers: dict[object, Subscriber] = {}

    @property
    def snapshot(self) -> Snapshot | None:
        """What is served; None until the first swap."""
        return self._snapshot

    @property
    def last_success(self) -> float | None:
        """When what is served was last known to be current, in Unix seconds; None before."""
        return self._last_success

    @property
    def stale(self) -> Staleness | None:
        """Set from `mark_stale` until the next success."""
        return self._stale

    def swap(self, flag_set: FlagSet, *, now: float, content: str | None = None) -> Snapshot:
        """Serve `flag_set` from here on. The same content from the same revision is no change: nobody is told.

        `content` is the set's digest, from a caller that has it: of a large set it takes as long as all the rest.
        """
        self.mark_success(now)
        content = content or digest(flag_set)
        current = self._snapshot
        if current is not None and current.digest == content and current.flag_set == flag_set:
            return current
        compiled = compile_flag_set(
            flag_set, bucketing=self._bucketing, expose_bucketing=self._expose_bucketing
        )
        revision = flag_set.metadata.get(REVISION_KEY)
        snapshot = Snapshot(compiled, content, None if revision is None else str(revision), now)
        self._snapshot = snapshot
        for subscriber in tuple(self._subscribers.values()):
            try:
                subscriber(snapshot)
            except Exception:
                logger.exception("a subscriber failed on %s", snapshot.digest)
        return snapshot

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` after every change, until the returned function is called."""
        token = object()
        self._subscribers[token] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def mark_success(self, now: float) -> None:
        """What is served is known to be what the source has, at `now`."""
        self._last_success = now
        self._stale = None

    def mark_stale(self, reason: str, since: float) -> None:
        """What is served could not be confirmed since `since`; said again, the earliest moment stays."""
        known = self._last_success if self._stale is None else self._stale.since
        earliest = since if known is None else min(known, since)
        if self._last_success is not None:
            self._last_success = min(self._last_success, earliest)
        self._stale = Staleness(reason, earliest)

    def age(self, now: float) -> float | None:
        """Seconds since what is served was last known to be current; None before the first success."""
        return None if self._last_success is None else max(0.0, now - self._last_success)
