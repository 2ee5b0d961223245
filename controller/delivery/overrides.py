"""The FlagOverrides in force for an object with flags, as every process that delivers applies them. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagreceipt, flagset
from controller.api.featureflagconfiguration import FLAG_KIND
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagoverride import (
    ACTIVE,
    EXPIRED,
    HIDDEN,
    KIND,
    FlagOverrideSpec,
    FlagOverrideStatus,
    KeptDefinition,
)
from controller.api.flagreceipt import FlagReceiptStatus
from controller.api.flagset import delivers_elsewhere, proven_writer
from controller.api.meta import ObjectKey, Resource
from controller.delivery.object_bounds import OVERRIDES, WRITTEN, age
from controller.runtime.cache import Cache, Index
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.model import ABSENT
from evaluator.flags.overrides import Kept, Override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def set_name(override: Resource) -> str:
    """The name of the flag set that a FlagOverride or FlagRollout refers to; empty where the spec is
    malformed.
    """
    reference = override.spec.get("flagSetRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""


def _set_and_flag(override: Resource) -> tuple[str]:
    flag = override.spec.get("flag")
    return (f"{set_name(override)}/{flag if isinstance(flag, str) else ''}",)


FLAG_KINDS: Final = frozenset({featureflagconfiguration.KIND, FLAG_KIND})
"""The kinds of objects with flags."""
BY_WRITER: Final = Index(
    "objects with flags by FlagSet", FLAG_KINDS, lambda resource: filter(None, (proven_writer(resource),))
)
BY_FLAG_SET: Final = Index(
    "FlagOverride by flag set", frozenset({KIND}), lambda resource: (set_name(resource),)
)
BY_FLAG: Final = Index("FlagOverride by flag set and flag", frozenset({KIND}), _set_and_flag)


HIDDEN_IN: Final = Index(
    "FlagReceipt by overridden flag that another set hides",
    frozenset({flagreceipt.KIND}),
    lambda receipt: {
        f"{flagreceipt.pair_of(receipt)[0]}/{hidden.flag}" for hidden in FlagReceiptStatus.of(receipt).hidden
    },
)


def names_of(target: Resource) -> frozenset[str]:
    """The names by which FlagOverrides refer to an object with flags: its own, and that of its FlagSet."""
    return frozenset(filter(None, (target.name, proven_writer(target))))


def counted_names_of(objects: Cache, target: Resource) -> Iterator[str]:
    """Yield the names by which FlagOverrides and FlagRollouts are judged by an object with flags: without
    that of a FlagSet of which it is beyond the bound.
    """
    yield target.name
    writer = proven_writer(target)
    if writer not in {"", target.name}:
        front = objects.choose(BY_WRITER, target.namespace, writer, WRITTEN.front)
        if not WRITTEN.is_behind(target, front):
            yield writer


def written_by(objects: Cache, namespace: str, name: str) -> list[Resource]:
    """Return the objects of a FlagSet that count."""
    return objects.choose(BY_WRITER, namespace, name, WRITTEN.front)[: WRITTEN.most]


def targets_of(objects: Cache, override: Resource) -> list[Resource]:
    """The objects that a FlagOverride or FlagRollout refers to: of its `flagSetRef.name`, and those that the
    FlagSet of this name has written.
    """
    namespace, name = override.namespace, set_name(override)
    named = (objects.get(ObjectKey(kind, namespace, name)) for kind in sorted(FLAG_KINDS))
    written = written_by(objects, namespace, name)
    targets = {target.key: target for target in (*named, *written) if target is not None}
    return [targets[key] for key in sorted(targets)]


def target_of(objects: Cache, rollout: Resource) -> Resource | None:
    """The object whose flags a FlagRollout is about: of the `targets_of`, as of a standing order, one that
    the FlagSet of this name has written comes first, and a FeatureFlagConfiguration before a FeatureFlag.
    """
    name = set_name(rollout)
    return min(
        targets_of(objects, rollout),
        key=lambda target: (proven_writer(target) != name, target.key.kind == FLAG_KIND, target.key),
        default=None,
    )


def other_cluster_text(objects: Cache, override: Resource) -> str:
    """What is said of a FlagOverride or FlagRollout whose FlagSet writes to another cluster; empty for any
    other.
    """
    name = set_name(override)
    if not delivers_elsewhere(objects.get(ObjectKey(flagset.KIND, override.namespace, name))):
        return ""
    kind = override.key.kind
    return f"FlagSet {name} writes to another cluster (spec.kubeConfig); make the {kind} in that cluster"


def override_of(resource: Resource) -> Override:
    """What a FlagOverride asks for. Raises InvalidSpecError."""
    spec = parse_spec(FlagOverrideSpec, resource)
    return Override(
        resource.name,
        spec.flag,
        spec.variant,
        spec.reason,
        spec.end,
        ABSENT if spec.audience is None else spec.audience,
        _kept_of(FlagOverrideStatus.of(resource).kept, spec),
    )


def _kept_of(known: KeptDefinition | None, spec: FlagOverrideSpec) -> Kept | None:
    named = spec.flag_set_ref.name, spec.flag, spec.variant
    same = known is not None and (known.flag_set, known.flag, known.variant) == named
    return known.decoded if known is not None and same else None


def kept_definition(override: Resource, kept: Kept) -> KeptDefinition:
    """Return what the status of a FlagOverride says of what it keeps. Raises InvalidSpecError."""
    spec = parse_spec(FlagOverrideSpec, override)
    return KeptDefinition(
        flag_set=spec.flag_set_ref.name,
        flag=spec.flag,
        variant=spec.variant,
        value=None if kept.value is ABSENT else json.dumps(kept.value),
        rules=json.dumps(dict(kept.rules)) if kept.rules else None,
    )


def order_of_override(override: Resource | None) -> object:
    """Return the part of a FlagOverride that decides what is delivered, for comparison."""
    if override is None:
        return None
    kept = FlagOverrideStatus.of(override).kept
    return override.uid, override.generation, override.deleting, kept


def overrides_of(objects: Cache, target: Resource) -> list[Resource]:
    """The FlagOverrides of an object with flags, ended ones too, in no order."""
    names = names_of(target)
    return [resource for name in names for resource in objects.find(BY_FLAG_SET, target.namespace, name)]


def in_force(resources: Iterable[Resource], now: float) -> tuple[Override, ...]:
    """What FlagOverrides ask for at `now`, in Unix seconds, the oldest first; of each set that they name
    those within its bound. Malformed and deleted ones ask for nothing.
    """
    asked, counts = [], Counter[str]()
    for resource in sorted(resources, key=age):
        if not _lasts(resource, now):
            continue
        name = set_name(resource)
        counts[name] += 1
        if counts[name] <= OVERRIDES.most:
            asked.append(override_of(resource))
    return tuple(asked)


def _lasts(resource: Resource, now: float) -> bool:
    if resource.deleting:
        return False
    try:
        return now < parse_spec(FlagOverrideSpec, resource).end
    except InvalidSpecError:
        return False


@dataclass(frozen=True, slots=True)
class Bound:
    """The FlagOverrides in force that count of a set, where it has at least as many: no other does."""

    youngest: tuple[str, str]
    first_end: int
    """When the first of them ends, in Unix seconds."""

    def excludes(self, override: Resource) -> bool:
        """Whether an override of the set is younger than all of them."""
        return age(override) > self.youngest


def bound_of_set(objects: Cache, override: Resource, now: float) -> Bound | None:
    """Return the bound of the set of a FlagOverride; None while it has fewer overrides."""
    listed = objects.find(BY_FLAG_SET, override.namespace, set_name(override))
    if len(listed) < OVERRIDES.most:
        return None
    oldest = OVERRIDES.oldest(resource for resource in listed if _lasts(resource, now))
    if len(oldest) < OVERRIDES.most:
        return None
    return Bound(age(oldest[-1]), min(parse_spec(FlagOverrideSpec, resource).end for resource in oldest))


def counted_of_flag(objects: Cache, namespace: str, name: str, flag: str, now: float) -> list[Resource]:
    """Return the FlagOverrides of one flag that name a set so and are within its bound."""
    listed = objects.find(BY_FLAG, namespace, f"{name}/{flag}")
    bound = bound_of_set(objects, listed[0], now) if listed else None
    return [override for override in listed if bound is None or not bound.excludes(override)]


def rivals_of(objects: Cache, override: Resource) -> Iterator[ObjectKey]:
    """Yield the FlagOverrides of the same flag, whether they name the FlagSet or what that has written."""
    names = {set_name(override)}.union(*map(names_of, targets_of(objects, override)))
    for name in names:
        listed = objects.find(BY_FLAG, override.namespace, f"{name}/{override.spec.get('flag')}")
        yield from (resource.key for resource in listed)


def next_of_set(objects: Cache, gone: Resource) -> Iterator[ObjectKey]:
    """Yield the FlagOverrides at the edge of the bound of a set, now that this one is gone."""
    listed = objects.find(BY_FLAG_SET, gone.namespace, set_name(gone))
    yield from OVERRIDES.edge([other for other in listed if _counts(other)])


def _counts(override: Resource) -> bool:
    """Whether an override may be in force, as far as its status tells."""
    return not override.deleting and FlagOverrideStatus.of(override).state not in {EXPIRED, "InvalidSpec"}


def sets_hiding(objects: Cache, target: Resource, flag: str) -> list[str]:
    """Return the sets, as `Kind/namespace/name`, whose flag evaluators serve in place of an overridden one of
    this object, as they follow both; an empty name for a set that is not known.
    """
    receipts = objects.find(HIDDEN_IN, target.namespace, f"{target.name}/{flag}")
    owned = (FlagReceiptStatus.of(receipt) for receipt in receipts if receipt.is_owned_by(target))
    return sorted({hidden.by for status in owned for hidden in status.hidden if hidden.flag == flag})


def hidden_by(override: Resource, listed: Iterable[Resource]) -> list[str]:
    """Return the names of the FlagOverrides in force over which this one lies, as far as they name the set
    alike.
    """
    in_effect = (ACTIVE, HIDDEN)
    if FlagOverrideStatus.of(override).state not in in_effect:
        return []
    lower = (other for other in listed if age(other) < age(override))
    place = (override.namespace, _set_and_flag(override))
    return [
        other.name
        for other in lower
        if (other.namespace, _set_and_flag(other)) == place
        and FlagOverrideStatus.of(other).state in in_effect
    ]


def override_progress(objects: Cache, target: Resource, now: float) -> Progress:
    """The overrides in force for an object with flags at `now`, in Unix seconds."""
    overrides = in_force(overrides_of(objects, target), now)
    return Progress(overrides=overrides) if overrides else NO_PROGRESS


def with_kept(progress: Progress, kept: Mapping[str, Kept]) -> Progress:
    """Return the progress with what overrides keep, by their names, where they keep nothing yet."""
    if not kept or not progress.overrides:
        return progress
    overrides = tuple(
        override if override.kept is not None else replace(override, kept=kept.get(override.name))
        for override in progress.overrides
    )
    return replace(progress, overrides=overrides)


def seconds_to_next_end(progress: Progress, now: float) -> float | None:
    """Seconds until the first of the overrides ends; None: there is none."""
    ends = (override.expires for override in progress.overrides if override.expires is not None)
    first = min(ends, default=None)
    return None if first is None else max(0.0, first - now)
