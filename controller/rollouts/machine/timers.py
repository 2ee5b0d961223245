"""When the next deadline, check or window of a candidate is due. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from controller.rollouts.machine.clocks import exposed_seconds, moment_after
from controller.rollouts.machine.deadlines import deadline_moments
from controller.rollouts.machine.step_order import present_step
from controller.rollouts.machine.windows import is_open, next_opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import CandidateStatus


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
    if phase in {"Pending", "Paused"} and not is_open(spec.windows, spec.freeze, now):
        yield next_opening(spec.windows, spec.freeze, now)
