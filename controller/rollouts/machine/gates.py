"""The gates of a candidate: why it may not begin, take its next step, or be promoted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api.rollouts.rollout_status import PROMOTION
from controller.rollouts.machine.clocks import exposed_seconds, seconds_since
from controller.rollouts.machine.recent import earlier_definitions
from controller.rollouts.machine.step_order import next_step, present_step
from controller.rollouts.machine.windows import is_frozen, is_open

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import Webhook, WebhookType
    from controller.api.rollouts.rollout_status import CandidatePhase, CandidateStatus, FlagRolloutStatus
    from controller.rollouts.machine.observation import Tick

UNCONFIRMED: Final = "WaitingForConfirmation"
NOT_PROMOTED: Final = "PromotionNotServed"
DEMANDED: Final = "demanded"
"""The gate that a request to promote opens: no override interrupts the promotion then."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a candidate stays at its step."""

    phase: CandidatePhase
    reason: str | None = None
    hooks: tuple[Webhook, ...] = ()
    """Webhooks that have not confirmed."""


def reason_to_skip(spec: FlagRolloutSpec, status: FlagRolloutStatus, candidate: CandidateStatus) -> str:
    """Return why a candidate needs no steps: `skipAnalysis`, or `rollbackWindow` where all of its definitions
    were in force before the present ones, and no person or check stopped them; else an empty text.
    """
    if spec.skip_analysis:
        return "skipAnalysis"
    if spec.rollback_window is None or not candidate.flags:
        return ""
    stopped = {(entry.flag, entry.definition) for entry in status.stopped}
    for key, definition in candidate.flags.items():
        earlier = earlier_definitions(status, key)
        counting = [digest for digest in earlier if not digest.startswith("!")]
        if f"!{definition}" in earlier or (key, definition) in stopped:
            return ""
        if definition not in counting[: spec.rollback_window.revisions]:
            return ""
    return "rollbackWindow"


def is_approved(status: CandidateStatus, gate: str) -> bool:
    """Whether a gate was opened for the candidate."""
    return any(approval.gate == gate for approval in status.approvals)


def confirmation(hook: Webhook, status: CandidateStatus) -> str:
    """Return the name of the gate that an approval by a webhook opens at this step."""
    return f"{hook.type}/{hook.name}/{status.step_text or 0}"


def interruption(status: CandidateStatus, tick: Tick) -> str | None:
    """Return why users do not get the definitions, or are not to get more; None: nothing interrupts it."""
    if tick.overrides:
        return "OverrideActive"
    if status.withheld:
        # After the override, too, users do not get the definitions before somebody decides.
        return "OverrideEnded"
    return tick.missing or None


def hold_reason(status: CandidateStatus, tick: Tick) -> str | None:
    """Return why somebody keeps the candidate from going on; None: nobody does."""
    if (interrupted := interruption(status, tick)) is not None:
        return interrupted
    if status.interrupted_by is not None:
        return "OverrideEnded"
    if tick.paused:
        return "Paused"
    if tick.misfit is not None and not tick.skips:
        return tick.misfit.reason
    return None


def start_gate(status: CandidateStatus, tick: Tick) -> Gate | None:
    """Return the first closed gate before the first step; None: the step may begin."""
    gate = next(_start_gates(status, tick), None)
    return None if gate is None else _with_errors(gate, status, tick)


def _start_gates(status: CandidateStatus, tick: Tick) -> Iterator[Gate]:
    spec = tick.spec
    if status.reason == NOT_PROMOTED and not is_served(tick):
        yield Gate("Pending", NOT_PROMOTED)
    if (held := hold_reason(status, tick)) is not None:
        yield Gate("Pending", held)
    if status.verdict == "Error":
        # Only a webhook of type rollback is asked before the first step: nobody could stop the rollout.
        yield Gate("Pending", "CheckErrors")
    if (closed := closed_reason(tick)) is not None:
        yield Gate("Pending", closed)
    if hooks := unconfirmed_webhooks(spec, status, "confirm-rollout"):
        yield Gate("Pending", UNCONFIRMED, hooks)
    if hooks := unconfirmed_webhooks(spec, status, "pre-rollout"):
        yield Gate("Pending", "PreRolloutChecks", hooks)
    if tick.skips:
        yield from _promotion_gates(status, tick, "Pending")


def step_gate(status: CandidateStatus, tick: Tick) -> Gate | None:
    """Return the first closed gate of the step; None: the next step, or the promotion, may begin."""
    if (held := hold_reason(status, tick)) is not None:
        return Gate("Paused", held)
    unserved = status.propagated_at is None
    gate = _propagation_gate(status, tick) if unserved else None
    gate = gate or _check_gate(status, tick) or next(_end_gates(status, tick), None)
    if unserved and gate in (None, Gate("Progressing")):
        # A moment without enough evaluators is no reason to hold it, and no time to go on.
        return Gate("Progressing", "NotServed" if status.unexposed_since else None)
    return None if gate is None else _with_errors(gate, status, tick)


