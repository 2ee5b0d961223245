"""Flag sets of a cluster as the page shows them, each made once for each state of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagshard
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import ObjectKey, version_of
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.delivery.delivered import delivery_of
from controller.delivery.progress.rollouts import PromotedSets, progress_of
from controller.delivery.state.set_reading import read_sets
from controller.delivery.state.waits import waits_of_others
from controller.page.page_source import ShownSet
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.objects.meta import Resource
    from controller.delivery.state.set_state import SetState
    from controller.delivery.state.wait_model import Wait
    from controller.page.page_source import FlagChange
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.model import FlagSet
    from evaluator.resolving.resolve import CompiledFlagSet

MOST_KEPT: Final = 64
"""Most flag sets that are kept compiled; one with 10,000 flags takes some tens of megabytes."""
MOST_CALLERS: Final = 16
"""Most selections of namespaces whose states are kept."""


@dataclass(frozen=True, slots=True)
class _CompiledSet:
    """The flag set made of an object."""

    of: object
    """The versions of the objects that it was made of."""
    flag_set: FlagSet
    served: CompiledFlagSet


@dataclass(frozen=True, slots=True)
class KnownStates:
    """What was read of some namespaces at a version of their objects."""

    version: str
    states: tuple[SetState, ...]
    other_waits: tuple[Wait, ...]


class ShownSets:
    """Makes flag sets. Used in one thread."""

    def __init__(self, objects: Cache, unix_time: Callable[[], float]) -> None:
        self._objects = objects
        self._unix_time = unix_time
        self._promoted = PromotedSets(objects.get)
        self._compiled: LRUCache[ObjectKey, _CompiledSet] = LRUCache(MOST_KEPT)
        self._states: LRUCache[frozenset[str] | None, KnownStates] = LRUCache(MOST_CALLERS)

    def states(self, namespaces: frozenset[str] | None, version: str) -> KnownStates:
        """The states of the sets in some namespaces, whose objects are at this version; None: in all."""
        known = self._states.get(namespaces)
        if known is None or known.version != version:
            objects = [one for one in self._objects if namespaces is None or one.namespace in namespaces]
            states = read_sets(objects, datetime.fromtimestamp(self._unix_time(), UTC))
            known = KnownStates(version, tuple(states), tuple(waits_of_others(objects, states)))
            self._states[namespaces] = known
        return known

    def of(
        self, resource: Resource, state: SetState, last_changes: Callable[[FlagSet], Mapping[str, FlagChange]]
    ) -> ShownSet | None:
        """The flag set that an object delivers; None where it has none, or not all of its parts are there."""
        try:
            compiled = self._make(resource)
        except (InvalidSpecError, MissingShardsError):
            return None
        return ShownSet(
            f"{resource.namespace}/{resource.name}",
            compiled.flag_set,
            compiled.served,
            state.revision or compiled.flag_set.revision or "",
            state.address,
            last_changes(compiled.flag_set),
            state,
            resource.name,
        )

    def _make(self, resource: Resource) -> _CompiledSet:
        """Raises InvalidSpecError, MissingShardsError."""
        progress = progress_of(self._objects, resource, self._unix_time(), self._promoted)
        shards = [
            version_of(self._objects.get(ObjectKey(flagshard.KIND, resource.namespace, name)))
            for name in flagshard.names(resource.spec)
        ]
        of = (resource.uid, resource.generation, resource.status.get("providers"), tuple(shards), progress)
        known = self._compiled.get(resource.key)
        if known is not None and known.of == of:
            return known
        delivered = delivery_of(resource, flagshard.finder(self._objects.get, resource.namespace), progress)
        compiled = _CompiledSet(of, delivered.desired, compile_flag_set(delivered.flag_set))
        self._compiled[resource.key] = compiled
        return compiled
