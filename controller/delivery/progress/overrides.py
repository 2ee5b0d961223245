"""The FlagOverrides in force for an object with flags, as every process that delivers applies them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.flagoverride import KIND, FlagOverrideSpec, moment_of
from controller.api.flagset import LABEL
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import ObjectKey
from controller.api.objects.parsed_spec import parse_spec
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import FLAG_KIND
from controller.runtime.objects.cache import Index
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.model import ABSENT
from evaluator.flags.overrides import OVERRIDE_EXPIRES_KEY, OVERRIDE_KEY, OVERRIDE_REASON_KEY, Override

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.model import FlagSet


def set_name(override: Resource) -> str:
    """The name of the flag set that a FlagOverride or FlagRollout refers to; empty where the spec is
    malformed.
    """
    reference = override.spec.get("flagSetRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""


FLAG_KINDS: Final = frozenset({featureflagconfiguration.KIND, FLAG_KIND})
"""The kinds of objects with flags."""
BY_WRITER: Final = Index(
    "objects with flags by FlagSet", FLAG_KINDS, lambda resource: filter(None, (resource.labels.get(LABEL),))
)
BY_FLAG_SET: Final = Index(
    "FlagOverride by flag set", frozenset({KIND}), lambda resource: (set_name(resource),)
)


def names_of(target: Resource) -> frozenset[str]:
    """The names by which FlagOverrides refer to an object with flags: its own, and that of its FlagSet."""
    return frozenset(filter(None, (target.name, target.labels.get(LABEL))))


def targets_of(objects: Cache, override: Resource) -> list[Resource]:
    """The objects that a FlagOverride or FlagRollout refers to: of its `flagSetRef.name`, and those that the
    FlagSet of this name has written.
    """
    namespace, name = override.namespace, set_name(override)
    named = (objects.get(ObjectKey(kind, namespace, name)) for kind in sorted(FLAG_KINDS))
    written = objects.find(BY_WRITER, namespace, name)
    targets = {target.key: target for target in (*named, *written) if target is not None}
    return [targets[key] for key in sorted(targets)]


def target_of(objects: Cache, rollout: Resource) -> Resource | None:
    """The object whose flags a FlagRollout is about: of the `targets_of`, as of a standing order, one that
    the FlagSet of this name has written comes first, and a FeatureFlagConfiguration before a FeatureFlag.
    """
    name = set_name(rollout)
    return min(
        targets_of(objects, rollout),
        key=lambda target: (target.labels.get(LABEL) != name, target.key.kind == FLAG_KIND, target.key),
        default=None,
    )


def override_of(resource: Resource) -> Override:
    """What a FlagOverride asks for. Raises InvalidSpecError."""
    spec = parse_spec(FlagOverrideSpec, resource)
    return Override(
        resource.name,
        spec.flag,
        spec.variant,
        spec.reason,
        int(moment_of(spec.expires_at).timestamp()),
        ABSENT if spec.audience is None else spec.audience,
    )


def overrides_of(objects: Cache, target: Resource) -> list[Resource]:
    """The FlagOverrides of an object with flags, ended ones too; the oldest first."""
    listed = {
        resource.key: resource
        for name in names_of(target)
        for resource in objects.find(BY_FLAG_SET, target.namespace, name)
    }
    return sorted(listed.values(), key=lambda resource: (resource.created, resource.name))


def in_force(resources: Iterable[Resource], now: float) -> tuple[Override, ...]:
    """What FlagOverrides ask for at `now`, in Unix seconds. Malformed and deleted ones ask for nothing."""
    asked = []
    for resource in resources:
        if resource.deleting:
            continue
        try:
            override = override_of(resource)
        except InvalidSpecError:
            continue
        if override.expires is not None and now < override.expires:
            asked.append(override)
    return tuple(asked)


def override_progress(objects: Cache, target: Resource, now: float) -> Progress:
    """The overrides in force for an object with flags at `now`, in Unix seconds."""
    overrides = in_force(overrides_of(objects, target), now)
    return Progress(overrides=overrides) if overrides else NO_PROGRESS


def seconds_to_next_end(progress: Progress, now: float) -> float | None:
    """Seconds until the first of the overrides ends; None: there is none."""
    ends = (override.expires for override in progress.overrides if override.expires is not None)
    first = min(ends, default=None)
    return None if first is None else max(0.0, first - now)


def override_texts(flag_set: FlagSet, progress: Progress) -> tuple[str, ...]:
    """A sentence for each flag of a served set that is overridden, sorted by the flag."""
    asked = {override.name: override for override in progress.overrides}
    texts = []
    for key in sorted({override.flag for override in progress.overrides}):
        flag = flag_set.flags.get(key)
        override = None if flag is None else asked.get(str(flag.metadata.get(OVERRIDE_KEY)))
        if flag is None or override is None:
            continue
        state = "disabled" if override.variant is None else f'"{override.variant}"'
        some = "" if override.audience is ABSENT else " for an audience"
        texts.append(
            f'flag "{key}" is {state}{some} until {flag.metadata.get(OVERRIDE_EXPIRES_KEY)} by FlagOverride '
            f"{override.name}: {flag.metadata.get(OVERRIDE_REASON_KEY)}"
        )
    return tuple(texts)
