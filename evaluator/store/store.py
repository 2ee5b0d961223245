"""What is served, swapped whole: a reader sees one catalog or the next, never a mix, by every protocol.

Everything that is known of a source arrives as one `Report`, its content and its health in one value.

Flag sets come in without holding up the loop: all that takes long happens in a thread, before and after the
swap.

Before: merging, compiling. After: letting go of the old set, which is hundreds of thousands of objects to
free, one flag at a time so that other threads run in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from evaluator.flags.catalog import Catalog, UnknownSourceError
from evaluator.flags.model import EMPTY, Bucketing, FlagSet, Json
from evaluator.host.times import timestamp
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set
from evaluator.store.snapshot import EVERYTHING, CompiledCatalog, SelectorKey, Snapshot, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evaluator.host.gc_policy import GcPolicy


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why what is served may be outdated."""

    reason: str
    since: float
    """Unix seconds: the last moment at which it was known to be current."""
    cause: str = ""
    """The CamelCase reason of the source's fault, for programs; may be empty."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a source holds."""

    flag_set: FlagSet | None
    """The flag set; None: the source has none, or none any more."""
    digest: str | None = None
    """Digest of the set, if the caller has it already: computing it takes long for a large set."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Values that the source wants in every evaluation context."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a source could not be read, or what it delivered could not be used."""

    reason: str
    cause: str = ""
    """See `Staleness.cause`."""


@dataclass(frozen=True, slots=True)
class Report:
    """The new state of one source."""

    source: str
    at: float
    """Unix seconds: when the source was asked; of a set from disk, when it was last known to be current."""
    content: Content | None = None
    """The new content; None: it is unchanged."""
    fault: Fault | None = None
    """The fault, if the source cannot be read: what is served of it may be outdated."""
    from_disk: bool = False
    """The content is its last good set, and the source has not been read since the start."""


@dataclass(frozen=True, slots=True)
class Health:
    """How current a source is."""

    last_success: float | None = None
    stale: Staleness | None = None
    from_disk: bool = False

    @property
    def stale_since(self) -> str | None:
        """Return since when the source is stale, as answers show it: RFC 3339 in UTC to the second."""
        if self.stale is None:
            return None
        return timestamp(datetime.fromtimestamp(self.stale.since, UTC))

    def with_content(self, source: str, content: Content) -> Report:
        """A report of other content of the source that leaves the health as it is."""
        fault = None if self.stale is None else Fault(self.stale.reason, self.stale.cause)
        known = self.last_success if self.stale is None else self.stale.since
        return Report(source, 0.0 if known is None else known, content, fault, self.from_disk)

    def after(self, report: Report) -> Health:
        """Return the health after a report. A continued fault keeps the time of its first report."""
        fault = report.fault
        if fault is None:
            return Health(report.at, None, report.from_disk)
        success = report.at if report.from_disk else self.last_success
        known = success if self.stale is None else self.stale.since
        since = report.at if known is None else min(known, report.at)
        return Health(
            None if success is None else min(success, since),
            Staleness(fault.reason, since, fault.cause),
            report.from_disk or self.from_disk,
        )


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedSource:
    """Status of one source: its content, and how current that is."""

    name: str
    digest: str | None = None
    """The digest of its content; None, as `revision` may be, if the source has delivered nothing."""
    revision: str | None = None
    flags: int = 0
    last_success: float | None = None
    """Unix seconds of the last moment at which the content was known to be current."""
    stale: Staleness | None = None
    """Set from a fault until the next success."""
    from_disk: bool = False
    """Whether the content is the last good set, and the source has not been read since the start."""


@dataclass(slots=True)
class Swaps:
    """Seconds that swaps have blocked the loop so far."""

    count: int = 0
    seconds: float = 0.0
    last: float = 0.0

    def add(self, seconds: float) -> None:
        """Add one swap."""
        self.count, self.seconds, self.last = self.count + 1, self.seconds + seconds, seconds


Subscriber: TypeAlias = Callable[[Snapshot], None]


