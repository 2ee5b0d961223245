"""The last good flag set, read back from the cluster, and what FlagRollouts record before it is replaced.
Pure.

A flag set is held back until FlagRollouts have recorded the present definitions of the flags that it changes:
they serve these to everybody while the new ones are rolled out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from controller.api import featureflagconfiguration, flagshard
from controller.api.featureflagconfiguration import MissingShardsError, flag_document
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagrollout import FlagRolloutSpec
from controller.api.flagset import KIND, FlagSetSpec, target_name
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import ObjectKey, Resource
from controller.api.rollout_status import FlagRolloutStatus, rollout_entries
from controller.api.status import STALLED, TRUE
from controller.delivery.rollouts import promoted_set, rollouts_for
from controller.flagsets.dependencies import ready
from controller.flagsets.stage import BY_OWNER
from controller.runtime.setbacks import Waiting
from evaluator.flags.candidates import matches
from evaluator.flags.canonical import digest
from evaluator.flags.diff import ChangedPart, diff
from evaluator.flags.merge import parse
from evaluator.flags.model import DIGEST_KEY, FlagSet, State
from evaluator.flags.rollout_rules import Incompatibility
from evaluator.flags.text import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from controller.runtime.cache import Cache


_SETS: Final = frozenset({featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND})


@dataclass(frozen=True, slots=True)
class LastDelivered:
    """What was delivered before."""

    flag_set: FlagSet
    """The flag set with its provenance and its held flags."""
    edited: str = ""
    """`FeatureFlagConfiguration shop`, where that object is not what the FlagSet wrote."""


def objects_written_by(resource: Resource, spec: FlagSetSpec, objects: Cache) -> list[Resource]:
    """The objects with flags that the FlagSet wrote, those of its present target name first."""
    written = [
        known
        for known in objects.find(BY_OWNER, resource.namespace, resource.name)
        if known.key.kind in _SETS
    ]
    name = spec.target.name or resource.name
    return sorted(
        written, key=lambda known: (known.name != name, known.key.kind != featureflagconfiguration.KIND)
    )


def last_applied(written: Iterable[Resource], objects: Cache) -> LastDelivered | None:
    """What the first unedited object of `written` delivers, else the first edited one, else None."""
    edited: LastDelivered | None = None
    for known in written:
        flag_set = read_back(known, objects)
        if flag_set is None:
            continue
        if flag_set.metadata.get(DIGEST_KEY) == digest(flag_set):
            return LastDelivered(flag_set)
        edited = edited or LastDelivered(flag_set, f"{known.key.kind} {known.name}")
    return edited


def read_back(written: Resource, objects: Cache) -> FlagSet | None:
    """Return the flag set that an object delivers, or None if the object is incomplete."""
    try:
        document = flag_document(written, flagshard.finder(objects.get, written.namespace))
    except (InvalidSpecError, MissingShardsError):
        return None
    parsed = parse(document.content, file=f"{written.key.kind}/{written.name}.json")
    return None if parsed.whole_bad else parsed.flag_set


def needed_sets(
    resource: Resource, spec: FlagSetSpec, objects: Cache, built: Mapping[str, FlagSet]
) -> tuple[FlagSet, ...]:
    """Return what the FlagSets that this one depends on deliver, whose flags its rules may need. Those in
    `built`, by digest, need not be read back, which takes long for large sets. Raises Waiting where one is
    not what the status of its FlagSet says.
    """
    found = []
    for wanted, name in needed_digests(resource, spec, objects):
        if wanted in built:
            found.append(built[wanted])
            continue
        dependency = objects.get(ObjectKey(KIND, resource.namespace, name))
        written = [] if dependency is None else objects.find(BY_OWNER, resource.namespace, name)
        sets = (read_back(known, objects) for known in written if known.key.kind in _SETS)
        good = (one for one in sets if one is not None and one.metadata.get(DIGEST_KEY) == wanted)
        if (flag_set := next(good, None)) is None:
            raise Waiting("DependencyNotReady", f"what FlagSet {name} applied is not there yet", delay=_DELAY)
        found.append(flag_set)
    return tuple(found)


def needed_digests(resource: Resource, spec: FlagSetSpec, objects: Cache) -> list[tuple[str, str]]:
    """Return (digest, name) of each flag set that this one depends on and that was applied to the same
    cluster: evaluators have no flags of another one.
    """
    names = dict.fromkeys(one.name for one in spec.depends_on if one.kind == KIND)
    dependencies = [objects.get(ObjectKey(KIND, resource.namespace, name)) for name in names]
    return [
        (applied, dependency.name)
        for dependency in dependencies
        if dependency is not None
        and dependency.spec.get("kubeConfig") == resource.spec.get("kubeConfig")
        and (applied := FlagSetStatus.of(dependency).digest)
    ]


_DELAY: Final = 2.0
_RECORDING: Final = frozenset({"RolledBack", *get_args(Incompatibility)})
"""Reasons of Stalled with which a rollout waits for a person, and still records new definitions."""
_LONGEST: Final = 64
"""Most characters of a key in a message."""


def require_recorded(flag_set: Resource, new: FlagSet, objects: Cache) -> None:
    """Raise Waiting if `new` would expose a definition at once that a rollout has to roll out. Takes long for
    a large set that is rolled out. Rollouts that are suspended or invalid, or stalled for another reason than
    their candidate, hold nothing back.
    """
    target = objects.get(ObjectKey(featureflagconfiguration.KIND, flag_set.namespace, target_name(flag_set)))
    rollouts = [] if target is None else [*filter(_holds_back, rollouts_for(objects, target))]
    present = read_back(target, objects) if rollouts and target is not None else None
    if target is None or present is None:
        return
    changed = [
        key
        for key, changes in diff(present, new).changed.items()
        if new.flags[key].state is State.ENABLED and set(changes) != {ChangedPart.METADATA}
    ]
    for rollout in rollouts if changed else ():
        promoted = _promoted_set_of(rollout, objects)
        in_candidates = {
            key for candidate in FlagRolloutStatus.of(rollout).candidates for key in candidate.flags
        }
        keys = [key for key in changed if matches(rollout.spec["flags"], key)]
        for key in keys:
            if not _is_recorded(key, present, promoted, in_candidates):
                shown = visible(key[:_LONGEST])
                raise Waiting(
                    "RolloutPending",
                    f"FlagRollout {rollout.name} has not recorded the present definition of flag "
                    f'"{shown}" yet; its change is applied once it has',
                    delay=_DELAY,
                )
        if keys and ready(target) and not _is_named(rollout, target):
            raise Waiting(
                "RolloutPending",
                f"FeatureFlagConfiguration {target.name} does not name FlagRollout {rollout.name} in its "
                "status yet; the change is applied once it does",
                delay=_DELAY,
            )


def _holds_back(rollout: Resource) -> bool:
    """Whether a rollout is able to record definitions."""
    try:
        spec = parse_spec(FlagRolloutSpec, rollout)
    except InvalidSpecError:
        return False
    stalled = FlagRolloutStatus.of(rollout).condition(STALLED)
    return not spec.suspend and (stalled.status != TRUE or stalled.reason in _RECORDING)


def _promoted_set_of(rollout: Resource, objects: Cache) -> FlagSet:
    promoted = FlagRolloutStatus.of(rollout).promoted
    name = None if promoted is None else promoted.shard
    shard = None if name is None else objects.get(ObjectKey(flagshard.KIND, rollout.namespace, name))
    return FlagSet() if shard is None else promoted_set(shard)


def _is_named(rollout: Resource, target: Resource) -> bool:
    """Whether the status of the object with the flags names the rollout and its promoted definitions. Proxies
    watch each kind by itself: only what is written to the object before its flags is certain to reach them
    before these.
    """
    promoted = FlagRolloutStatus.of(rollout).promoted
    shard = None if promoted is None else promoted.shard
    entries = rollout_entries(target.status)
    return any(entry.name == rollout.name and entry.shard == shard for entry in entries)


def _is_recorded(key: str, present: FlagSet, promoted: FlagSet, in_candidates: Collection[str]) -> bool:
    """Whether the rollout has a promoted definition to serve to everybody else. If it differs from the
    present one, which is enabled, the change is another candidate. Of a flag that is disabled it is that of
    the disabled flag, unless the flag is in a candidate.
    """
    recorded = promoted.flags.get(key)
    if recorded is None:
        return False
    enabled = present.flags[key].state is State.ENABLED
    return enabled or recorded.state is State.DISABLED or key in in_candidates
