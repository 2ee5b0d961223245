"""Decides for `flagstaff wait` whether a revision went through all steps of its rollout. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.delivery.waiting import WaitState, wait_state

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.delivery.waiting import WaitTarget


def rollout_wait_state(
    rollout: Resource, configuration: Resource | None, flag_set: Resource | None, wanted: WaitTarget
) -> WaitState:
    """Return how far a revision has come: applied, then everybody's, by the FlagRollout of its flags."""
    state = wait_state(configuration, flag_set, wanted)
    if not state.done:
        return state
    entries = [
        entry for entry in ConfigurationStatus.of(configuration).rollouts or () if entry.name == rollout.name
    ]
    if not entries:
        return WaitState(False, f"FlagRollout {rollout.name} has not seen the flags yet")
    pending = [entry for entry in entries if entry.flags]
    if not pending:
        return WaitState(True, f"{state.message}, everybody's by FlagRollout {rollout.name}")
    known = {candidate.digest: candidate for candidate in FlagRolloutStatus.of(rollout).candidates}
    candidates = [known.get(entry.candidate or "") for entry in pending]
    message = f"FlagRollout {rollout.name}: {'; '.join(map(_text, candidates))}"
    stopped = all(candidate is not None and candidate.phase == "Failed" for candidate in candidates)
    return WaitState(False, message, over=stopped)


def _text(candidate: CandidateStatus | None) -> str:
    if candidate is None:
        return "not reconciled yet"
    at = f"step {candidate.step_text}, " if candidate.step_text else ""
    reason = f", {candidate.reason}" if candidate.reason else ""
    return f"{at}{candidate.phase}{reason}"
