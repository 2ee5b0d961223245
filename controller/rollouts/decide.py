"""The state machine of a FlagRollout: its candidates, each of which advances by itself, and its next time.
Pure.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagoverride import moment_of
from controller.rollouts.advance import about_candidate, advance, begin_again, deadline_moments
from controller.rollouts.candidates import group, is_running, missing_reason, with_stopped, without_stopped
from controller.rollouts.clocks import (
    date_of_next,
    exposed_seconds,
    moment_after,
    present_step,
    with_exposure,
    with_waiting,
)
from controller.rollouts.gates import (
    is_open,
    is_served,
    next_opening,
    reason_to_skip,
    with_overridden,
    with_promoted,
)
from controller.rollouts.judgement import IN_STEP, Due, due
from controller.rollouts.observation import (
    Asked,
    Decision,
    Observation,
    Tick,
    candidates_to_retry,
    is_paused,
    requests,
    retry_token,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from controller.api.flagrollout import FlagRolloutSpec
    from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus


def seconds_to_next(spec: FlagRolloutSpec, status: CandidateStatus, now: datetime) -> float | None:
    """Return the seconds until the next moment that may change a candidate; None: there is none."""
    moments = (moment for moment in _moments(spec, status, now) if moment is not None)
    return min(((moment - now).total_seconds() for moment in moments if moment > now), default=None)


def _moments(spec: FlagRolloutSpec, status: CandidateStatus, now: datetime) -> Iterator[datetime | None]:
    propagation, phase = spec.propagation.deadline, status.phase
    types = {hook.type for hook in spec.webhooks}
    since = status.last_check_at or status.measured_since or status.step_started_at
    check = moment_after(since, spec.analysis.interval)
    if phase == "Pending":
        yield check if types & {"confirm-rollout", "pre-rollout", "rollback"} else None
        yield from deadline_moments(spec, status)
    elif phase in {"Promoting", "RollingBack"}:
        yield moment_after(status.step_started_at, propagation)
        yield check if "rollback" in types else None
    elif phase in {"Progressing", "Paused", "WaitingPromotion"}:
        if status.propagated_at is None:
            yield moment_after(status.unexposed_since or status.step_started_at, propagation)
        yield check if types or spec.analysis.metrics else None
        if status.propagated_at is not None:
            lasts = present_step(spec.steps, status).min_duration or 0.0
            yield now + timedelta(seconds=lasts - exposed_seconds(status, now))
        if spec.progress_deadline is not None and status.waiting_since is None:
            yield moment_after(status.step_started_at, spec.progress_deadline + (status.waited or 0.0))
        yield from deadline_moments(spec, status)
    if phase in {"Pending", "Paused"} and (date := date_of_next(spec.steps, status)) is not None:
        yield moment_of(date)
    if phase in {"Pending", "Paused"} and not is_open(spec.windows, spec.freeze, now):
        yield next_opening(spec.windows, spec.freeze, now)


_HISTORY: Final = 20
_MOST_REVISIONS: Final = 20
_ATTENTION: Final = (
    "RollingBack", "Failed", "WaitingPromotion", "Paused", "Pending", "Progressing", "Promoting", "Queued",
)  # fmt: skip
"""Phases, those first that need attention most."""


def decide(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Decision:
    """Return the next status of the rollout, its Events, and when to decide again."""
    grouped = group(spec, _with_retries(spec, status, observation), observation, now)
    known = grouped.status.model_copy(update={"promoted": observation.promoted})
    known = with_overridden(spec, known, observation)
    asked = requests(known, observation.annotations, _overridden(known, observation), grouped.new)
    ticks = _ticks(spec, known, observation, now, asked.asked)
    events = [*grouped.events, *asked.events]
    after = known.model_copy(update={"handled": asked.handled})
    candidates: list[CandidateStatus] = []
    for candidate in known.candidates:
        if candidate.digest in grouped.new:
            candidates.append(candidate)
            continue
        change = advance(candidate, ticks[candidate.digest])
        events += about_candidate(candidate, change.events)
        update: dict[str, Any] = {}
        if change.outcome is not None:
            update["history"] = (change.outcome, *after.history)[:_HISTORY]
            if change.outcome.outcome == "Promoted":
                promoted = ticks[candidate.digest].promotion
                update |= {
                    "promoted": promoted,
                    "recent_digests": with_promoted(after, candidate, observation),
                }
            else:
                update["stopped"] = with_stopped(after.stopped, candidate, change.outcome, now)
        if change.outcome is None or change.outcome.outcome != "Promoted":
            candidates.append(change.status)
        if ticks[candidate.digest].asked.promote:
            update["stopped"] = without_stopped(after.stopped, candidate)
        after = after.model_copy(update=update)
    revisions = _promoted_revisions(status, observation)
    listed = {"candidates": tuple(candidates), "promoted_revisions": revisions}
    after = with_summary(after.model_copy(update=listed))
    return Decision(after, tuple(events), _seconds_to_next(spec, status, after, observation, now))


def _promoted_revisions(status: FlagRolloutStatus, observation: Observation) -> tuple[str, ...]:
    """The commits that everybody had, with that of the set where nothing differs from what is promoted."""
    known, revision = status.promoted_revisions, observation.revision
    if not revision or observation.flags:
        return known
    return (revision, *(one for one in known if one != revision))[:_MOST_REVISIONS]


def due_of(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> list[tuple[CandidateStatus, Due]]:
    """Return each candidate of which something is due, and what; the observation has no answers yet."""
    grouped = group(spec, _with_retries(spec, status, observation), observation, now)
    ticks = _ticks(spec, grouped.status, observation, now, {})
    dues = [
        (candidate, due(candidate, ticks[candidate.digest]))
        for candidate in grouped.status.candidates
        if candidate.digest not in grouped.new
    ]
    return [(candidate, one) for candidate, one in dues if one != Due()]


def with_summary(status: FlagRolloutStatus) -> FlagRolloutStatus:
    """Return the status with what it says of all candidates together."""
    candidates = status.candidates
    phases = {candidate.phase for candidate in candidates}
    ended = status.history[0].outcome if status.history else None
    rest = "Succeeded" if ended == "Promoted" else "Idle"
    exposed = [one for one in candidates if one.phase in {*IN_STEP, "Promoting"}]
    furthest = max(exposed, key=lambda one: (one.share or 0.0, one.step or 0), default=None)
    text = None
    if furthest is not None:
        text = " ".join(filter(None, (furthest.step_text, furthest.share_text)))
    return status.model_copy(
        update={
            "phase": next((phase for phase in _ATTENTION if phase in phases), rest),
            "running": sum(map(is_running, candidates)),
            "queued": sum(candidate.phase == "Queued" for candidate in candidates),
            "furthest": text,
        }
    )


def attention_of(status: FlagRolloutStatus) -> CandidateStatus | None:
    """Return the candidate that needs attention most; None: there is none."""
    return next((one for one in status.candidates if one.phase == status.phase), None)


def _with_retries(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation
) -> FlagRolloutStatus:
    """Begin anew with candidates that were stopped, where a person newly asks for it."""
    token = retry_token(spec, observation.annotations)
    if token == (status.handled_retry or ""):
        return status
    if any(candidate.phase == "RollingBack" for candidate in status.candidates):
        # A retry while evaluators still return is one of the failed rollout.
        return status
    failed = [candidate for candidate in status.candidates if candidate.phase == "Failed"]
    again = {one.digest for one in candidates_to_retry(failed, observation.annotations)} if token else set()
    stopped = status.stopped
    candidates = []
    for candidate in status.candidates:
        if candidate.digest in again:
            stopped = without_stopped(stopped, candidate)
            candidates.append(begin_again(candidate))
        else:
            candidates.append(candidate)
    update = {"candidates": tuple(candidates), "stopped": stopped, "handled_retry": token or None}
    return status.model_copy(update=update)


def _overridden(status: FlagRolloutStatus, observation: Observation) -> frozenset[str]:
    return frozenset(
        candidate.digest
        for candidate in status.candidates
        if candidate.flags.keys() & observation.overrides.keys()
    )


def _ticks(
    spec: FlagRolloutSpec,
    status: FlagRolloutStatus,
    observation: Observation,
    now: datetime,
    asked: Mapping[str, Asked],
) -> dict[str, Tick]:
    """Return the input of each candidate's decision. One candidate is promoted at a time: the promoted
    definitions of the next are those with it.
    """
    ticks: dict[str, Tick] = {}
    promoting = False
    for candidate in status.candidates:
        digest, keys = candidate.digest, sorted(candidate.flags)
        misfits = (observation.misfits[key] for key in keys if key in observation.misfits)
        overrides = {name for key in keys for name in observation.overrides.get(key, ())}
        tick = Tick(
            spec,
            now,
            observation.rollout,
            asked.get(digest, Asked()),
            misfit=next(misfits, None),
            served=observation.served.get(digest),
            metrics=observation.metrics.get(digest),
            answers=observation.answers.get(digest, {}),
            overrides=tuple(sorted(overrides)),
            hidden_from=tuple(observation.override_audiences.get(name, {}) for name in sorted(overrides)),
            missing=missing_reason(candidate, observation),
            paused=is_paused(spec, observation.annotations, candidate),
            skips=reason_to_skip(spec, status, candidate),
            promotion=None if promoting else observation.promotions.get(digest),
            audiences=observation.audiences,
            bucketing=observation.bucketing,
            advise=observation.advise,
        )
        promoting = promoting or (tick.promotion is not None and is_served(tick))
        ticks[digest] = tick
    return ticks


def suspend(spec: FlagRolloutSpec, status: FlagRolloutStatus, now: datetime) -> FlagRolloutStatus:
    """Return the status of a rollout that is suspended: only the clocks of its steps stand."""
    candidates = []
    for candidate in status.candidates:
        if candidate.phase in IN_STEP:
            stopped = with_exposure(spec, candidate, now, served=False, interrupted=True)
            held = stopped.model_copy(update={"reason": "Suspended", "message": None})
            candidates.append(with_waiting(candidate, held, now))
        else:
            candidates.append(candidate)
    return status.model_copy(update={"candidates": tuple(candidates)})


def _seconds_to_next(
    spec: FlagRolloutSpec,
    before: FlagRolloutStatus,
    after: FlagRolloutStatus,
    observation: Observation,
    now: datetime,
) -> float | None:
    """Return when to decide again: at once after a candidate began or changed its step."""
    if _steps_of(before) != _steps_of(after) or due_of(spec, after, observation, now):
        return 0.0
    waits = [seconds_to_next(spec, candidate, now) for candidate in after.candidates]
    forgotten = (moment_after(entry.since, spec.retention) for entry in after.absent)
    waits += [(moment - now).total_seconds() for moment in forgotten if moment is not None and moment > now]
    return min((wait for wait in waits if wait is not None), default=None)


def _steps_of(status: FlagRolloutStatus) -> list[tuple[object, ...]]:
    # The number of the step alone is not enough: steps may have been edited.
    return [(one.digest, one.phase, one.step, one.step_started_at) for one in status.candidates]
