"""The gates of a rollout: why it may not begin, take its next step, or be promoted. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.rollouts.flagrollout import PAUSE
from controller.api.rollouts.rollout_status import PROMOTION
from controller.rollouts.machine.clocks import seconds_since
from controller.rollouts.machine.step_order import next_step, present_step
from controller.rollouts.machine.windows import is_frozen, is_open

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import Webhook, WebhookType
    from controller.api.rollouts.rollout_status import FlagRolloutStatus, Phase
    from controller.rollouts.machine.observation import Observation

UNCONFIRMED: Final = "WaitingForConfirmation"
NOT_PROMOTED: Final = "PromotionNotServed"


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a rollout stays at its step."""

    phase: Phase
    reason: str | None = None
    hooks: tuple[Webhook, ...] = ()
    """Webhooks that have not confirmed."""


def is_paused(spec: FlagRolloutSpec, annotations: Mapping[str, str]) -> bool:
    """Whether somebody has paused the rollout, in its spec or by annotation."""
    return spec.pause or annotations.get(PAUSE, "").lower() == "true"


def is_immediate(spec: FlagRolloutSpec, status: FlagRolloutStatus, desired: str) -> bool:
    """Whether a change needs no steps: the spec skips them, or its definitions were promoted lately.
    `desired`: the digest of all of the rollout's definitions as Git has them.
    """
    return spec.skip_analysis or desired in status.recent_digests[: spec.rollback_window.revisions]


def is_approved(status: FlagRolloutStatus, gate: str) -> bool:
    """Whether a gate was opened for the candidate."""
    return any(approval.gate == gate for approval in status.approvals)


def confirmation(hook: Webhook, status: FlagRolloutStatus) -> str:
    """Return the name of the gate that an approval by a webhook opens at this step."""
    return f"{hook.type}/{hook.name}/{status.step_text or 0}"


def unconfirmed_webhooks(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, type_: WebhookType
) -> tuple[Webhook, ...]:
    """Return the webhooks of a type that have not confirmed at this step."""
    hooks = (hook for hook in spec.webhooks if hook.type == type_)
    return tuple(hook for hook in hooks if not is_approved(status, confirmation(hook, status)))


def start_gate(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Gate | None:
    """Return the first closed gate before the first step; None: the step may begin."""
    return next(_start_gates(spec, status, observation, now), None)


def _start_gates(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Iterator[Gate]:
    if status.reason == NOT_PROMOTED and not is_served(spec, observation):
        yield Gate("Pending", NOT_PROMOTED)
    if is_paused(spec, observation.annotations):
        yield Gate("Pending", "Paused")
    if is_immediate(spec, status, observation.desired.digest):
        return
    if observation.misfit is not None:
        yield Gate("Pending", observation.misfit.reason)
    if (closed := _closed_reason(spec, now)) is not None:
        yield Gate("Pending", closed)
    if hooks := unconfirmed_webhooks(spec, status, "confirm-rollout"):
        yield Gate("Pending", UNCONFIRMED, hooks)
    if hooks := unconfirmed_webhooks(spec, status, "pre-rollout"):
        yield Gate("Pending", "PreRolloutChecks", hooks)


def step_gate(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Gate | None:
    """Return the first closed gate of the step; None: the next step, or the promotion, may begin."""
    if is_paused(spec, observation.annotations):
        return Gate("Paused", "Paused")
    if observation.misfit is not None:
        # An audience that was added meanwhile makes the rule too large for the step that would have it.
        return Gate("Paused", observation.misfit.reason)
    unfinished = _propagation_gate(spec, status, now) or _check_gate(spec, status, now)
    return unfinished or next(_end_gates(spec, status, now), None)


def _end_gates(spec: FlagRolloutSpec, status: FlagRolloutStatus, now: datetime) -> Iterator[Gate]:
    """Yield the closed gates of a step whose duration and checks are complete."""
    step = present_step(spec.steps, status)
    if step.approval is not None and not is_approved(status, status.step_gate):
        yield Gate("Paused", "WaitingForApproval")
    if (closed := _closed_reason(spec, now)) is not None:
        yield Gate("Paused", closed)
    if next_step(spec.steps, status.share or 0.0, status.audiences) is not None:
        if hooks := unconfirmed_webhooks(spec, status, "confirm-increase"):
            yield Gate("Paused", UNCONFIRMED, hooks)
        return
    if spec.promotion == "Manual" and not is_approved(status, PROMOTION):
        yield Gate("WaitingPromotion", "WaitingForPromotion")
    if hooks := unconfirmed_webhooks(spec, status, "confirm-promotion"):
        yield Gate("WaitingPromotion", UNCONFIRMED, hooks)


def is_served(spec: FlagRolloutSpec, observation: Observation) -> bool:
    """Whether enough evaluators serve what the status says; true if there are none."""
    served = observation.served
    return served is not None and served.served * 100 >= served.total * spec.propagation.ready_threshold


def _propagation_gate(spec: FlagRolloutSpec, status: FlagRolloutStatus, now: datetime) -> Gate | None:
    if status.propagated_at is not None:
        return None
    if status.reason == NOT_PROMOTED:
        return Gate("Paused", NOT_PROMOTED)
    late = seconds_since(status.step_started_at, now) >= spec.propagation.deadline
    return Gate("Paused", "NotServed") if late else Gate("Progressing")


def _check_gate(spec: FlagRolloutSpec, status: FlagRolloutStatus, now: datetime) -> Gate | None:
    """Return the gate of duration and checks; None: the step lasted long enough, and its checks are good."""
    analysis, verdict, checks = spec.analysis, status.verdict, status.checks
    if checks is not None and checks.consecutive_errors >= analysis.consecutive_error_limit:
        return Gate("Paused", "CheckErrors")
    bad = {"Fail": "CheckFailed", "Error": "CheckError"}.get(verdict or "")
    lasted = seconds_since(status.propagated_at, now)
    needs_check = has_checks(spec) and (verdict is None or bad is not None)
    if needs_check or lasted < (present_step(spec.steps, status).min_duration or 0.0):
        return Gate("Progressing", bad)
    if verdict != "Inconclusive" or analysis.on_inconclusive == "Advance":
        return None
    return Gate("Paused" if analysis.on_inconclusive == "Hold" else "RollingBack", "Inconclusive")


def has_checks(spec: FlagRolloutSpec) -> bool:
    """Whether a step has checks that count."""
    return any(not metric.dry_run for metric in spec.analysis.metrics) or any(
        hook.type == "rollout" for hook in spec.webhooks
    )


def _closed_reason(spec: FlagRolloutSpec, now: datetime) -> str | None:
    if is_open(spec.windows, spec.freeze, now):
        return None
    return "Frozen" if is_frozen(spec.freeze, now) else "OutsideWindow"
