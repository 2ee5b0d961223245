"""What is served, swapped whole: whoever reads sees one catalog or the next, never a mix, however it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from evaluator.flags.canonical import digest
from evaluator.flags.catalog import Catalog, UnknownSourceError
from evaluator.flags.model import REVISION_KEY, Bucketing
from evaluator.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.model import FlagSet
    from evaluator.resolve import CompiledFlagSet

logger = logging.getLogger(__name__)

SelectorKey: TypeAlias = Literal["source", "flagSetId"]
"""What a view may be selected by."""

EVERYTHING: Final = None
"""The view without a selector."""

View: TypeAlias = tuple[SelectorKey, str] | None


class Snapshot:
    """A flag set as it is served from one swap to the next; equal only to itself."""

    def __init__(self, compiled: CompiledFlagSet, served_since: float, among: Prepared) -> None:
        self.compiled = compiled
        self.served_since = served_since
        """Unix seconds."""
        self._among = among

    @property
    def flag_set(self) -> FlagSet:
        """The definitions behind it."""
        return self.compiled.flag_set

    @property
    def digest(self) -> str:
        """Of what decides an evaluation; provenance is not covered. Where several sources are merged, losing flags count, too."""
        return self._among.digest(self.flag_set)

    @property
    def revision(self) -> str | None:
        """The source revision that last changed the content, where the set names one."""
        return _revision(self.flag_set)


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


class Prepared:
    """A catalog with its views, compiled as they are asked for; one is served from one swap to the next."""

    def __init__(self, catalog: Catalog, compile_set: Callable[[FlagSet], CompiledFlagSet]) -> None:
        self.catalog = catalog
        self._compile = compile_set
        self.compiled: dict[View, CompiledFlagSet] = {}
        """The views that were asked for already; selectors that find nothing leave no trace."""
        self._by_set: dict[int, CompiledFlagSet] = {}
        self._digests: dict[int, str] = {}

    def view(self, view: View) -> CompiledFlagSet | None:
        """The flags that are selected; None where nothing is known by that name."""
        found = self.compiled.get(view)
        if found is None and (selected := self._select(view)) is not None:
            # A source that stands alone has its set as every view of it: that is compiled once.
            found = self._by_set.get(id(selected)) or self._compile(selected)
            self._by_set[id(selected)] = self.compiled[view] = found
        return found

    def digest(self, flag_set: FlagSet) -> str:
        """The digest of a view's flag set; those of whole catalogs and sources are known already."""
        if flag_set is self.catalog.everything:
            return self.catalog.digest
        found = self._digests.get(id(flag_set))
        if found is None:
            sources = self.catalog.sets.items()
            source = next((name for name, each in sources if each is flag_set), None)
            known = None if source is None else self.catalog.digest_of(source)
            found = self._digests[id(flag_set)] = known or digest(flag_set)
        return found

    def _select(self, view: View) -> FlagSet | None:
        if view is EVERYTHING:
            return self.catalog.everything
        key, value = view
        if key == "source":
            return self.catalog.of_source(value)
        return self.catalog.of_flag_set(value)


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
        self._subscribers: dict[object, Subscriber] = {}
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
        for view in {EVERYTHING: None, **dict(self._served.compiled)}:
            compiled = prepared.view(view)
            if compiled is not None:
                compiled.compile_all()
                prepared.digest(compiled.flag_set)
        _ = catalog.flag_sets
        return prepared

    def serve(self, following: Catalog | Prepared, *, now: float) -> Snapshot | None:
        """Serve a catalog from here on. One that says the same as the last is no change: nobody is told.

        Returns everything that is served; None while no source has delivered. Withdrawn by every source, it is an empty set.
        """
        prepared = following if isinstance(following, Prepared) else self._views(following)
        if self._since is None and not prepared.catalog.sets:
            return None
        if self._since is not None and prepared.catalog == self.catalog:
            return self.snapshot
        started = perf_counter()
        self._served, self._since = prepared, now
        self._snapshots, self._by_compiled = {}, {}
        snapshot = self.snapshot
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

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` with everything that is served after every change, until the returned function is called."""
        token = object()
        self._subscribers[token] = callback

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
            revision=None if flag_set is None else _revision(flag_set),
            flags=0 if flag_set is None else len(flag_set.flags),
            last_success=health.last_success,
            stale=health.stale,
            from_disk=health.from_disk,
        )

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

    def _tell(self, snapshot: Snapshot) -> None:
        for subscriber in tuple(self._subscribers.values()):
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


def _revision(flag_set: FlagSet) -> str | None:
    revision = flag_set.metadata.get(REVISION_KEY)
    return None if revision is None else str(revision)
