"""What is served, swapped whole: whoever reads sees one catalog or the next, never a mix, however it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from evaluator.flags.catalog import Catalog, UnknownSourceError
from evaluator.flags.model import Bucketing
from evaluator.resolve import compile_flag_set
from evaluator.snapshot import EVERYTHING, Prepared, SelectorKey, Snapshot, View, revision_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.model import FlagSet
    from evaluator.resolve import CompiledFlagSet

__all__ = ["Prepared", "SelectorKey", "Snapshot", "SourceStatus", "Staleness", "Store"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why what is served may be outdated."""

    reason: str
    since: float
    """Unix seconds: the last moment at which it was known to be current."""
    cause: str = ""
    """A CamelCase word for programs, of those that sources have for their faults; may be empty."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source: what it holds, and how current that is."""

    name: str
    digest: str | None = None
    """None, as `revision` may be: it has delivered nothing."""
    revision: str | None = None
    flags: int = 0
    last_success: float | None = None
    """Unix seconds at which what it holds was last known to be current."""
    stale: Staleness | None = None
    """Set from `mark_stale` until the next success."""
    from_disk: bool = False
    """What it holds is its last good set, and the source has not been read since the start."""


@dataclass(slots=True)
class Swaps:
    """What swapping has cost the loop so far, in seconds."""

    count: int = 0
    seconds: float = 0.0
    last: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.count, self.seconds, self.last = self.count + 1, self.seconds + seconds, seconds


@dataclass(slots=True)
class _Health:
    last_success: float | None = None
    stale: Staleness | None = None
    from_disk: bool = False


Subscriber: TypeAlias = Callable[[Snapshot], None]


