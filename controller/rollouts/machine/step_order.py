"""The steps of a rollout: which one is next, and what users get in it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.api.rollouts.rollout_steps import Step


def next_step(steps: Sequence[Step], status: CandidateStatus) -> int | None:
    """Return the index of the first step that adds users to those of a candidate; None: none does. So a
    rollout whose steps are edited continues with the first step that adds users, and takes nobody back.
    """
    for index, step in enumerate(steps):
        if step.share is not None and step.share > (status.share or 0.0):
            return index
        if step.audience is not None and step.audience not in status.written_audiences:
            return index
    return None


def present_step(steps: Sequence[Step], status: CandidateStatus) -> Step:
    """Return the step that is served, as the spec has it now: the last one before the next."""
    index = next_step(steps, status)
    return steps[-1] if index is None else steps[max(index - 1, 0)]


def share_at(steps: Sequence[Step], index: int) -> float:
    """Return the percentage of users who get the new definition in a step; audiences do not change it."""
    return max((step.share for step in steps[: index + 1] if step.share is not None), default=0.0)


def share_text(share: float, audiences: Sequence[dict[str, Any]]) -> str:
    """Return in words which users get the new definition."""
    parts = ["audience"] * bool(audiences) + [f"{share:g}%"] * bool(share)
    return " + ".join(parts) or "0%"
