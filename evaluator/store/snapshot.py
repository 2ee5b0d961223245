"""The content of one swap: a catalog and its compiled views, and the one way to evaluate. Pure.

A query about a snapshot gives resolutions, and every observer sees each of them.

The protocols of `evaluator.server` decode requests into queries and encode resolutions into responses.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from evaluator.flags.catalog import FLAG_SET_ID, Catalog
from evaluator.flags.model import EMPTY, FlagSet, Json
from evaluator.resolving.resolution import FlagType, Resolution, flag_type
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


SelectorKey: TypeAlias = Literal["source", "flagSetId"]
"""What a selector may select by."""

EVERYTHING: Final = None
"""The view without a selector."""

View: TypeAlias = tuple[SelectorKey, str] | None


class Snapshot:
    """A flag set as served between two swaps; equal only to itself."""

    def __init__(self, compiled: CompiledFlagSet, catalog: Catalog, served_since: float) -> None:
        self.compiled = compiled
        self.served_since = served_since
        """Unix seconds."""
        self.kept: defaultdict[object, dict[Resolution, Any]] = defaultdict(dict)
        """Caches of other modules, such as encoded answers, by cache key; dropped with the snapshot."""
        self._catalog = catalog

    @property
    def flag_set(self) -> FlagSet:
        """The flag set's definitions."""
        return self.compiled.flag_set

    @cached_property
    def digest(self) -> str:
        """Digest of the content without provenance; flags that lose to another source's flag count, too."""
        return self._catalog.digest_of_set(self.flag_set)

    @cached_property
    def keys(self) -> Sequence[tuple[str, FlagType | None]]:
        """Return all keys in order, each with None for a type."""
        return [(key, None) for key in self.compiled.keys_in_order]

    @cached_property
    def typed_keys(self) -> Sequence[tuple[str, FlagType | None]]:
        """Keys in order, each with the type of its default variant; flags without a type are left out."""
        typed = ((key, flag_type(self.flag_set.flags[key])) for key in self.compiled.keys_in_order)
        return [(key, kind) for key, kind in typed if kind is not None]

    @property
    def revision(self) -> str | None:
        """The source revision that last changed the content, where the set names one."""
        return self.flag_set.revision


class CompiledCatalog:
    """A catalog with a snapshot of each view that was asked for; one is served from one swap to the next."""

    def __init__(self, catalog: Catalog, compile_set: Callable[[FlagSet], CompiledFlagSet]) -> None:
        self.catalog = catalog
        self.since: float | None = None
        """Unix seconds from which it is served; None if it is not served, or no source has delivered."""
        self._compile = compile_set
        self.snapshots: dict[View, Snapshot] = {}
        """Snapshots by view; selectors that find nothing are not kept."""
        self._by_set: dict[int, Snapshot] = {}

    def serve(self, since: float) -> None:
        """Mark the catalog as served since `since`."""
        self.since = since
        for snapshot in self.snapshots.values():
            snapshot.served_since = since

    def view(self, view: View) -> Snapshot | None:
        """Return the snapshot of the selected flags; None if nothing has that name."""
        snapshot = self.snapshots.get(view)
        if snapshot is None and (selected := self._select(view)) is not None:
            # Every view of a single source is the source's whole set, so it is compiled once.
            snapshot = self._by_set.get(id(selected))
            snapshot = snapshot or Snapshot(self._compile(selected), self.catalog, self.since or 0.0)
            self._by_set[id(selected)] = self.snapshots[view] = snapshot
        return snapshot

    def _select(self, view: View) -> FlagSet | None:
        if view is EVERYTHING:
            return self.catalog.everything
        key, value = view
        if key == "source":
            return self.catalog.of_source(value)
        return self.catalog.of_flag_set(value)


NO_FLAGS: Final = Snapshot(compile_flag_set(FlagSet()), Catalog(()), 0.0)
"""The snapshot of a selector that finds nothing."""


class Query:
    """A request for one flag or all flags of a snapshot, for one evaluation context."""

    __slots__ = ("_context", "_read", "key", "now", "snapshot", "wanted")

    def __init__(
        self,
        snapshot: Snapshot,
        key: str | None,
        wanted: FlagType | None,
        read: Callable[[], Mapping[str, Json]],
        now: int,
    ) -> None:
        """key: None asks for every flag. wanted: None takes a value of any type. now: Unix seconds. read:
        decodes the context; called at most once, and only if a rule or an observer needs it.
        """
        self.snapshot = snapshot
        self.key = key
        self.wanted = wanted
        self.now = now
        self._read = read
        self._context: Mapping[str, Json] | None = None

    @property
    def context(self) -> Mapping[str, Json]:
        """The evaluation context; raises what decoding it raises."""
        if self._context is None:
            self._context = self._read()
        return self._context

    def flag_set_id(self, resolution: Resolution) -> str | None:
        """Return the `flagSetId` of the flag that was evaluated."""
        set_id = resolution.metadata.get(FLAG_SET_ID)
        return set_id if isinstance(set_id, str) else self.snapshot.flag_set.flag_set_id


Observer: TypeAlias = "Callable[[Query, str, Resolution], None]"
"""(query, flag key, resolution): called with every evaluation before it is answered; must not raise."""


def evaluate(query: Query, observers: Sequence[Observer] = ()) -> Resolution:
    """Evaluate the flag that `query` names. Raises only what decoding the context raises."""
    key, flags = query.key, query.snapshot.compiled
    if key is None:
        raise ValueError("the query asks for every flag")
    # Decoding the context is most of a request's cost, and most flags answer every context alike.
    flag = flags.compiled.get(key)
    context = query.context if flag is None or flag.run is not None else EMPTY
    resolution = resolve(flags, key, query.wanted, context, query.now)
    for observe in observers:
        observe(query, key, resolution)
    return resolution


def evaluate_all(
    query: Query, observers: Sequence[Observer] = (), *, typed: bool = False
) -> Iterator[tuple[str, Resolution]]:
    """Evaluate every flag in key order, each when the caller asks for the next one, disabled and failing
    flags too. typed: evaluate each flag as the type of its default variant, and leave out those without a
    type.
    """
    snapshot, context, now = query.snapshot, query.context, query.now
    flags = snapshot.compiled
    for key, wanted in snapshot.typed_keys if typed else snapshot.keys:
        resolution = resolve(flags, key, wanted, context, now)
        for observe in observers:
            observe(query, key, resolution)
        yield key, resolution
