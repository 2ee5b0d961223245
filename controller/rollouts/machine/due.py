"""Which metrics and webhooks of a candidate are due. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.rollouts.machine.clocks import is_check_due
from controller.rollouts.machine.gates import Gate, interruption, is_served, start_gate, step_gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import Webhook
    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.rollouts.machine.observation import Tick

IN_STEP: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
"""Phases in which a step is served."""


class Due(NamedTuple):
    """The checks and webhook calls that are made before the state machine decides."""

    metrics: bool = False
    hooks: tuple[Webhook, ...] = ()


def due(status: CandidateStatus, tick: Tick) -> Due:
    """Return what is due by the status of a candidate; the tick has no answers yet."""
    spec, now, phase = tick.spec, tick.now, status.phase
    if phase == "Failed":
        return Due(hooks=tuple(_of_type(spec, "post-rollout")) if status.post_rollout_at is None else ())
    if phase == "Promoting":
        hooks = list(_of_type(spec, "rollback") if _is_due(status, tick, status.step_started_at) else ())
        if not hooks and tick.promotion is not None and is_served(tick) and status.verdict != "Error":
            # The candidate is promoted with their answers, whatever they are.
            hooks += _of_type(spec, "post-rollout")
        return Due(hooks=tuple(hooks))
    if phase == "Pending":
        check = is_check_due(spec, status, None, now)
        rollback = tuple(_of_type(spec, "rollback")) if check else ()
        return Due(hooks=(*rollback, *_gate_webhooks(status, start_gate(status, tick), check=check)))
    return _due_in_step(status, tick) if phase in IN_STEP else Due()


def _due_in_step(status: CandidateStatus, tick: Tick) -> Due:
    spec = tick.spec
    exposed = status.propagated_at is not None and is_served(tick) and interruption(status, tick) is None
    check = _is_due(status, tick, status.measured_since or status.step_started_at)
    hooks = list(_of_type(spec, "rollback")) if check else []
    # While nobody is exposed, what is measured is not of this candidate.
    if check and exposed and not tick.skips:
        hooks += _of_type(spec, "rollout")
    hooks += _gate_webhooks(status, step_gate(status, tick), check=check)
    return Due(bool(spec.analysis.metrics) and check and exposed and not tick.skips, tuple(hooks))


def _is_due(status: CandidateStatus, tick: Tick, since: str | None) -> bool:
    return is_check_due(tick.spec, status, since, tick.now)


def _gate_webhooks(status: CandidateStatus, gate: Gate | None, *, check: bool) -> tuple[Webhook, ...]:
    """Return the webhooks that a gate waits for: at once if the gate is new, then with each check."""
    if gate is None or not (check or status.reason != gate.reason):
        return ()
    return gate.hooks


def _of_type(spec: FlagRolloutSpec, type_: str) -> Iterator[Webhook]:
    return (hook for hook in spec.webhooks if hook.type == type_)