def _end_gates(status: CandidateStatus, tick: Tick) -> Iterator[Gate]:
    """Yield the closed gates of a step whose duration and checks are complete."""
    spec = tick.spec
    if present_step(spec.steps, status).approval is not None and not is_approved(status, status.step_gate):
        yield Gate("Paused", "WaitingForApproval")
    if (closed := closed_reason(tick)) is not None:
        yield Gate("Paused", closed)
    if tick.skips or next_step(spec.steps, status) is None:
        yield from _promotion_gates(status, tick, "WaitingPromotion")
    elif hooks := unconfirmed_webhooks(spec, status, "confirm-increase"):
        yield Gate("Paused", UNCONFIRMED, hooks)


def _promotion_gates(status: CandidateStatus, tick: Tick, phase: CandidatePhase) -> Iterator[Gate]:
    """Yield the closed gates before the promotion: where steps are skipped, those of these steps, too."""
    spec = tick.spec
    skipped = bool(tick.skips) and next_step(spec.steps, status) is not None
    by_people = spec.promotion == "Manual" or (skipped and any(step.approval for step in spec.steps))
    if by_people and not is_approved(status, PROMOTION):
        yield Gate(phase, "WaitingForPromotion")
    if skipped and (hooks := unconfirmed_webhooks(spec, status, "confirm-increase")):
        yield Gate(phase, UNCONFIRMED, hooks)
    if hooks := unconfirmed_webhooks(spec, status, "confirm-promotion"):
        yield Gate(phase, UNCONFIRMED, hooks)


def unconfirmed_webhooks(
    spec: FlagRolloutSpec, status: CandidateStatus, type_: WebhookType
) -> tuple[Webhook, ...]:
    """Return the webhooks of a type that have not confirmed at this step."""
    hooks = (hook for hook in spec.webhooks if hook.type == type_)
    return tuple(hook for hook in hooks if not is_approved(status, confirmation(hook, status)))


def _with_errors(gate: Gate, status: CandidateStatus, tick: Tick) -> Gate:
    """Return the gate; once its webhooks did not answer for too often, it is one of errors."""
    limit = tick.spec.analysis.consecutive_error_limit
    if gate.hooks and status.checks is not None and status.checks.consecutive_errors >= limit:
        return replace(gate, phase="Pending" if gate.phase == "Pending" else "Paused", reason="CheckErrors")
    return gate


def is_served(tick: Tick) -> bool:
    """Whether enough evaluators serve what the status says; true if there are none."""
    served, threshold = tick.served, tick.spec.propagation.ready_threshold
    return served is not None and served.served * 100 >= served.total * threshold


def _propagation_gate(status: CandidateStatus, tick: Tick) -> Gate | None:
    if status.reason == NOT_PROMOTED:
        return Gate("Paused", NOT_PROMOTED)
    since = status.unexposed_since or status.step_started_at
    late = seconds_since(since, tick.now) >= tick.spec.propagation.deadline
    if late:
        return Gate("Paused", "NotServed")
    return None if status.unexposed_since else Gate("Progressing")


def _check_gate(status: CandidateStatus, tick: Tick) -> Gate | None:
    """Return the gate of duration and checks; None: the step lasted long enough, and its checks are good."""
    spec, verdict, checks = tick.spec, status.verdict, status.checks
    if tick.skips:
        # Metrics are not asked; without an answer of a webhook of type rollback nobody could stop it.
        return Gate("Paused", "CheckErrors") if verdict == "Error" else None
    limit = spec.analysis.consecutive_error_limit
    if verdict == "Error" and checks is not None and checks.consecutive_errors >= limit:
        return Gate("Paused", "CheckErrors")
    bad = {"Fail": "CheckFailed", "Error": "CheckError"}.get(verdict or "")
    needs_check = has_checks(spec) and (verdict is None or bad is not None)
    lasted = exposed_seconds(status, tick.now)
    if needs_check or lasted < (present_step(spec.steps, status).min_duration or 0.0):
        return Gate("Progressing", bad)
    if verdict != "Inconclusive" or spec.analysis.on_inconclusive == "Advance":
        return None
    return Gate("Paused" if spec.analysis.on_inconclusive == "Hold" else "RollingBack", "Inconclusive")


def has_checks(spec: FlagRolloutSpec) -> bool:
    """Whether a step has checks that count."""
    return any(not metric.dry_run for metric in spec.analysis.metrics) or any(
        hook.type in {"rollout", "rollback"} for hook in spec.webhooks
    )


def closed_reason(tick: Tick) -> str | None:
    """Return why no step may be taken at this time; None: one may."""
    spec = tick.spec
    if is_open(spec.windows, spec.freeze, tick.now):
        return None
    return "Frozen" if is_frozen(spec.freeze, tick.now) else "OutsideWindow"
