"""Decides for `flagstaff wait` whether a revision went through all steps of its rollout. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.delivery.waiting import WaitState, wait_state

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.delivery.waiting import WaitTarget


def rollout_wait_state(
    rollout: Resource, configuration: Resource | None, flag_set: Resource | None, wanted: WaitTarget
) -> WaitState:
    """Return how far a revision has come: applied, then everybody's, by the FlagRollout of its flags."""
    state = wait_state(configuration, flag_set, wanted)
    if not state.done:
        return state
    entries = ConfigurationStatus.of(configuration).rollouts or ()
    entry = next((entry for entry in entries if entry.name == rollout.name), None)
    status = FlagRolloutStatus.of(rollout)
    if entry is None:
        return WaitState(False, f"FlagRollout {rollout.name} has not seen the flags yet")
    if not entry.candidate:
        return WaitState(True, f"{state.message}, everybody's by FlagRollout {rollout.name}")
    reason = f", {status.reason}" if status.reason else ""
    at = f"step {status.step_text}, " if status.step_text else ""
    message = f"FlagRollout {rollout.name}: {at}{status.phase or 'not reconciled yet'}{reason}"
    rolled_back = status.phase == "Failed" and status.failed_digest == entry.candidate
    return WaitState(False, message, over=rolled_back)
