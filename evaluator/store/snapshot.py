"""The content of one swap: a catalog and its compiled views. Pure."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from evaluator.flags.catalog import Catalog
from evaluator.flags.model import FlagSet
from evaluator.resolving.resolution import FlagType, Resolution, flag_type
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
