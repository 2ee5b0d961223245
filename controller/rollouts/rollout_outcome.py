"""The outcome of a FlagRollout: Ready without a candidate, Reconciling during a rollout, Stalled while a
person must decide. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.rollouts.machine.reasons import reason_text
from controller.rollouts.machine.transitions import name_of
from controller.runtime.reconciling.result import Done
from controller.runtime.reconciling.setbacks import Stalled, Waiting

if TYPE_CHECKING:
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.rollouts.machine.observation import Misfit
    from controller.runtime.reconciling.setbacks import Setback


def outcome_of(status: FlagRolloutStatus, misfit: Misfit | None) -> Done | Setback:
    """Return the outcome of a status."""
    if status.phase == "Idle":
        return Done("everybody gets the promoted definitions, and Git has no others", "Idle")
    if status.phase == "Succeeded":
        return Done(f"{name_of(status.promoted)} is promoted: everybody gets it", "Succeeded")
    if status.phase in {"RollingBack", "Failed"}:
        why = status.history[0].reason if status.history else None
        return Stalled("RolledBack", f"{name_of(status.candidate)} is rolled back: {why}")
    if misfit is not None and status.reason == misfit.reason:
        return Stalled(misfit.reason, misfit.message)
    return Waiting(status.reason or status.phase or "Pending", _progress_text(status))


def _progress_text(status: FlagRolloutStatus) -> str:
    name = name_of(status.candidate)
    if status.phase == "Promoting":
        return f"{name} is promoted as soon as all evaluators serve it"
    if (text := reason_text(status, None)) and status.phase != "Progressing":
        return f"{name}: {text}"
    if status.step_text is None:
        return f"{name} is about to be rolled out"
    return f"{name} is rolled out, step {status.step_text}: {status.share_text} of users"
