"""Compares a rollout's flags in Git with the promoted ones, once for each content."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.api import flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.remote_provider import entries_in_force, provider_shards
from controller.delivery.delivered import Delivered, delivery_of
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.rollouts.candidates import kept_keys
from controller.runtime.setbacks import Stalled, Waiting
from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import (
    capture,
    changed_flags,
    definition_digest,
    matches,
    misfits,
    settle,
    with_promoted,
)
from evaluator.flags.canonical import digest
from evaluator.flags.diff import RuleCopier
from evaluator.flags.model import Flag, FlagSet, Json, State
from evaluator.flags.overrides import is_invalid_audience
from evaluator.flags.references import Expander, RuleTooLarge
from evaluator.flags.rollouts import CohortReach, Rollout, reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from controller.api.flagrollout import FlagRolloutSpec, Step
    from controller.api.meta import ObjectKey, Resource
    from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus
    from controller.runtime.cache import Cache
    from evaluator.flags.rollout_rules import Incompatibility

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
    changed: Mapping[str, str]
    """The digest of each definition that differs from the promoted one, by key."""
    misfits: Mapping[str, Incompatibility]
    """Why definitions cannot be served to some users only, by key."""
    promoted: FlagSet
    """The promoted definitions, and those that are served as desired at once."""
    promoted_digest: str
    kept: frozenset[str]
    """Keys of flags whose promoted definitions stay although Git does not serve them."""
    disabled: frozenset[str]
    """Keys of flags that Git disables."""
    audiences: tuple[dict[str, Any] | None, ...]
    """The audience of each step, with references expanded; None: it has a share."""
    _expander: Expander
    """Of the promoted definitions."""
    _promotions: dict[tuple[str, ...], tuple[FlagSet, str]] = field(default_factory=dict)

    def promoted_definition(self, key: str) -> str | None:
        """The digest of the promoted definition of a flag; None: there is none."""
        flag = self.promoted.flags.get(key)
        return None if flag is None else definition_digest(flag, self._expander)

    def expand_audience(self, audience: Json) -> dict[str, Any]:
        """Return an audience of an override with its references to the set's `$evaluators` expanded."""
        return _expand(audience, Expander(self.whole.evaluators))

    def promotion(self, candidate: CandidateStatus) -> tuple[FlagSet, str] | None:
        """(The promoted definitions after the promotion of a candidate, their digest); None: Git does not
        serve its flags now. Takes long for a large set.
        """
        flags = candidate.flags.items()
        keys = tuple(sorted(key for key, digest in flags if self.changed.get(key) == digest))
        if keys and keys not in self._promotions:
            promoted = with_promoted(self.promoted, self.whole, keys)
            self._promotions[keys] = promoted, digest(promoted)
        return self._promotions.get(keys)


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The newest comparison of each rollout."""

    objects: Cache
    promoted: PromotedSets
    _kept: dict[ObjectKey, tuple[tuple[Any, ...], Comparison]] = field(default_factory=dict)

    async def of(self, subject: Subject, moment: datetime) -> Comparison:
        """Compare the flags of an object with the promoted ones. Raises Waiting for parts that are not there
        yet, Stalled if the promoted definitions are gone.
        """
        key, spec = subject.rollout.key, subject.spec
        content = (
            spec.flags,
            spec.steps,
            subject.promoted_name,
            _status_parts(subject, moment),
            *self._content(subject.target),
        )
        known = self._kept.get(key)
        if known is not None and known[0] == content:
            return known[1]
        try:
            comparison = await asyncio.to_thread(self._compare, subject, moment)
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

    def _compare(self, subject: Subject, now: datetime) -> Comparison:
        """Takes long for a large set."""
        patterns, status = subject.spec.flags, subject.status
        part = flagshard.finder(self.objects.get, subject.target.namespace)
        delivered = delivery_of(subject.target, part)
        if not delivered.digest:
            raise Waiting("FlagsNotReadable", f"{subject.target.name} is refused: {delivered.cause}")
        before = self._promoted_set(subject, delivered.flag_set, now.timestamp())
        whole = _with_held_flags(delivered, before)
        mine = [key for key in before.flags if matches(patterns, key)]
        absent = [key for key in mine if key not in whole.flags]
        disabled = {key for key in mine if key in whole.flags and whole.flags[key].state is State.DISABLED}
        kept = kept_keys(subject.spec, status, absent, disabled, now)
        promoted = settle(whole, before, patterns, kept)
        changed = changed_flags(whole, promoted, patterns)
        known = status.promoted
        unchanged = known is not None and promoted is before
        audiences = _expanded_audiences(subject.spec.steps, whole)
        return Comparison(
            whole,
            changed,
            _misfits(whole, promoted, changed, tuple(filter(None, audiences))),
            promoted,
            known.digest if known is not None and unchanged else digest(promoted),
            kept,
            frozenset(disabled),
            audiences,
            Expander(promoted.evaluators),
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


def _status_parts(subject: Subject, now: datetime) -> tuple[object, ...]:
    """Return what a comparison depends on in the status of the rollout."""
    keys = frozenset(key for candidate in subject.status.candidates for key in candidate.flags)
    absent = [entry.flag for entry in subject.status.absent]
    return keys, kept_keys(subject.spec, subject.status, absent, (), now)


def _expanded_audiences(steps: Iterable[Step], whole: FlagSet) -> tuple[dict[str, Any] | None, ...]:
    expander = Expander(whole.evaluators)
    return tuple(None if step.audience is None else _expand(step.audience, expander) for step in steps)


def _expand(audience: Json, expander: Expander) -> dict[str, Any]:
    expanded = audience
    with suppress(RuleTooLarge):
        expanded = expander.expand(audience)
    return expanded if isinstance(expanded, dict) else {"!!": [expanded]}


def _misfits(
    whole: FlagSet, promoted: FlagSet, changed: Iterable[str], audiences: tuple[dict[str, Any], ...]
) -> Mapping[str, Incompatibility]:
    """An audience that fails for everybody is a misfit of all flags, beside those of some."""
    invalid = any(is_invalid_audience(audience, whole.evaluators) for audience in audiences)
    reasons = misfits(whole, promoted, changed, audiences)
    return {**dict.fromkeys(changed, "InvalidAudience"), **reasons} if invalid else reasons


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
    settled = settle(whole, FlagSet(MappingProxyType(flags), whole.evaluators), patterns, comparison.kept)
    promoted = capture(settled, patterns)
    return replace(comparison, promoted=promoted, promoted_digest=digest(promoted))


def _set_promoted_by(whole: FlagSet, rollout: Rollout) -> FlagSet:
    """Return the definitions that a rollout has promoted, without those of flags of which everybody gets the
    definition of Git.
    """
    promoting = (reached for reached in reach_of(whole, rollout) if reached.reach is CohortReach.EVERYONE)
    everyone = {key for reached in promoting for key in reached.flags}
    flags = {key: flag for key, flag in rollout.promoted.flags.items() if key not in everyone}
    return replace(rollout.promoted, flags=MappingProxyType(flags))
