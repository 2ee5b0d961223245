"""Why a rollout is held, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.rollouts.machine.observation import Misfit

_TEXTS: Final = {
    "Paused": "somebody paused it",
    "NotServed": "too few evaluators serve it",
    "PromotionNotServed": "the promotion was not served in time",
    "CheckErrors": "its checks cannot be made",
    "CheckFailed": "a check failed",
    "CheckError": "a check could not be made",
    "Inconclusive": "its checks have no value, or too few samples",
    "WaitingForApproval": "it waits for an approval",
    "WaitingForPromotion": "it waits for somebody to promote it",
    "WaitingForConfirmation": "a webhook has not confirmed it",
    "PreRolloutChecks": "a webhook of type pre-rollout has not confirmed it",
    "OutsideWindow": "it waits for its window",
    "Frozen": "a freeze is in force",
}


def reason_text(status: FlagRolloutStatus, misfit: Misfit | None) -> str:
    """Return in words at which step the rollout is held, and why; empty if it is not."""
    if status.reason is None:
        return ""
    place = f"step {status.step_text}" if status.step_text else "the first step"
    if misfit is not None and misfit.reason == status.reason:
        return f"{place} is held: {misfit.message}"
    text = _TEXTS.get(status.reason)
    return f"{place} is held: {text}" if text else ""
