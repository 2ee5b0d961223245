"""Sets and ends an override in a cluster: judged before, and followed until evaluators serve the change."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.api import flagset, flagshard
from controller.api.kinds import (
    FEATURE_FLAG,
    FEATURE_FLAG_CONFIGURATION,
    FLAG_OVERRIDE,
    FLAG_ROLLOUT,
    FLAG_SET,
    FLAG_SHARD,
)
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import Resource
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.cli.cluster.effects import follow_effect
from controller.cli.shared.ending import PROBLEM, Exit
from controller.cli.shared.printing import did_you_mean
from controller.delivery.delivered import delivery_of
from controller.delivery.progress.override_words import (
    digests_of,
    effect_of,
    end_of_idle,
    flag_text,
    served_of,
    unfit_text,
)
from controller.delivery.progress.overrides import override_of, set_name, targets_of
from controller.delivery.progress.rollouts import PROGRESS_INDEXES, PromotedSets, progress_of
from controller.kube.paths import path_of
from controller.runtime.clock import now
from controller.runtime.objects.cache import Cache
from controller.runtime.reconciling.setbacks import Setback
from evaluator.flags.override_fit import misfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.cli.cluster.connection import Connection
    from controller.delivery.delivered import Delivered
    from controller.delivery.state.effect import Effect
    from evaluator.flags.model import FlagSet
    from evaluator.flags.overrides import Override


async def require_fit(connection: Connection, asked: Resource) -> None:
    """Raise Exit for an override that fits no object: there is no such set, flag or variant, or its audience
    is wrong. What the user may not read is left to the controller.
    """
    with contextlib.suppress(Setback):
        delivered = await _read_deliveries(connection, asked, overridden=False)
        if not delivered:
            raise await _missing_set(connection, set_name(asked))
        override = override_of(asked)
        faults = [_fault(override, one.flag_set) for one in delivered]
        if all(faults):
            raise Exit(f"{faults[0]}; --force sets it all the same", PROBLEM)


def _fault(override: Override, flag_set: FlagSet) -> str:
    flag = flag_set.flags.get(override.flag)
    unfit = misfit(flag, override, flag_set.evaluators)
    return "" if unfit is None else unfit_text(unfit, override, flag, flag_set.flags)


async def _missing_set(connection: Connection, name: str) -> Exit:
    types = (FLAG_SET, FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG)
    names = sorted({resource.name for resource in await connection.resources(*types)})
    return Exit(
        f"no FlagSet, FeatureFlagConfiguration or FeatureFlag {name} has flags in namespace "
        f"{connection.namespace}{did_you_mean(name, names)}; --force sets it all the same",
        PROBLEM,
    )


async def set_override(connection: Connection, manifest: dict[str, Any], seconds: float) -> Effect:
    """Write an override, and follow what comes of it for so many seconds. Raises Setback."""
    asked = Resource.of(manifest)
    before = await _targets(connection, asked)
    path = path_of(FLAG_OVERRIDE.api_version, FLAG_OVERRIDE.kind, connection.namespace, asked.name)
    # Forced: in an incident, what somebody else has set there is replaced.
    await connection.apply(path, manifest, force=True)

    async def look() -> Effect:
        override = await connection.get(FLAG_OVERRIDE, asked.name)
        return effect_of(override, await _again(connection, before), digests_of(before))

    return await follow_effect(look, seconds)


async def end_override(connection: Connection, name: str, seconds: float) -> Effect:
    """Delete an override, follow its end for so many seconds, and say what the flag is now. Raises Exit,
    Setback.
    """
    override = await connection.get(FLAG_OVERRIDE, name)
    before = await _targets(connection, override)
    await connection.cluster.delete(
        override.api_version, override.key.kind, override.namespace, override.name, uid=override.uid
    )
    if (idle := end_of_idle(override)) is not None:
        return idle

    async def look() -> Effect:
        return served_of(await _again(connection, before), digests_of(before))

    effect = await follow_effect(look, seconds)
    with contextlib.suppress(Setback):
        for one in await _read_deliveries(connection, override, overridden=True):
            text = flag_text(str(override.spec.get("flag")), one.flag_set)
            return replace(effect, message=f"{text}; {effect.message}")
    return effect


async def _again(connection: Connection, targets: Sequence[Resource]) -> list[Resource]:
    """Return the objects as they are now; without those that are gone."""
    types = {type_.kind: type_ for type_ in (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG)}
    found = [
        await connection.find(types[target.key.kind], target.namespace, target.name) for target in targets
    ]
    return [target for target in found if target is not None]


async def _targets(connection: Connection, override: Resource) -> list[Resource]:
    """Return the objects with the flag that count who serves them; none where the user may not read them."""
    objects = Cache(PROGRESS_INDEXES)
    with contextlib.suppress(Setback):
        await _read_targets(connection, override, objects)
    return _served_targets(objects, override)


async def _read_targets(connection: Connection, override: Resource, objects: Cache) -> None:
    names = [set_name(override)]
    flag_set = await connection.find(FLAG_SET, connection.namespace, names[0])
    if flag_set is not None:
        names.append(flagset.target_name(flag_set))
    for name in dict.fromkeys(names):
        for type_ in (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG):
            found = await connection.find(type_, connection.namespace, name)
            if found is not None:
                objects.put(found)


def _served_targets(objects: Cache, override: Resource) -> list[Resource]:
    """Return the objects with the flag. A FeatureFlag beside a FeatureFlagConfiguration is not delivered."""
    targets = targets_of(objects, override)
    names = {target.name for target in targets if target.key.kind == FEATURE_FLAG_CONFIGURATION.kind}
    return [
        target
        for target in targets
        if target.key.kind == FEATURE_FLAG_CONFIGURATION.kind or target.name not in names
    ]


async def _read_deliveries(
    connection: Connection, override: Resource, *, overridden: bool
) -> list[Delivered]:
    """Return what is delivered of each object with the flag, with overrides or without. Raises Setback."""
    objects = Cache(PROGRESS_INDEXES)
    await _read_targets(connection, override, objects)
    targets = _served_targets(objects, override)
    kinds = (FLAG_SHARD, FLAG_ROLLOUT, *((FLAG_OVERRIDE,) if overridden else ()))
    for resource in await connection.resources(*kinds) if targets else ():
        objects.put(resource)
    delivered = []
    for target in targets:
        progress = progress_of(objects, target, now().timestamp(), PromotedSets(objects.get))
        with contextlib.suppress(InvalidSpecError, MissingShardsError):
            delivered.append(delivery_of(target, flagshard.finder(objects.get, target.namespace), progress))
    return delivered
