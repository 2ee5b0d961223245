"""FlagRollout: compares its flags, makes the checks that are due, and writes its next status, which publishes
the step. Shards are written before the status.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagrollout import FlagRolloutSpec, Webhook
from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus, MetricStatus
from controller.api.status import Status
from controller.delivery.actions import Action, in_cluster
from controller.delivery.object_bounds import ROLLOUTS, TOO_MANY_ROLLOUTS
from controller.delivery.overrides import other_cluster_text, seconds_to_next_end, set_name, target_of
from controller.delivery.rollouts import PromotedSets, progress_of, rollouts_for, rollouts_naming
from controller.rollouts.clocks import present_step
from controller.rollouts.comparisons import Comparison, Comparisons, Subject
from controller.rollouts.decide import decide, due_of, suspend
from controller.rollouts.promoted_shards import PromotedShards
from controller.rollouts.rollout_observation import observation_of, outcome_of
from controller.rollouts.rollout_ports import HookAnswer, HookCall, Hooks, MeasuredStep, StepChecks
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Stalled, Waiting
from controller.runtime.shards import WHOLE, Shard
from evaluator.flags.candidates import matches
from evaluator.flags.rollouts import metadata_in_rollouts
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.rollouts.judgement import Due
    from controller.rollouts.observation import Observation
    from controller.runtime.cache import Applier, Cache
    from evaluator.flags.accept import Progress

_PART_OF_INTERVAL: Final = 0.8
"""The part of the interval of checks that one check may take."""


class FlagRolloutReconciler:
    """Keeps only comparisons, which a new leader computes again."""

    def __init__(
        self,
        objects: Cache,
        writer: Callable[[str], Applier],
        checks: StepChecks,
        hooks: Hooks,
        advise: Callable[[Action], str] = in_cluster,
        *,
        shard: Shard = WHOLE,
    ) -> None:
        """`writer`: who writes in a namespace. `advise`: says how a person does something. `shard`: what is
        written gets its labels of the FlagRollout.
        """
        self._objects = objects
        self._comparisons = Comparisons(objects, PromotedSets(objects.get))
        self._shards = PromotedShards(objects, writer, shard)
        self._checks = checks
        self._hooks = hooks
        self._advise = advise

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Make one decision, which publishes at most one step of each candidate."""
        spec, status = spec_of(FlagRolloutSpec, resource), FlagRolloutStatus.of(resource)
        crowded = self._excess(resource)
        if crowded is not None and status.promoted is None:
            raise crowded
        subject = Subject(resource, spec, status, self._target(resource, spec))
        comparison = await self._comparisons.of(subject, now)
        conflict = crowded or self._conflict(subject, comparison)
        if conflict is not None:
            return await self._wait_for_older(subject, comparison, conflict, now)
        progress = progress_of(self._objects, subject.target, now.timestamp(), self._comparisons.promoted)
        observation = await asyncio.to_thread(self._observe, subject, comparison, progress)
        dues = due_of(spec, status, observation, now)
        observation = await self._ask(subject, comparison, observation, dues, now)
        decision = decide(spec, status, observation, now)
        await self._write_promoted(subject, comparison, decision.status)
        swept = await self._sweep(subject, decision.status, now)
        outcome = outcome_of(decision.status, observation.misfits)
        own = _own_fields(decision.status)
        ends = seconds_to_next_end(progress, now.timestamp())
        waits = [wait for wait in (decision.requeue_after, swept, ends) if wait is not None]
        wait = min(waits, default=None)
        if isinstance(outcome, Done):
            return Result(outcome, status=own, events=decision.events, requeue_after=wait)
        # Settling writes the Event of what is Stalled.
        told = outcome.message if isinstance(outcome, Stalled) else None
        events = tuple(event for event in decision.events if event.message != told)
        return Result.of(outcome, status=own, events=events, requeue_after=wait)

    def _observe(self, subject: Subject, comparison: Comparison, progress: Progress) -> Observation:
        """Takes long for a large set while a candidate is promoted."""
        served = metadata_in_rollouts(comparison.whole, progress.rollouts)
        return observation_of(subject, comparison, progress.overrides, served, self._advise)

    async def suspend(self, resource: Resource, now: datetime) -> Result:
        """Let the clocks of the steps stand."""
        spec, status = spec_of(FlagRolloutSpec, resource), FlagRolloutStatus.of(resource)
        text = "spec.suspend is true: nothing changes"
        outcome = Waiting("Suspended", text) if status.candidates else Done(text, "Suspended")
        return Result(outcome, _own_fields(suspend(spec, status, now)))

    def forget(self, key: ObjectKey) -> None:
        """Drop what is kept of a deleted object."""
        self._comparisons.forget(key)

    def _target(self, resource: Resource, spec: FlagRolloutSpec) -> Resource:
        target = target_of(self._objects, resource)
        if target is None:
            if elsewhere := other_cluster_text(self._objects, resource):
                raise Stalled("UnknownFlagSet", elsewhere)
            raise Waiting(
                "UnknownFlagSet",
                f"no FlagSet, FeatureFlagConfiguration or FeatureFlag {spec.flag_set_ref.name} has flags "
                "here; correct spec.flagSetRef.name, or create it",
            )
        return target

    def _excess(self, resource: Resource) -> Stalled | None:
        """Return the setback if the set has too many older rollouts."""
        name = set_name(resource)
        if not ROLLOUTS.excludes(resource, rollouts_naming(self._objects, resource.namespace, name)):
            return None
        remedy = "delete one of them, or give one rollout the flags of several"
        return Stalled(TOO_MANY_ROLLOUTS, ROLLOUTS.message(name, remedy))

    def _conflict(self, subject: Subject, comparison: Comparison) -> Stalled | None:
        """Return the setback if an older rollout has one of the flags."""
        keys = {*comparison.whole.flags, *comparison.promoted.flags}
        mine = [key for key in sorted(keys) if matches(subject.spec.flags, key)]
        for older in rollouts_for(self._objects, subject.target):
            if older.key == subject.rollout.key:
                break
            patterns = older.spec.get("flags")
            patterns = [str(pattern) for pattern in patterns] if isinstance(patterns, list) else []
            shared = next((key for key in mine if matches(patterns, key)), None)
            if shared is not None:
                return Stalled(
                    "Conflict",
                    f'flag "{shared}" is rolled out by FlagRollout {older.name}, which is older; change the '
                    "flags of one of them",
                )
        return None

    async def _wait_for_older(
        self, subject: Subject, comparison: Comparison, conflict: Stalled, now: datetime
    ) -> Result:
        """Record only the promoted definitions: once the older rollout is gone, they are served to everybody,
        and must not be older than those that it promoted.
        """
        if subject.status.promoted is None:
            return Result.of(conflict)
        updated = await self._comparisons.with_older_rollouts(subject, comparison, now.timestamp())
        promoted = observation_of(subject, updated, (), {}, self._advise).promoted
        status = subject.status.model_copy(update={"promoted": promoted})
        await self._write_promoted(subject, updated, status)
        swept = await self._sweep(subject, status, now)
        return Result.of(conflict, status=_own_fields(status), requeue_after=swept)

    async def _ask(
        self,
        subject: Subject,
        comparison: Comparison,
        observation: Observation,
        dues: Sequence[tuple[CandidateStatus, Due]],
        now: datetime,
    ) -> Observation:
        """Make all checks and calls that are due, at the same time."""
        asked = await asyncio.gather(
            *(self._ask_about(subject, comparison, candidate, due, now) for candidate, due in dues)
        )
        digests = [candidate.digest for candidate, _ in dues]
        answers = {digest: named for digest, (named, _) in zip(digests, asked, strict=True)}
        metrics = {
            digest: found for digest, (_, found) in zip(digests, asked, strict=True) if found is not None
        }
        return replace(observation, metrics=metrics, answers=answers)

    async def _ask_about(
        self, subject: Subject, comparison: Comparison, candidate: CandidateStatus, due: Due, now: datetime
    ) -> tuple[dict[str, HookAnswer], tuple[MetricStatus, ...] | None]:
        seconds = _PART_OF_INTERVAL * subject.spec.analysis.interval
        answers = asyncio.gather(*(self._answer(subject, candidate, hook, seconds) for hook in due.hooks))
        metrics = await self._measure(subject, comparison, candidate, seconds, now) if due.metrics else None
        return dict(zip((hook.name for hook in due.hooks), await answers, strict=True)), metrics

    async def _measure(
        self,
        subject: Subject,
        comparison: Comparison,
        candidate: CandidateStatus,
        seconds: float,
        now: datetime,
    ) -> tuple[MetricStatus, ...]:
        spec, keys = subject.spec, tuple(sorted(candidate.flags))
        step = MeasuredStep(
            subject.rollout.key,
            spec.flag_set_ref.name,
            keys,
            comparison.whole.flags[keys[0]].default_variant or "",
            candidate.digest,
            None if candidate.audiences else candidate.share,
            parse_time(candidate.measured_since) or now,
            present_step(spec.steps, candidate).min_samples,
        )
        return await self._checks.measure(step, spec.analysis.metrics, candidate.metrics, now, seconds)

    async def _answer(
        self, subject: Subject, candidate: CandidateStatus, hook: Webhook, seconds: float
    ) -> HookAnswer:
        # The candidate is promoted with the answer, whatever it is.
        promoted = hook.type == "post-rollout" and candidate.phase == "Promoting"
        call = HookCall(
            subject.rollout.key,
            "Succeeded" if promoted else candidate.phase,
            candidate.digest,
            candidate.revision or "",
            candidate.step_text or "",
            candidate.share,
            tuple(sorted(candidate.flags)),
        )
        try:
            async with asyncio.timeout(seconds):
                return await self._hooks.ask(hook, call)
        except TimeoutError:
            return HookAnswer("Error", f"no answer within {seconds:g} s")

    async def _write_promoted(
        self, subject: Subject, comparison: Comparison, status: FlagRolloutStatus
    ) -> None:
        """Write the FlagShard that the status names, before the status."""
        promoted = status.promoted
        known = {comparison.promoted_digest: comparison.promoted} | {
            promotion[1]: promotion[0]
            for candidate in subject.status.candidates
            if candidate.phase == "Promoting" and (promotion := comparison.promotion(candidate)) is not None
        }
        if promoted is not None and promoted.digest in known:
            flag_set = known[promoted.digest]
            await self._shards.write(subject.rollout, subject.target, promoted.digest, flag_set)

    async def _sweep(self, subject: Subject, status: FlagRolloutStatus, now: datetime) -> float | None:
        """Remove the shards that neither a written status nor the next one names."""
        served = ConfigurationStatus.of(subject.target).rollouts or ()
        promoted = (subject.status.promoted, status.promoted)
        named = {revision.shard for revision in promoted if revision is not None and revision.shard}
        return await self._shards.sweep(subject.rollout, named | {entry.shard for entry in served}, now)


def _own_fields(status: FlagRolloutStatus) -> FlagRolloutStatus:
    """Return the rollout's own fields, all of them set, so that fields without a value are removed."""
    names = FlagRolloutStatus.model_fields.keys() - Status.model_fields.keys()
    fields = {name: getattr(status, name) for name in names}
    return FlagRolloutStatus.model_construct(_fields_set=set(names), **fields)
