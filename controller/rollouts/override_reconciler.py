"""FlagOverride: whether one is in force, what it hides and keeps. Whoever delivers the flags applies it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from controller.api import flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagoverride import (
    ACTIVE,
    EXPIRED,
    HIDDEN,
    TOO_MANY,
    FlagOverrideSpec,
    FlagOverrideStatus,
    KeptDefinition,
)
from controller.api.status import MESSAGE_CHARACTERS, READY
from controller.delivery.delivered import delivery_of
from controller.delivery.object_bounds import OVERRIDES
from controller.delivery.overrides import (
    bound_of_set,
    counted_of_flag,
    in_force,
    kept_definition,
    names_of,
    other_cluster_text,
    override_of,
    set_name,
    sets_hiding,
    targets_of,
)
from controller.delivery.progress_words import (
    active_text,
    definition_text,
    elsewhere_text,
    hidden_text,
    layers_above,
    quote,
    unfit_text,
)
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.flags.accept import Progress, effective
from evaluator.flags.overrides import MOST_LAYERS, Override, kept_of, latest_of_each, layers_of, misfit
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.cache import Cache

_UNREADABLE_DELAY: Final = 5.0
"""Seconds until an object whose flags cannot be read is looked at again."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What became of an override in one object with flags."""

    outcome: Done | Setback
    hides: str | None = None
    kept: KeptDefinition | None = None


