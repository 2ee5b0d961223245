"""FlagOverride: whether one is in force, and what it hides. Whoever delivers the flags applies it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import flagshard
from controller.api.flagoverride import ACTIVE, CONFLICT, EXPIRED, FlagOverrideSpec, FlagOverrideStatus
from controller.api.objects.fields import InvalidSpecError
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.delivery.delivered import delivery_of
from controller.delivery.progress.overrides import in_force, override_of, overrides_of, targets_of
from controller.delivery.progress.rollouts import PromotedSets, progress_of
from controller.runtime.reconciling.result import Done, Result, spec_of
from controller.runtime.reconciling.setbacks import Setback, Stalled, Waiting
from evaluator.flags.model import ABSENT, State
from evaluator.flags.overrides import misfit
from evaluator.flags.syntax.text import visible

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.accept import Progress
    from evaluator.flags.model import Flag, FlagSet
    from evaluator.flags.overrides import Misfit, Override

_NAMED: Final = 10
"""Most variants that a message lists."""
_LONGEST: Final = 64
"""Most characters of a name in a message."""
_SHARDS_DELAY: Final = 5.0


@dataclass(frozen=True, slots=True)
class FlagOverrideReconciler:
    """Judges; changes nothing but status."""

    objects: Cache

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Say whether the override is in force, and wait for its end."""
        try:
            spec_of(FlagOverrideSpec, resource)
        except Stalled as stalled:
            return Result.of(stalled, status=FlagOverrideStatus(state="InvalidSpec", hides=None))
        override, at = override_of(resource), now.timestamp()
        if override.expires is not None and override.expires <= at:
            ended = Done(f"it ended at {resource.spec['expiresAt']}; delete it", EXPIRED)
            return Result(ended, status=FlagOverrideStatus(state=EXPIRED))
        outcome, hides = await self._judge(resource, override, at)
        state = ACTIVE if isinstance(outcome, Done) else outcome.reason
        known = FlagOverrideStatus.model_validate({"state": state, "hides": hides})
        wait = self._next_end(resource, at)
        if isinstance(outcome, Done):
            return Result(outcome, status=known, requeue_after=wait)
        return Result.of(outcome, status=known, requeue_after=outcome.delay or wait)

    def forget(self, key: ObjectKey) -> None:
        """Nothing is kept of an object."""

    def _next_end(self, resource: Resource, at: float) -> float | None:
        """Seconds until an override of the same set ends, this one among them."""
        listed = [resource]
        for target in targets_of(self.objects, resource):
            listed += overrides_of(self.objects, target)
        ends = (override.expires for override in in_force(listed, at) if override.expires is not None)
        return min((end - at for end in ends), default=None)

    async def _judge(
        self, resource: Resource, override: Override, at: float
    ) -> tuple[Done | Setback, str | None]:
        """(the outcome, what the override hides) for all objects with the flags; one is enough."""
        outcome: Done | Setback = Stalled(
            "UnknownFlagSet",
            f"no FlagSet, FeatureFlagConfiguration or FeatureFlag {resource.spec['flagSetRef']['name']} has "
            "flags in this namespace; correct spec.flagSetRef.name",
        )
        hides = None
        for target in targets_of(self.objects, resource):
            rivals = in_force(overrides_of(self.objects, target), at)
            try:
                progress = progress_of(self.objects, target, at, PromotedSets(self.objects.get))
                flag_set = await asyncio.to_thread(self._flags, target, replace(progress, overrides=()))
            except (MissingShardsError, InvalidSpecError) as error:
                outcome = Waiting(
                    "UnknownFlagSet", f"{target.key.kind} {target.name}: {error}", delay=_SHARDS_DELAY
                )
                continue
            outcome = _outcome(flag_set, override, rivals)
            flag = flag_set.flags.get(override.flag)
            hides = None if flag is None else _describe(flag)
            if isinstance(outcome, Done):
                break
        return outcome, hides

    def _flags(self, target: Resource, progress: Progress) -> FlagSet:
        """The flags without any override, as rollouts have them. Takes long for a large set."""
        return delivery_of(target, flagshard.finder(self.objects.get, target.namespace), progress).flag_set


def _outcome(flag_set: FlagSet, override: Override, rivals: tuple[Override, ...]) -> Done | Setback:
    flag = flag_set.flags.get(override.flag)
    name = _quote(override.flag)
    if flag is None:
        return Stalled("UnknownFlag", f"the set has no flag {name}; correct spec.flag")
    unfit = misfit(flag, override, flag_set.evaluators)
    if unfit is not None:
        return Stalled(unfit, _unfit_text(unfit, flag))
    same = (rival for rival in rivals if rival.flag == override.flag)
    first = next((rival for rival in same if misfit(flag, rival, flag_set.evaluators) is None), override)
    if first.name != override.name:
        return Stalled(
            CONFLICT, f"FlagOverride {first.name} is older and in force for flag {name}; end it first"
        )
    meanwhile = "disabled" if override.variant is None else _quote(override.variant)
    return Done(f"flag {name} is {meanwhile}: {override.reason}", ACTIVE)


def _unfit_text(unfit: Misfit, flag: Flag) -> str:
    name = _quote(flag.key)
    match unfit:
        case "UnknownVariant":
            return f"flag {name} has no such variant; it has {_variants(flag)}"
        case "AudienceOfDisabledFlag":
            return f"flag {name} is disabled in Git for everybody; remove spec.audience"
        case "InvalidAudience":
            return "spec.audience has an operator or a $ref that does not exist; correct it"
        case "RuleTooLarge":
            return f"the rule of flag {name} or spec.audience is too large; use disabled: true"


def _describe(flag: Flag) -> str:
    """What a definition says, in short: its state, its default variant, and whether it has a rule."""
    if flag.state is State.DISABLED:
        return "disabled"
    default = (
        "no default variant"
        if flag.default_variant is None
        else f"default variant {_quote(flag.default_variant)}"
    )
    return default if flag.targeting in (ABSENT, {}) else f"{default}, with a rule"


def _variants(flag: Flag) -> str:
    names = [_quote(name) for name in list(flag.variants)[:_NAMED]]
    more = [f"{len(flag.variants) - _NAMED} more"] if len(flag.variants) > _NAMED else []
    return ", ".join(names + more)


def _quote(name: str) -> str:
    return f'"{visible(name[:_LONGEST])}"'
