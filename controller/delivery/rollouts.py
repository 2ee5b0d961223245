"""The FlagRollouts of an object with flags, as every process that delivers applies them. Pure.

Of the generation of `fractional` of a set in a rollout: what is served, what waits, and whom a change moves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagrollout import KIND, PROMOTE, FlagRolloutSpec, names_candidate
from controller.api.meta import ObjectKey, Resource
from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus, ServedRollout, rollout_entries
from controller.delivery.changed_flags import answers, numbered_users
from controller.delivery.delivered import KEPT_BOUNDS
from controller.delivery.object_bounds import ROLLOUTS, age
from controller.delivery.overrides import (
    BY_FLAG_SET,
    BY_WRITER,
    FLAG_KINDS,
    names_of,
    override_progress,
    set_name,
)
from controller.runtime.cache import Cache, Index
from evaluator.flags.accept import Progress
from evaluator.flags.candidates import candidate_digest
from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, Flag, FlagSet, State
from evaluator.flags.references import Expander, RuleTooLarge
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import CandidateReach, CohortReach, Exposure, Rollout, reach_of
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evaluator.flags.overrides import Override


_USERS: Final = 300
_MOST_FLAGS: Final = 50
"""Most flags that are evaluated for a text."""


def generation_of(flag_set: FlagSet) -> str | None:
    """Return the generation that a set pins; None: each evaluator has its own, v2 unless it is set."""
    pinned = flag_set.metadata.get(BUCKETING_KEY)
    return str(pinned) if pinned in set(Bucketing) else None


def change_text(flag_set: FlagSet, before: str | None, after: str | None) -> str:
    """Return how many sample users a change of a set's generation moves; empty where nothing changes."""
    old, new = (Bucketing.V3 if name == Bucketing.V3 else Bucketing.V2 for name in (before, after))
    if old is new:
        return ""
    drawing = dict(list(_drawing_flags(flag_set))[:_MOST_FLAGS])
    metadata = {key: value for key, value in flag_set.metadata.items() if key != BUCKETING_KEY}
    part = replace(flag_set, flags=drawing, metadata=metadata, others=())
    users = list(numbered_users(_USERS))
    sides = [compile_flag_set(part, bucketing=generation) for generation in (old, new)]
    moved = {
        number
        for key in drawing
        for number, pair in enumerate(zip(*(answers(side, key, users, 0) for side in sides), strict=True))
        if pair[0] != pair[1]
    }
    others = f"{len(moved)} of {_USERS} sample users get another variant of a flag"
    return f"from {old.value} to {new.value}: {others}"


def _drawing_flags(flag_set: FlagSet) -> Iterator[tuple[str, Flag]]:
    expander = Expander(flag_set.evaluators)
    for key, flag in flag_set.flags.items():
        if flag.state is not State.ENABLED or flag.targeting is ABSENT:
            continue
        try:
            rule = expander.expand(flag.targeting)
        except RuleTooLarge:
            continue
        if '"fractional"' in json.dumps(rule):
            yield key, flag


def pending_text(desired: FlagSet, served: FlagSet) -> str:
    """Return that a change of the generation waits for candidates; empty where none does."""
    text = change_text(desired, generation_of(served), generation_of(desired))
    return text and f"The change of bucketing {text}. It waits until the exposed candidates have ended"


def drawn_text(generation: str | None, *, unknown_followers: bool) -> str:
    """Return by which generation users are drawn, where not all followers are known to agree.
    `unknown_followers`: whether some send no receipts; the proxy cannot know their generation.
    """
    if generation is not None and not unknown_followers:
        return ""
    assumed = "" if generation is not None else ", which is assumed as the set pins none"
    text = f"Users are drawn by bucketing {generation or Bucketing.V2.value}{assumed}"
    others = "; followers without receipts, such as in-process providers, may draw them by another"
    return text + (others if unknown_followers else "")


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
    lambda resource: (entry.shard for entry in rollout_entries(resource.status)),
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
    """The FlagRollouts of an object with flags that count, without deleted ones; the oldest first."""
    listed = {
        resource.key: resource
        for name in names_of(target)
        for resource in ROLLOUTS.oldest(rollouts_naming(objects, target.namespace, name))
    }
    return sorted(listed.values(), key=age)


def rollouts_naming(objects: Cache, namespace: str, name: str) -> list[Resource]:
    """The FlagRollouts that name a flag set so, without deleted ones, in no order."""
    listed = objects.find(ROLLOUTS_BY_FLAG_SET, namespace, name)
    return [resource for resource in listed if not resource.deleting]


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
        rollout for rollout in listed if rollout.name not in names and (rollout.gone or wait_for_unknown)
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


def rollouts_of_set(
    rollouts: Iterable[Resource], names: Iterable[str]
) -> list[tuple[Resource, FlagRolloutSpec]]:
    """The FlagRollouts that name a flag set by one of its names, the oldest first, with their specs; those
    that cannot be read, or are being deleted, are left out.
    """
    return sorted(_read_specs(rollouts, frozenset(names)), key=lambda pair: (pair[0].created, pair[0].name))


