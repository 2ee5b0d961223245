"""Flag sets of a cluster as the page shows them, each made once for each state of its objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagset, flagshard
from controller.api.flagset_status import FlagSetStatus
from controller.api.flagsource import source_address
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import ObjectKey, version_of
from controller.api.openfeature.featureflagconfiguration import FeatureFlagStatus, MissingShardsError
from controller.delivery.delivered import delivery_of
from controller.delivery.progress.override_words import override_texts
from controller.delivery.progress.rollouts import PromotedSets, progress_of
from controller.page.delivery.proxy_members import moment
from controller.page.flag_facts import rollout_sentences
from controller.page.page_source import ShownSet
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.objects.meta import Resource
    from controller.page.page_source import FlagChange
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.accept import Progress
    from evaluator.flags.model import FlagSet
    from evaluator.resolving.resolve import CompiledFlagSet

MOST_KEPT: Final = 64
"""Most flag sets that are kept compiled; one with 10,000 flags takes some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class _CompiledSet:
    """The flag set made of an object."""

    of: object
    """The versions of the objects that it was made of."""
    flag_set: FlagSet
    served: CompiledFlagSet
    in_force: Mapping[str, str]


class ShownSets:
    """Makes flag sets. Used in one thread."""

    def __init__(self, objects: Cache, unix_time: Callable[[], float]) -> None:
        self._objects = objects
        self._unix_time = unix_time
        self._promoted = PromotedSets(objects.get)
        self._compiled: LRUCache[ObjectKey, _CompiledSet] = LRUCache(MOST_KEPT)

    def of(
        self, resource: Resource, last_changes: Callable[[FlagSet], Mapping[str, FlagChange]]
    ) -> ShownSet | None:
        """The flag set that an object delivers; None where it has none, or not all of its parts are there."""
        try:
            compiled = self._make(resource)
        except (InvalidSpecError, MissingShardsError):
            return None
        flag_set = self._objects.get(flagset.writer_key(resource))
        source_key = None if flag_set is None else flagset.source_key(flag_set)
        source = None if source_key is None else self._objects.get(source_key)
        status, written = FlagSetStatus.of(flag_set), FeatureFlagStatus.of(resource)
        return ShownSet(
            f"{resource.namespace}/{resource.name}",
            compiled.flag_set,
            compiled.served,
            written.revision or compiled.flag_set.revision or "",
            "" if source is None else source_address(source) or "",
            next((moment(entry.applied_at) for entry in status.history), None),
            last_changes(compiled.flag_set),
            compiled.in_force,
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
        compiled = _CompiledSet(
            of,
            delivered.desired,
            compile_flag_set(delivered.flag_set),
            _sentences_in_force(delivered.flag_set, progress),
        )
        self._compiled[resource.key] = compiled
        return compiled


def _sentences_in_force(flag_set: FlagSet, progress: Progress) -> dict[str, str]:
    """A sentence on each flag that an override or a rollout decides."""
    flags = sorted({override.flag for override in progress.overrides})
    sentences = {
        flag: override_texts(
            flag_set,
            replace(
                progress,
                overrides=tuple(override for override in progress.overrides if override.flag == flag),
            ),
        )
        for flag in flags
    }
    return rollout_sentences(flag_set) | {flag: texts[0] for flag, texts in sentences.items() if texts}