class Store:
    """Holds the served catalog and notifies subscribers of changes, synchronously and in the order of
    subscription. Only `catalog_after` and `prepare` may run in a thread.
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
        self._health = {name: Health() for name in sources}
        self._contexts: dict[str, Mapping[str, Json]] = dict.fromkeys(sources, EMPTY)
        self.context: dict[str, Any] = {}
        """Context values that sources add to every evaluation, the last wins; changes in place."""
        self._subscribers: dict[object, tuple[Subscriber, Subscriber | None]] = {}
        self.swaps = Swaps()

    @property
    def catalog(self) -> Catalog:
        """The content of each source; the next catalog is derived from it."""
        return self._served.catalog

    @property
    def compiled_catalog(self) -> CompiledCatalog:
        """The catalog with its snapshots."""
        return self._served

    @property
    def known(self) -> bool:
        """Whether any source has delivered, or had a last good set on disk; its set may be empty."""
        return self._served.since is not None

    @property
    def settled(self) -> bool:
        """Whether every source has delivered, failed, or was served from disk."""
        return all(
            health.stale is not None or self.catalog.digest_of(name) is not None
            for name, health in self._health.items()
        )

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot of all flags; None before any source has delivered."""
        return self._served.snapshots.get(EVERYTHING) or self._snapshot(EVERYTHING)

    def view(self, key: SelectorKey, value: str) -> Snapshot | None:
        """Return the snapshot of a selector, the same object until the next swap; None if it finds none."""
        return self._served.snapshots.get((key, value)) or self._snapshot((key, value))

    def prepare(self, catalog: Catalog) -> CompiledCatalog:
        """Compile views in a thread, so that `apply` and the next answers need not do it on the loop."""
        if catalog is self.catalog:
            return self._served
        prepared = self._views(catalog)
        for view, served in {EVERYTHING: None, **dict(self._served.snapshots)}.items():
            snapshot = prepared.view(view)
            if snapshot is not None:
                if served is not None:
                    snapshot.compiled.borrow(served.compiled)
                snapshot.compiled.compile_all()
                _ = snapshot.digest
        _ = catalog.flag_sets, catalog.hidden_overrides
        return prepared

    def catalog_after(self, report: Report) -> Catalog:
        """Return the catalog after a report, the same if nothing changed. Slow. Raises UnknownSourceError."""
        since = self._health_of(report.source).after(report).stale_since
        if report.content is None:
            return self.catalog.with_staleness(report.source, since)
        flag_set, digest = report.content.flag_set, report.content.digest
        return self.catalog.with_source(report.source, flag_set, digest, stale_since=since)

    def apply(
        self, report: Report, prepared: CompiledCatalog | None = None, *, now: float
    ) -> Snapshot | None:
        """Serve what a report says from `now` on, and notify subscribers of what differs; a change of a
        source's staleness alone is none. `prepared` is made of `following(report)`, with nothing applied in
        between. Returns everything that is served: None while no source has delivered, an empty set once each
        has withdrawn its own. Raises UnknownSourceError.
        """
        started = perf_counter()
        prepared = prepared or self._views(self.catalog_after(report))
        settled, before = self.settled, self._served
        changed = self._swap(prepared, now)
        self._health[report.source] = self._health_of(report.source).after(report)
        changed = (report.content is not None and self._put_context(report)) or changed
        if (snapshot := self.snapshot) is None:
            return None
        if changed:
            self._notify(snapshot)
        elif self._served is not before or self.settled != settled:
            self._notify(snapshot, restated=True)
        if changed and self._served is not before:
            self.swaps.add(perf_counter() - started)
        return snapshot

    def _swap(self, prepared: CompiledCatalog, now: float) -> bool:
        """Swap the catalog; return whether the content changed, apart from staleness marks."""
        catalog = prepared.catalog
        if (not self.known and not catalog.sets) or (self.known and catalog == self.catalog):
            return False
        same = self.known and catalog.holds_as(self.catalog)
        prepared.serve(self._served.since if same and self._served.since is not None else now)
        self._served = prepared
        return not same

    def _put_context(self, report: Report) -> bool:
        """Store the context values of the source; return whether they changed."""
        context = EMPTY if report.content is None else report.content.context
        if self._contexts[report.source] == context:
            return False
        self._contexts[report.source] = context
        self.context.clear()
        for context_of_source in self._contexts.values():
            self.context.update(context_of_source)
        return True

    def served_objects(self) -> list[object]:
        """Return the parts of the served sets, for a caller that frees them after the next swap."""
        compiled = [snapshot.compiled for snapshot in set(self._served.snapshots.values())]
        flags = [flag for one in compiled for flag in one.flag_set.flags.values()]
        return [*flags, *(flag for one in compiled for flag in one.compiled.values())]

    def subscribe(self, callback: Subscriber, restated: Subscriber | None = None) -> Callable[[], None]:
        """Call `callback` with everything that is served after every change, until the returned function is
        called. `restated` is called instead where only a source's staleness has changed.
        """
        token = object()
        self._subscribers[token] = callback, restated

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def health(self, source: str) -> Health:
        """Return how current a source is. Raises UnknownSourceError."""
        return self._health_of(source)

    def status(self, source: str) -> ServedSource:
        """Return the status of one source. Raises UnknownSourceError."""
        health = self._health_of(source)
        flag_set = self.catalog.of_source(source)
        return ServedSource(
            source,
            digest=self.catalog.digest_of(source),
            revision=None if flag_set is None else flag_set.revision,
            flags=0 if flag_set is None else len(flag_set.flags),
            last_success=health.last_success,
            stale=health.stale,
            from_disk=health.from_disk,
        )

    @property
    def statuses(self) -> tuple[ServedSource, ...]:
        """Return the status of each source, in order of priority."""
        return tuple(self.status(name) for name in self._health)

    @property
    def last_success(self) -> float | None:
        """Unix seconds at which all content was last known to be current; None before the first success."""
        moments = (health.last_success for health in self._health.values())
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def longest_staleness(self) -> Staleness | None:
        """The staleness of the source that is stale for longest."""
        stalenesses = (health.stale for health in self._health.values() if health.stale is not None)
        return min(stalenesses, key=lambda stale: stale.since, default=None)

    def age(self, now: float) -> float | None:
        """Seconds since all content was last known to be current; None before the first success."""
        success = self.last_success
        return None if success is None else max(0.0, now - success)

    def compile(self, flag_set: FlagSet) -> CompiledFlagSet:
        """Compile a flag set with this store's settings; may be called in a thread."""
        return compile_flag_set(flag_set, bucketing=self._bucketing, expose_bucketing=self._expose_bucketing)

    def _views(self, catalog: Catalog) -> CompiledCatalog:
        return CompiledCatalog(catalog, self.compile)

    def _snapshot(self, view: View) -> Snapshot | None:
        return self._served.view(view) if self.known else None

    def _notify(self, snapshot: Snapshot, *, restated: bool = False) -> None:
        for changed, again in tuple(self._subscribers.values()):
            subscriber = again if restated else changed
            if subscriber is None:
                continue
            try:
                subscriber(snapshot)
            except Exception:
                log.exception("a subscriber failed on %s", snapshot.digest)

    def _health_of(self, source: str) -> Health:
        if source not in self._health:
            raise UnknownSourceError(f"no source is named {source!r}; there are {tuple(self._health)}")
        return self._health[source]


