"""The outcome of a FlagRollout: Ready without a candidate, Reconciling during a rollout, Stalled while a
person must decide. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.delivery.state.state_words import count_text
from controller.rollouts.machine.decide import attention_of
from controller.rollouts.machine.reasons import held_text, name_of
from controller.runtime.reconciling.result import Done
from controller.runtime.reconciling.setbacks import Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.rollouts.rollout_status import CandidateStatus, FlagRolloutStatus
    from controller.rollouts.machine.observation import Misfit
    from controller.runtime.reconciling.setbacks import Setback


def outcome_of(status: FlagRolloutStatus, misfits: Mapping[str, Misfit]) -> Done | Setback:
    """Return the outcome of a status: that of the candidate that needs attention most."""
    candidate = attention_of(status)
    if candidate is None:
        return _resting(status)
    count = len(status.candidates) - 1
    others = f"; beside {count_text(count, 'other change')}" if count else ""
    if candidate.phase in {"RollingBack", "Failed"}:
        why = candidate.message or candidate.reason
        return Stalled("RolledBack", f"{name_of(candidate)} is rolled back: {why}")
    reason = candidate.reason
    misfit = next((misfits[key] for key in sorted(candidate.flags) if key in misfits), None)
    if misfit is not None and reason == misfit.reason:
        return Stalled(misfit.reason, held_text(candidate))
    return Waiting(reason or candidate.phase, f"{_progress_text(candidate)}{others}")


def _resting(status: FlagRolloutStatus) -> Done:
    if status.phase != "Succeeded" or status.promoted is None:
        return Done("everybody gets the promoted definitions, and Git has no others", "Idle")
    name = status.promoted.revision or status.promoted.digest
    return Done(f"{name} is promoted: everybody gets it", "Succeeded")


def _progress_text(candidate: CandidateStatus) -> str:
    name = name_of(candidate)
    if candidate.phase == "Promoting":
        return f"{name} is promoted as soon as all evaluators serve it"
    if candidate.phase == "Queued":
        return f"{name} waits for other changes to end"
    if candidate.reason is not None and candidate.phase != "Progressing":
        return held_text(candidate)
    if candidate.step_text is None:
        return f"{name} is about to be rolled out"
    return f"{name} is rolled out, step {candidate.step_text}: {candidate.share_text} of users"
