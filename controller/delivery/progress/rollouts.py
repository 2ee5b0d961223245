"""The FlagRollouts of an object with flags, as every process that delivers applies them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.objects.meta import ObjectKey
from controller.api.rollouts.flagrollout import KIND, PROMOTE
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.api.rollouts.served_rollout import ServedRollout, rollout_entries
from controller.delivery.delivered import KEPT_BOUNDS
from controller.delivery.progress.overrides import (
    BY_FLAG_SET,
    BY_WRITER,
    FLAG_KINDS,
    names_of,
    override_progress,
    set_name,
)
from controller.runtime.objects.cache import Index
from evaluator.flags.accept import Progress
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import FlagSet
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import Reach, Rollout, reach_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.overrides import Override

ROLLOUTS_BY_FLAG_SET: Final = Index(
    "FlagRollout by flag set", frozenset({KIND}), lambda resource: (set_name(resource),)
)
ROLLOUTS_BY_SHARD: Final = Index(
    "FlagRollout by promoted definitions",
    frozenset({KIND}),
    lambda resource: (rollout.promoted_name for rollout in _rollouts_under_way((resource,))),
)
TARGETS_BY_SHARD: Final = Index(
    "objects with flags by promoted definitions",
    FLAG_KINDS,
    lambda resource: (entry["shard"] for entry in rollout_entries(resource.status)),
)
"""By their status, which also names rollouts that are deleted, or not known yet."""
PROGRESS_INDEXES: Final = (BY_FLAG_SET, BY_WRITER, ROLLOUTS_BY_FLAG_SET, ROLLOUTS_BY_SHARD, TARGETS_BY_SHARD)
"""The indexes of `progress_of` and of the watches that its result depends on."""
_UNKNOWN: Final = FlagSet()
_PROMOTING: Final = "Promoting"


class PromotedSets:
    """Promoted definitions. Their FlagShards never change, so each is parsed once, when it is first read, and
    kept while an object is delivered with it.
    """

    def __init__(self, find: Callable[[ObjectKey], Resource | None]) -> None:
        """`find`: an object by its key."""
        self._find = find
        self._kept: dict[ObjectKey, dict[str, tuple[str, FlagSet]]] = {}

    def of(self, target: ObjectKey, names: Iterable[str]) -> dict[str, FlagSet]:
        """The definitions for an object with flags, by the names of FlagShards, as far as they are there."""
        known, kept = self._kept.get(target, {}), {}
        for name in names:
            shard = self._find(ObjectKey(flagshard.KIND, target.namespace, name))
            if shard is not None:
                same = name in known and known[name][0] == shard.uid
                kept[name] = known[name] if same else (shard.uid, promoted_set(shard))
        if kept:
            self._kept[target] = kept
        else:
            self.forget(target)
        return {name: flag_set for name, (_, flag_set) in kept.items()}

    def forget(self, target: ObjectKey) -> None:
        """Drop what is kept for an object."""
        self._kept.pop(target, None)


def promoted_set(shard: Resource) -> FlagSet:
    """The promoted definitions in a FlagShard, which is parsed when they are first read."""
    document = _Document(shard)
    return FlagSet(_Part(document, "flags"), _Part(document, "evaluators"))


class _Document:
    """A FlagShard that is parsed when its flags are first read, which may be in a thread: many take long."""

    def __init__(self, shard: Resource) -> None:
        self._shard: Resource | None = shard
        self._name = shard.name

    @cached_property
    def flag_set(self) -> FlagSet:
        shard, self._shard = self._shard, None
        document = json.dumps(None if shard is None else shard.spec.get("flagSpec")).encode()
        return parse(document, file=self._name, bounds=KEPT_BOUNDS).flag_set


class _Part(Mapping[str, Any]):
    """The flags or the evaluators of a document."""

    def __init__(self, document: _Document, name: str) -> None:
        self._document = document
        self._name = name

    @property
    def _mapping(self) -> Mapping[str, Any]:
        parsed: Mapping[str, Any] = getattr(self._document.flag_set, self._name)
        return parsed

    def __getitem__(self, key: str) -> Any:
        return self._mapping[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)


def rollouts_for(objects: Cache, target: Resource) -> list[Resource]:
    """The FlagRollouts of an object with flags, without deleted ones; the oldest first."""
    listed = {
        resource.key: resource
        for name in names_of(target)
        for resource in objects.find(ROLLOUTS_BY_FLAG_SET, target.namespace, name)
        if not resource.deleting
    }
    return sorted(listed.values(), key=lambda resource: (resource.created, resource.name))


def progress_of(
    objects: Cache,
    target: Resource,
    now: float,
    promoted: PromotedSets,
    *,
    wait_for_unknown: bool = False,
    overrides: tuple[Override, ...] | None = None,
) -> Progress:
    """Return the progress of an object with flags at `now`, in Unix seconds. `wait_for_unknown`: hold changes
    back while the status of the object names a FlagRollout that is not in `objects`: it may be newer than
    these, as each kind has a watch of its own. `overrides` are all that count; None: those in force.
    """
    overridden = override_progress(objects, target, now) if overrides is None else Progress(overrides)
    rollouts = [*_rollouts_under_way(rollouts_for(objects, target))]
    names = {rollout.name for rollout in rollouts}
    listed = _listed_rollouts(target)
    rollouts += [
        rollout for rollout in listed if rollout.name not in names and (rollout.only or wait_for_unknown)
    ]
    if not rollouts:
        promoted.forget(target.key)
        return overridden
    shards = [rollout.promoted_name for rollout in rollouts]
    sets = promoted.of(target.key, shards)
    return replace(
        overridden,
        rollouts=tuple(
            replace(rollout, promoted=sets[shard])
            for rollout, shard in zip(rollouts, shards, strict=True)
            if shard in sets
        ),
        missing=tuple(shard for shard in shards if shard not in sets),
    )


def order_of(resource: Resource | None) -> object:
    """Return the part of a FlagRollout that decides what is delivered, for comparison."""
    if resource is None or resource.deleting:
        return None
    return resource.uid, set_name(resource), next(_rollouts_under_way((resource,)), None)


def _rollouts_under_way(resources: Iterable[Resource]) -> Iterator[Rollout]:
    """Yield the rollouts with promoted definitions, whose content is not read yet."""
    for resource in resources:
        status = FlagRolloutStatus.of(resource)
        promoted, candidate = status.promoted, status.candidate
        if promoted is None or promoted.shard is None:
            continue
        patterns = resource.spec.get("flags")
        everyone = status.phase == _PROMOTING
        exposed = candidate is not None and (everyone or status.step is not None)
        yield Rollout(
            resource.name,
            tuple(map(str, patterns)) if isinstance(patterns, list) else (),
            _UNKNOWN,
            promoted.shard,
            candidate.digest if candidate is not None and exposed else "",
            Cohort(round((status.share or 0.0) * 100), status.audiences),
            status.salt or "",
            status.step_text or "",
            everyone=everyone,
        )


def _listed_rollouts(target: Resource) -> Iterator[Rollout]:
    """Yield the rollouts that the status of an object names. Of a deleted one, the promoted definitions are
    still served in place of one candidate; where no flag differed, they are in place of any.
    """
    for entry in rollout_entries(target.status):
        candidate = entry["candidate"]
        if not candidate or target.annotations.get(PROMOTE) != candidate:
            yield Rollout(entry["name"], ("*",), _UNKNOWN, entry["shard"], only=candidate, listed=True)


def served_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> tuple[tuple[ServedRollout, int], ...]:
    """Return the status entries of the rollouts of `desired`, each with the number of flags that differ. A
    deleted rollout whose flags have changed is left out.
    """
    served = []
    for rollout in rollouts:
        candidate, reach = reach_of(desired, rollout)
        if rollout.only and reach is Reach.IDLE:
            continue
        fields: dict[str, str] = {"phase": "Abandoned" if rollout.only else reach.value}
        if candidate.digest:
            fields["candidate"] = candidate.digest
        if reach in (Reach.EXPOSED, Reach.EVERYONE):
            fields |= {"step": rollout.step, "share": "100" if rollout.everyone else rollout.cohort.percent}
        entry = ServedRollout.model_validate({"name": rollout.name, "shard": rollout.promoted_name, **fields})
        served.append((entry, len(candidate.keys)))
    return tuple(served)
