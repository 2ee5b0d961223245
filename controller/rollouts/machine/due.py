"""Which metrics and webhooks of a rollout are due. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.rollouts.machine.clocks import is_check_due
from controller.rollouts.machine.gates import Gate, start_gate, step_gate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import Webhook
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.rollouts.machine.observation import Observation

IN_STEP: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
"""Phases in which a step is served."""


class Due(NamedTuple):
    """The checks and webhook calls that are made before the state machine decides."""

    metrics: bool = False
    hooks: tuple[Webhook, ...] = ()


def due(spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime) -> Due:
    """Return what is due by the status and the observation, which has no answers yet."""
    phase = status.phase
    if phase in {"Succeeded", "Failed"}:
        hooks = _of_type(spec, "post-rollout") if _lacks_post_rollout(status) else ()
        return Due(hooks=tuple(hooks))
    candidate = observation.candidate
    if candidate is None or status.candidate is None or status.candidate.digest != candidate.digest:
        return Due()
    if phase == "Promoting":
        check = is_check_due(spec, status, status.step_started_at, now)
        return Due(hooks=tuple(_of_type(spec, "rollback")) if check else ())
    if phase == "Pending":
        check = is_check_due(spec, status, None, now)
        gate = start_gate(spec, status, observation, now)
        rollback = tuple(_of_type(spec, "rollback")) if check else ()
        return Due(hooks=(*rollback, *_gate_webhooks(status, gate, check=check)))
    return _due_in_step(spec, status, observation, now) if phase in IN_STEP else Due()


def _due_in_step(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Due:
    served = status.propagated_at is not None
    check = is_check_due(spec, status, status.propagated_at or status.step_started_at, now)
    hooks = list(_of_type(spec, "rollback")) if check else []
    if check and served:
        hooks += _of_type(spec, "rollout")
    gate = step_gate(spec, status, observation, now)
    hooks += _gate_webhooks(status, gate, check=check)
    return Due(bool(spec.analysis.metrics) and check and served, tuple(hooks))


def _gate_webhooks(status: FlagRolloutStatus, gate: Gate | None, *, check: bool) -> tuple[Webhook, ...]:
    """Return the webhooks that a gate waits for: at once if the gate is new, then with each check."""
    if gate is None or not (check or status.reason != gate.reason):
        return ()
    return gate.hooks


def _lacks_post_rollout(status: FlagRolloutStatus) -> bool:
    return status.post_rollout_at is None and bool(status.history)


def _of_type(spec: FlagRolloutSpec, type_: str) -> Iterator[Webhook]:
    return (hook for hook in spec.webhooks if hook.type == type_)