@dataclass(frozen=True, slots=True)
class FlagOverrideReconciler:
    """Judges; changes nothing but status."""

    objects: Cache

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Say whether the override is in force, and wait for its end."""
        try:
            spec = spec_of(FlagOverrideSpec, resource)
        except Stalled as stalled:
            return Result.of(stalled, status=FlagOverrideStatus(state="InvalidSpec", hides=None, kept=None))
        at = now.timestamp()
        if spec.end <= at:
            ended = Done(f"it ended at {spec.expires_at}; delete it", EXPIRED)
            return Result(ended, status=FlagOverrideStatus(state=EXPIRED))
        bound = bound_of_set(self.objects, resource, at)
        if bound is not None and bound.excludes(resource):
            message = OVERRIDES.message(set_name(resource), "end one of them")
            wait = min(spec.end, bound.first_end) - at
            known = FlagOverrideStatus(state=TOO_MANY, hides=None)
            return Result.of(Stalled(TOO_MANY, message), status=known, requeue_after=wait)
        judgement, wait = await self._judge(resource, at)
        known = FlagOverrideStatus.model_validate(
            {"state": judgement.outcome.reason, "hides": judgement.hides}
        )
        if isinstance(judgement.outcome, Setback):
            delay = judgement.outcome.delay
            return Result.of(judgement.outcome, status=known, requeue_after=delay or wait)
        # What it keeps never changes while it does.
        keeps = override_of(resource).kept is not None
        kept = FlagOverrideStatus.of(resource).kept if keeps else judgement.kept
        return Result(
            judgement.outcome,
            status=known | FlagOverrideStatus(kept=kept),
            events=_events(resource, judgement.outcome),
            requeue_after=wait,
        )

    def forget(self, key: ObjectKey) -> None:
        """Nothing is kept of an object."""

    async def _judge(self, resource: Resource, at: float) -> tuple[_Judgement, float]:
        """Return (what became of it, the seconds until an override of the flag ends)."""
        override = override_of(resource)
        judged, ends, hiding = [], [override.expires or at], set[str]()
        targets = targets_of(self.objects, resource)
        if not targets and (elsewhere := other_cluster_text(self.objects, resource)):
            return _Judgement(Stalled("UnknownFlagSet", elsewhere)), min(ends) - at
        counted = {
            name: counted_of_flag(self.objects, resource.namespace, name, override.flag, at)
            for name in {name for target in targets for name in names_of(target)}
        }
        for target in targets:
            overrides = in_force(chain.from_iterable(counted[name] for name in names_of(target)), at)
            ends += [rival.expires for rival in overrides if rival.expires is not None]
            judged.append((target, await self._judge_in(target, resource, overrides, at)))
            hiding |= {*sets_hiding(self.objects, target, override.flag)}
        return _sum_up(resource, judged, sorted(hiding)), min(ends) - at

    async def _judge_in(
        self, target: Resource, resource: Resource, overrides: tuple[Override, ...], at: float
    ) -> _Judgement:
        try:
            promoted = PromotedSets(self.objects.get)
            progress = progress_of(self.objects, target, at, promoted, overrides=overrides)
            return await asyncio.to_thread(self._judge_served, target, resource, progress)
        except (MissingShardsError, InvalidSpecError) as error:
            return _unreadable(target, str(error))

    def _judge_served(self, target: Resource, resource: Resource, progress: Progress) -> _Judgement:
        """Judge by the flags as they are served. Takes long for a large set."""
        override = override_of(resource)
        delivered = delivery_of(target, flagshard.finder(self.objects.get, target.namespace), progress)
        if not delivered.digest:
            return _unreadable(target, delivered.cause)
        names = [one.name for one in progress.overrides]
        if override.name not in names:
            return _unreadable(target, f"FlagOverride {override.name} is being deleted")
        if override not in latest_of_each(progress.overrides):
            name = quote(override.flag)
            message = f"{MOST_LAYERS} later FlagOverrides of flag {name} are in force; end one of them"
            return _Judgement(Stalled(TOO_MANY, message))
        earlier = progress.overrides[: names.index(override.name)]
        before = effective(delivered.composed, replace(progress, overrides=earlier))
        beneath = before.flags.get(override.flag)
        unfit = misfit(beneath, override, before.evaluators)
        if unfit is not None:
            return _Judgement(Stalled(unfit, unfit_text(unfit, override, beneath, before.flags)))
        flag = delivered.flag_set.flags[override.flag]
        definition, layers = layers_of(flag)
        above = layers_above(layers, override.name)
        hidden = Done(hidden_text(override, above), HIDDEN) if above else None
        kept = kept_of(delivered.flag_set, override)
        return _Judgement(
            hidden or Done(active_text(override, layers), ACTIVE),
            definition_text(definition),
            None if kept is None else kept_definition(resource, kept),
        )


def _unreadable(target: Resource, why: str) -> _Judgement:
    message = f"{target.key.kind} {target.name}: {why}"
    return _Judgement(Waiting("UnknownFlagSet", message, delay=_UNREADABLE_DELAY))


def _sum_up(
    resource: Resource, judged: Sequence[tuple[Resource, _Judgement]], hiding: Sequence[str]
) -> _Judgement:
    """Return what became of an override in all objects with flags that it is about. One in which it is in
    force is enough; the message names which do not have it, and the sets `hiding` it.
    """
    name = set_name(resource)
    if not judged:
        message = (
            f"no FlagSet, FeatureFlagConfiguration or FeatureFlag {name} has flags in this namespace; "
            "correct spec.flagSetRef.name"
        )
        return _Judgement(Stalled("UnknownFlagSet", message))
    having = [(outcome, target, one) for target, one in judged if isinstance(outcome := one.outcome, Done)]
    if not having:
        return judged[-1][1]
    # Active in one object and hidden in another: somebody gets it.
    outcome, _, first = min(having, key=lambda row: row[0].reason)
    facts, names = [outcome.message], sorted({target.name for _, target, _ in having})
    if names != [name]:
        facts.append(f"in {', '.join(names)}")
    facts += [
        f"not in {target.key.kind} {target.name}: {one.outcome.message}"
        for target, one in judged
        if isinstance(one.outcome, Setback)
    ]
    facts += filter(None, [elsewhere_text(hiding)])
    return replace(first, outcome=Done("; ".join(facts), outcome.reason))


def _events(resource: Resource, outcome: Done) -> tuple[Occurrence, ...]:
    """Return an Event where the override is newly in force, or newly hidden, or over others than before."""
    before = FlagOverrideStatus.of(resource).condition(READY)
    if (before.reason, before.message) == (outcome.reason, cut(outcome.message, MESSAGE_CHARACTERS)):
        return ()
    return (
        Occurrence(outcome.reason, outcome.message, warning=outcome.reason == HIDDEN, version=before.since),
    )
