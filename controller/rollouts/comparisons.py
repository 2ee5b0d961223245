"""Compares a rollout's flags in Git with the promoted ones, once for each content."""

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
    """The status of `rollout`."""
    target: Resource

    @property
    def promoted_name(self) -> str | None:
        """The FlagShard with what is promoted; None for a new rollout."""
        return self.status.promoted.shard if self.status.promoted is not None else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The flags of a rollout, as Git has them and as they are promoted."""

    whole: FlagSet
    """All flags as Git has them."""
    candidate: Candidate
    """The definitions that differ from the promoted ones."""
    promoted: FlagSet
    """The promoted definitions, and those that are served as desired at once."""
    promoted_digest: str
    desired: FlagSet
    """The rollout's flags as Git has them."""
    desired_digest: str


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The newest comparison of each rollout."""

    objects: Cache
    promoted: PromotedSets
    _kept: dict[ObjectKey, tuple[tuple[Any, ...], Comparison]] = field(default_factory=dict)

    async def of(self, subject: Subject, now: float) -> Comparison:
        """Compare the flags of an object with the promoted ones. Raises Waiting for parts that are not there
        yet, Stalled if the promoted definitions are gone. `now`: Unix seconds.
        """
        key, spec = subject.rollout.key, subject.spec
        content = (spec.flags, spec.steps, subject.promoted_name, *self._content(subject.target))
        known = self._kept.get(key)
        if known is not None and known[0] == content:
            return known[1]
        try:
            comparison = await asyncio.to_thread(self._compare, subject, now)
        except (MissingShardsError, InvalidSpecError) as error:
            text = f"{subject.target.key.kind} {subject.target.name}: {error}"
            raise Waiting("FlagsNotReadable", text, delay=_SHARDS_DELAY) from error
        self._kept[key] = content, comparison
        return comparison

    async def with_older_rollouts(self, subject: Subject, comparison: Comparison, now: float) -> Comparison:
        """Return `comparison` with the definitions that older rollouts have promoted of the flags that they
        share with the subject; unchanged while one of their FlagShards is missing. `now`: Unix seconds.
        """
        progress = progress_of(self.objects, subject.target, now, self.promoted)
        if progress.missing:
            return comparison
        name = subject.rollout.name
        older = tuple(takewhile(lambda rollout: rollout.name != name, progress.rollouts))
        return await asyncio.to_thread(_with_older_rollouts, comparison, subject.spec.flags, older)

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

    def _compare(self, subject: Subject, now: float) -> Comparison:
        """Takes long for a large set."""
        patterns = subject.spec.flags
        part = flagshard.finder(self.objects.get, subject.target.namespace)
        delivered = delivery_of(subject.target, part)
        if not delivered.digest:
            raise Waiting("FlagsNotReadable", f"{subject.target.name} is refused: {delivered.cause}")
        before = self._promoted_set(subject, delivered.flag_set, now)
        whole = _with_held_flags(delivered, before)
        promoted = settle(whole, before, patterns)
        known = subject.status.promoted
        unchanged = known is not None and promoted is before
        desired = capture(whole, patterns)
        audiences = tuple(step.audience for step in subject.spec.steps if step.audience is not None)
        return Comparison(
            whole,
            candidate_of(whole, promoted, patterns, audiences),
            promoted,
            known.digest if known is not None and unchanged else digest(promoted),
            desired,
            digest(desired),
        )

    def _promoted_set(self, subject: Subject, whole: FlagSet, now: float) -> FlagSet:
        name = subject.promoted_name
        if name is None:
            # A new rollout promotes what is served now, with other rollouts applied.
            others = progress_of(self.objects, subject.target, now, self.promoted).rollouts
            return capture(effective(whole, Progress(rollouts=others)), subject.spec.flags)
        sets = self.promoted.of(subject.rollout.key, (name,))
        if name not in sets:
            raise Stalled(
                "PromotedShardMissing",
                f"FlagShard {name} with the promoted definitions is gone; delete the FlagRollout and create "
                "it again: it promotes what Git has",
            )
        return sets[name]


def _with_held_flags(delivered: Delivered, promoted: FlagSet) -> FlagSet:
    """Return the flags as Git has them; a flag with an error keeps its promoted definition."""
    held = [key for key in delivered.missing if key in promoted.flags]
    if not held:
        return delivered.flag_set
    copier = RuleCopier(promoted.evaluators, delivered.flag_set.evaluators)
    flags = dict(delivered.flag_set.flags)
    for key in held:
        flags[key] = copier.copy_flag(promoted.flags[key])
    return replace(delivered.flag_set, flags=MappingProxyType(flags))


def _with_older_rollouts(
    comparison: Comparison, patterns: Iterable[str], older: Iterable[Rollout]
) -> Comparison:
    """Of several rollouts, the first whose pattern matches a flag counts. Takes long for a large set."""
    whole, patterns = comparison.whole, tuple(patterns)
    flags: dict[str, Flag] = {}
    earlier: list[str] = []
    recorded = [(rollout.patterns, _set_promoted_by(whole, rollout)) for rollout in older]
    for names, promoted in (*recorded, (patterns, comparison.promoted)):
        copier = RuleCopier(promoted.evaluators, whole.evaluators)
        for key, flag in promoted.flags.items():
            if matches(names, key) and not matches(earlier, key):
                flags[key] = copier.copy_flag(flag)
        earlier += names
    settled = settle(whole, FlagSet(MappingProxyType(flags), whole.evaluators), patterns)
    promoted = capture(settled, patterns)
    return replace(comparison, promoted=promoted, promoted_digest=digest(promoted))


def _set_promoted_by(whole: FlagSet, rollout: Rollout) -> FlagSet:
    """Return the definitions that a rollout has promoted; none if everybody gets those of Git."""
    return FlagSet() if reach_of(whole, rollout)[1] is Reach.EVERYONE else rollout.promoted