def _read_specs(
    rollouts: Iterable[Resource], names: frozenset[str]
) -> Iterator[tuple[Resource, FlagRolloutSpec]]:
    for rollout in rollouts:
        if set_name(rollout) in names and not rollout.deleting:
            try:
                yield rollout, parse_spec(FlagRolloutSpec, rollout)
            except InvalidSpecError:
                continue


def _rollouts_under_way(resources: Iterable[Resource]) -> Iterator[Rollout]:
    """Yield the rollouts with promoted definitions, whose content is not read yet."""
    for resource in resources:
        status = FlagRolloutStatus.of(resource)
        promoted = status.promoted
        if promoted is None or promoted.shard is None:
            continue
        patterns = resource.spec.get("flags")
        yield Rollout(
            resource.name,
            tuple(map(str, patterns)) if isinstance(patterns, list) else (),
            _UNKNOWN,
            promoted.shard,
            tuple(map(_exposure, status.candidates)),
        )


def _exposure(candidate: CandidateStatus) -> Exposure:
    everyone = candidate.phase == _PROMOTING
    exposed = everyone or (candidate.step is not None and {} not in candidate.withheld)
    return Exposure(
        candidate.digest,
        candidate.flags,
        Cohort(round((candidate.share or 0.0) * 100), candidate.audiences, candidate.withheld)
        if exposed
        else None,
        candidate.salt or "",
        candidate.step_text or "",
        everyone=everyone,
        bucketing=None if candidate.bucketing is None else Bucketing(candidate.bucketing),
    )


def _listed_rollouts(target: Resource) -> Iterator[Rollout]:
    """Yield the rollouts that the status of an object names. Of a deleted one, the promoted definitions are
    still served in place of the definitions that it names, and where it names none, of any.
    """
    requested = target.annotations.get(PROMOTE, "")
    entries = rollout_entries(target.status)
    for name, shard in dict.fromkeys((entry.name, entry.shard) for entry in entries):
        held = [entry for entry in entries if (entry.name, entry.shard) == (name, shard) and entry.flags]
        exposures = (
            Exposure(entry.candidate or candidate_digest(entry.flags), entry.flags) for entry in held
        )
        kept = tuple(one for one in exposures if not names_candidate(requested, one.candidate))
        if kept or not held:
            yield Rollout(name, ("*",), _UNKNOWN, shard, kept, gone=bool(held), listed=True)


def served_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> tuple[ServedRollout, ...]:
    """Return the status entries of the rollouts of `desired`: one for each candidate, or a single one without
    a candidate. A deleted rollout whose flags have all changed is left out.
    """
    served: list[ServedRollout] = []
    for rollout in rollouts:
        entries = [
            entry
            for reached in reach_of(desired, rollout)
            if (entry := _entry(desired, rollout, reached)) is not None
        ]
        if not entries and not rollout.gone:
            entries = [ServedRollout(name=rollout.name, shard=rollout.promoted_name, phase="Idle")]
        served += entries
    return tuple(served)


def _entry(desired: FlagSet, rollout: Rollout, reached: CandidateReach) -> ServedRollout | None:
    """Return the entry of a candidate; None where all of its flags have changed."""
    exposure, flags = reached.exposure, dict(reached.flags)
    if exposure is not None:
        # A flag that is absent or disabled has not changed: it is held once it is back.
        flags |= {key: wanted for key, wanted in exposure.flags.items() if _is_away(desired.flags.get(key))}
    if not flags:
        return None
    entry = ServedRollout(
        name=rollout.name,
        shard=rollout.promoted_name,
        flags=flags,
        phase="Abandoned" if rollout.gone else reached.reach.value,
    )
    if exposure is None:
        return entry
    entry = entry.model_copy(update={"candidate": exposure.candidate})
    if reached.reach is CohortReach.EVERYONE:
        return entry.model_copy(update={"step": exposure.step, "share": "100"})
    if exposure.cohort is not None and reached.reach is CohortReach.EXPOSED:
        return entry.model_copy(update={"step": exposure.step, "share": exposure.cohort.percent})
    return entry


def disabled_baselines(served: Iterable[ServedRollout], rollouts: Iterable[Rollout]) -> tuple[str, ...]:
    """Return the keys of the flags in rollouts whose promoted definition is disabled, sorted: whoever does
    not get the new one has the application's own default.
    """
    promoted = {rollout.promoted_name: rollout.promoted.flags for rollout in rollouts}
    keys = {
        key
        for entry in served
        if entry.phase != "Everyone"
        for key in entry.flags
        if (flag := promoted[entry.shard].get(key)) is not None and flag.state is State.DISABLED
    }
    return tuple(sorted(keys))


def _is_away(flag: Flag | None) -> bool:
    return flag is None or flag.state is State.DISABLED
