"""What Git wants of a rollout's flags beside what is promoted. It is computed once for each content."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.api import flagshard
from controller.api.objects.fields import InvalidSpecError
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.api.remote_provider import entries_in_force, provider_shards
from controller.delivery.delivered import delivery_of
from controller.delivery.progress.rollouts import PromotedSets, progress_of
from controller.runtime.reconciling.setbacks import Stalled, Waiting
from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import candidate_of, capture, matches, settle
from evaluator.flags.canonical import digest
from evaluator.flags.model import FlagSet
from evaluator.flags.rollouts import Reach, reach_of
from evaluator.flags.rule_copies import RuleCopier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.delivery.delivered import Delivered
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.candidates import Candidate
    from evaluator.flags.model import Flag
    from evaluator.flags.rollouts import Rollout

_SHARDS_DELAY = 5.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A rollout and the object with its flags."""

    rollout: Resource
    spec: FlagRolloutSpec
    status: FlagRolloutStatus
    """As the object has it."""
    target: Resource

    @property
    def promoted_name(self) -> str | None:
        """The FlagShard with what is promoted; None for a new rollout."""
        return self.status.promoted.shard if self.status.promoted is not None else None


@dataclass(frozen=True, slots=True)
class Compared:
    """A rollout's flags."""

    whole: FlagSet
    """All flags as Git has them."""
    candidate: Candidate
    """What differs from what is promoted."""
    promoted: FlagSet
    """What is promoted, with what is served as desired at once."""
    promoted_digest: str
    desired: FlagSet
    """The rollout's flags as Git has them."""
    desired_digest: str


@dataclass(frozen=True, slots=True)
class ComparedSets:
    """Of all rollouts."""

    objects: Cache
    promoted: PromotedSets
    _kept: dict[ObjectKey, tuple[tuple[Any, ...], Compared]] = field(default_factory=dict)

    async def of(self, subject: Subject, now: float) -> Compared:
        """Compare the flags of an object with what is promoted. Raises Waiting for parts that are not there
        yet, Stalled where the promoted definitions are gone. `now`: Unix seconds.
        """
        key, spec = subject.rollout.key, subject.spec
        content = (spec.flags, spec.steps, subject.promoted_name, *self._content(subject.target))
        known = self._kept.get(key)
        if known is not None and known[0] == content:
            return known[1]
        try:
            compared = await asyncio.to_thread(self._compare, subject, now)
        except (MissingShardsError, InvalidSpecError) as error:
            text = f"{subject.target.key.kind} {subject.target.name}: {error}"
            raise Waiting("FlagsNotReadable", text, delay=_SHARDS_DELAY) from error
        self._kept[key] = content, compared
        return compared

    async def with_older(self, subject: Subject, compared: Compared, now: float) -> Compared:
        """Return `compared` with what older rollouts have promoted of the flags that they share with the
        subject; as it is while a FlagShard of one is missing. `now`: Unix seconds.
        """
        progress = progress_of(self.objects, subject.target, now, self.promoted)
        if progress.missing:
            return compared
        name = subject.rollout.name
        older = tuple(takewhile(lambda rollout: rollout.name != name, progress.rollouts))
        return await asyncio.to_thread(_with_older, compared, subject.spec.flags, older)

    def forget(self, rollout: ObjectKey) -> None:
        """Drop what is kept of a rollout."""
        self._kept.pop(rollout, None)
        self.promoted.forget(rollout)

    def _content(self, target: Resource) -> tuple[Any, ...]:
        part = flagshard.finder(self.objects.get, target.namespace)
        names = (*flagshard.names(target.spec), *provider_shards(target.status))
        parts = [part(name) for name in names]
        versions = [(part.name, part.resource_version) for part in parts if part is not None]
        return target.uid, target.generation, entries_in_force(target.status), *versions

    def _compare(self, subject: Subject, now: float) -> Compared:
        """Takes long for a large set."""
        patterns = subject.spec.flags
        part = flagshard.finder(self.objects.get, subject.target.namespace)
        delivered = delivery_of(subject.target, part)
        if not delivered.digest:
            raise Waiting("FlagsNotReadable", f"{subject.target.name} is refused: {delivered.cause}")
        before = self._promoted(subject, delivered.flag_set, now)
        whole = _with_held(delivered, before)
        promoted = settle(whole, before, patterns)
        known = subject.status.promoted
        unchanged = known is not None and promoted is before
        desired = capture(whole, patterns)
        audiences = tuple(step.audience for step in subject.spec.steps if step.audience is not None)
        return Compared(
            whole,
            candidate_of(whole, promoted, patterns, audiences),
            promoted,
            known.digest if known is not None and unchanged else digest(promoted),
            desired,
            digest(desired),
        )

    def _promoted(self, subject: Subject, whole: FlagSet, now: float) -> FlagSet:
        name = subject.promoted_name
        if name is None:
            # A new rollout: what is served now, by whatever else is under way.
            others = progress_of(self.objects, subject.target, now, self.promoted).rollouts
            return capture(effective(whole, Progress(rollouts=others)), subject.spec.flags)
        sets = self.promoted.of(subject.rollout.key, (name,))
        if name not in sets:
            raise Stalled(
                "PromotedShardMissing",
                f"FlagShard {name} with the promoted definitions is gone; delete the FlagRollout and create "
                "it again: what Git has is promoted then",
            )
        return sets[name]


def _with_held(delivered: Delivered, promoted: FlagSet) -> FlagSet:
    """The flags as Git has them; of those with an error, which are not deleted, the promoted definitions."""
    held = [key for key in delivered.missing if key in promoted.flags]
    if not held:
        return delivered.flag_set
    copier = RuleCopier(promoted.evaluators, delivered.flag_set.evaluators)
    flags = dict(delivered.flag_set.flags)
    for key in held:
        flag = promoted.flags[key]
        flags[key] = replace(flag, targeting=copier.copy(flag.targeting))
    return replace(delivered.flag_set, flags=MappingProxyType(flags))


def _with_older(compared: Compared, patterns: Iterable[str], older: Iterable[Rollout]) -> Compared:
    """For a flag the first rollout whose pattern matches counts. Takes long for a large set."""
    whole, patterns = compared.whole, tuple(patterns)
    flags: dict[str, Flag] = {}
    earlier: list[str] = []
    recorded = [(rollout.patterns, _recorded(whole, rollout)) for rollout in older]
    for names, promoted in (*recorded, (patterns, compared.promoted)):
        copier = RuleCopier(promoted.evaluators, whole.evaluators)
        for key, flag in promoted.flags.items():
            if matches(names, key) and not matches(earlier, key):
                flags[key] = replace(flag, targeting=copier.copy(flag.targeting))
        earlier += names
    settled = settle(whole, FlagSet(MappingProxyType(flags), whole.evaluators), patterns)
    promoted = capture(settled, patterns)
    return replace(compared, promoted=promoted, promoted_digest=digest(promoted))


def _recorded(whole: FlagSet, rollout: Rollout) -> FlagSet:
    """What a rollout has promoted; nothing if everybody has what Git has."""
    return FlagSet() if reach_of(whole, rollout)[1] is Reach.EVERYONE else rollout.promoted