class Store:
    """Holds what is served and tells subscribers of the next, synchronously and in the order of subscription.

    Everything but `prepare` is the loop's.
    """

    def __init__(
        self,
        *,
        sources: Sequence[str] = ("",),
        bucketing: Bucketing = Bucketing.V2,
        expose_bucketing: bool = False,
    ) -> None:
        """`sources` are names in order of priority, the last one wins; `source=` selectors ask for them."""
        self._bucketing = bucketing
        self._expose_bucketing = expose_bucketing
        self._served = self._views(Catalog(sources))
        self._snapshots: dict[View, Snapshot] = {}
        self._by_compiled: dict[int, Snapshot] = {}
        self._since: float | None = None
        self._health = {name: _Health() for name in sources}
        self._subscribers: dict[object, tuple[Subscriber, Subscriber | None]] = {}
        self.swaps = Swaps()

    @property
    def catalog(self) -> Catalog:
        """What each source holds; the next is made of it."""
        return self._served.catalog

    @property
    def only_source(self) -> str:
        """The one source's name; raises UnknownSourceError where there are several, or none."""
        if len(self._health) != 1:
            raise UnknownSourceError(f"of these sources, name one: {tuple(self._health)}")
        return next(iter(self._health))

    @property
    def snapshot(self) -> Snapshot | None:
        """Everything that is served; None until a source has delivered."""
        return self._snapshot(EVERYTHING)

    def view(self, key: SelectorKey, value: str) -> Snapshot | None:
        """What a selector finds in what is served, the same object until the next swap; None where it finds nothing."""
        return self._snapshot((key, value))

    def prepare(self, catalog: Catalog) -> Prepared:
        """Make in a thread what `serve` and the first answers after it would make on the loop: views in use, compiled."""
        prepared = self._views(catalog)
        for view, served in {EVERYTHING: None, **dict(self._served.compiled)}.items():
            compiled = prepared.view(view)
            if compiled is not None:
                if served is not None:
                    compiled.borrow(served)
                compiled.compile_all()
                prepared.digest(compiled.flag_set)
        _ = catalog.flag_sets
        return prepared

    def serve(
        self, following: Catalog | Prepared, *, now: float, along: bool = False
    ) -> Snapshot | None:
        """Serve a catalog from here on. One that says the same as the last is no change: nobody is told.

        Nor is it where a source is said to be stale now, or is not any more: only those who keep answers are to make them anew. `along`:
        what goes with it, and is not in it, has changed, which is to be told with any swap.
        Returns everything that is served; None while no source has delivered. Withdrawn by every source, it is an empty set.
        """
        prepared = following if isinstance(following, Prepared) else self._views(following)
        if self._since is None and not prepared.catalog.sets:
            return None
        if self._since is not None and prepared.catalog == self.catalog:
            return self.snapshot
        started = perf_counter()
        same = self._since is not None and prepared.catalog.holds_as(self.catalog)
        self._served, self._since = prepared, self._since if same else now
        self._snapshots, self._by_compiled = {}, {}
        snapshot = self.snapshot
        if same and not along and snapshot is not None:
            self._tell(snapshot, restated=True)
            return snapshot
        if snapshot is not None:
            self._tell(snapshot)
        self.swaps.add(perf_counter() - started)
        return snapshot

    def remains(self) -> list[object]:
        """What is served now, in pieces, for who lets go of it after the next swap."""
        compiled = {id(one): one for one in self._served.compiled.values()}.values()
        flags = [flag for one in compiled for flag in one.flag_set.flags.values()]
        return [*flags, *(flag for one in compiled for flag in one.compiled.values())]

    def swap(
        self,
        flag_set: FlagSet,
        *,
        now: float,
        source: str | None = None,
        content: str | None = None,
    ) -> Snapshot:
        """Serve `flag_set` as what `source` holds, read at `now`; `source` is named where there are several.

        `content` is the set's digest, from a caller that has it.
        """
        name = self.only_source if source is None else source
        catalog = self.catalog.with_source(name, flag_set, content)
        self.mark_success(now, name)
        snapshot = self.serve(catalog, now=now)
        if snapshot is None:
            raise RuntimeError("a source that delivered is served")
        return snapshot

    def subscribe(
        self, callback: Subscriber, restated: Subscriber | None = None
    ) -> Callable[[], None]:
        """Call `callback` with everything that is served after every change, until the returned function is called.

        `restated` is called instead where the same is served, and only what it says of its staleness differs.
        """
        token = object()
        self._subscribers[token] = callback, restated

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def tell_again(self) -> None:
        """Tell subscribers of what is served once more: what goes with it, and is not in it, has changed."""
        if (snapshot := self.snapshot) is not None:
            self._tell(snapshot)

    def mark_success(self, now: float, source: str | None = None) -> None:
        """What is served of `source` is known to be what the source has, at `now`."""
        health = self._health_of(source)
        health.last_success, health.stale, health.from_disk = now, None, False

    def mark_from_disk(self, saved_at: float, source: str | None = None) -> None:
        """What is served of `source` is its last good set, known to be current at `saved_at` and not since."""
        health = self._health_of(source)
        health.last_success, health.from_disk = saved_at, True

    def mark_stale(
        self, reason: str, since: float, source: str | None = None, *, cause: str = ""
    ) -> None:
        """What is served of `source` could not be confirmed since `since`; said again, the earliest moment stays."""
        health = self._health_of(source)
        known = health.last_success if health.stale is None else health.stale.since
        earliest = since if known is None else min(known, since)
        if health.last_success is not None:
            health.last_success = min(health.last_success, earliest)
        health.stale = Staleness(reason, earliest, cause)

    def status(self, source: str) -> SourceStatus:
        """What is known of one source. Raises UnknownSourceError."""
        health = self._health_of(source)
        flag_set = self.catalog.of_source(source)
        return SourceStatus(
            source,
            digest=self.catalog.digest_of(source),
            revision=None if flag_set is None else revision_of(flag_set),
            flags=0 if flag_set is None else len(flag_set.flags),
            last_success=health.last_success,
            stale=health.stale,
            from_disk=health.from_disk,
        )

    def stale_since(self, source: str) -> str | None:
        """What answers say of a source that is stale: since when, RFC 3339 in UTC to the second; None while it is not."""
        stale = self._health_of(source).stale
        if stale is None:
            return None
        return datetime.fromtimestamp(stale.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def statuses(self) -> tuple[SourceStatus, ...]:
        """All sources, in order of priority."""
        return tuple(self.status(name) for name in self._health)

    @property
    def last_success(self) -> float | None:
        """When all that is served was last known to be current, in Unix seconds; None before the first success."""
        moments = (health.last_success for health in self._health.values())
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def stale(self) -> Staleness | None:
        """The staleness of the source that is stale for longest."""
        found = (health.stale for health in self._health.values() if health.stale is not None)
        return min(found, key=lambda stale: stale.since, default=None)

    def age(self, now: float) -> float | None:
        """Seconds since all that is served was last known to be current; None before the first success."""
        success = self.last_success
        return None if success is None else max(0.0, now - success)

    def _views(self, catalog: Catalog) -> Prepared:
        def compile_set(flag_set: FlagSet) -> CompiledFlagSet:
            return compile_flag_set(
                flag_set, bucketing=self._bucketing, expose_bucketing=self._expose_bucketing
            )

        return Prepared(catalog, compile_set)

    def _snapshot(self, view: View) -> Snapshot | None:
        found = self._snapshots.get(view)
        if found is None and self._since is not None:
            compiled = self._served.view(view)
            if compiled is not None:
                found = self._by_compiled.get(id(compiled))
                found = found or Snapshot(compiled, self._since, self._served)
                self._by_compiled[id(compiled)] = self._snapshots[view] = found
        return found

    def _tell(self, snapshot: Snapshot, *, restated: bool = False) -> None:
        for changed, again in tuple(self._subscribers.values()):
            subscriber = again if restated else changed
            if subscriber is None:
                continue
            try:
                subscriber(snapshot)
            except Exception:
                logger.exception("a subscriber failed on %s", snapshot.digest)

    def _health_of(self, source: str | None) -> _Health:
        name = self.only_source if source is None else source
        if name not in self._health:
            raise UnknownSourceError(
                f"no source is named {name!r}; there are {tuple(self._health)}"
            )
        return self._health[name]