T = TypeVar("T")


class SnapshotSwapper:
    """Applies reports to a store that is being served, one at a time."""

    def __init__(self, store: Store, clock: Callable[[], float], gc_policy: GcPolicy | None = None) -> None:
        """clock: Unix seconds. gc_policy: the process's policy for garbage collection, if it has one."""
        self.store = store
        self._clock = clock
        self._gc_policy = gc_policy
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[[], T]) -> T:
        """Run `work`, which decodes a flag set, in a thread; return its result."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[], T]) -> T:
        with nullcontext() if self._gc_policy is None else self._gc_policy.pause_full_collections():
            return work()

    async def apply(self, report: Report) -> Snapshot | None:
        """Prepare a report in a thread, then call `Store.apply`; return before any other task runs."""
        async with self._turn:
            if report.content is None and self.store.catalog_after(report) is self.store.catalog:
                return self.store.apply(report, now=self._clock())
            prepared = await self._prepare(report)
            objects = self.store.served_objects()
            snapshot = self.store.apply(report, prepared, now=self._clock())
            asyncio.get_running_loop().run_in_executor(None, self._free, objects)
            return snapshot

    async def _prepare(self, report: Report) -> CompiledCatalog:
        try:
            return await self.read(lambda: self.store.prepare(self.store.catalog_after(report)))
        except Exception:
            if report.content is not None:
                raise
            # The health is applied anyway; the next report tries again.
            log.exception("answers cannot say whether %s is stale", report.source)
            return self.store.compiled_catalog

    def _free(self, objects: list[object]) -> None:
        free_one_by_one(objects)
        if self._gc_policy is not None:
            self._gc_policy.settle()


def free_one_by_one(objects: list[object]) -> None:
    """Free the objects one at a time: freed together, they would block every other thread for long."""
    while objects:
        objects.pop()


def run_in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do `work` in a thread, then call `done` with its result on the running loop, which handles an error."""

    def end(future: asyncio.Future[T]) -> None:
        if not future.cancelled():
            done(future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(end)
