"""Why a candidate is held, in words, and what a person may do. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import timestamp
from controller.delivery.state.actions import Abort, Approve, ResumeCandidate
from controller.delivery.state.state_words import HELD_WORDS, names_text
from controller.rollouts.machine.windows import next_opening

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.rollouts.machine.observation import Tick

_LISTED: Final = 19
"""Characters of a digest where no commit is known: `sha256:` and twelve digits."""
FOR_APPROVAL: Final = frozenset({"WaitingForApproval", "WaitingForPromotion"})
_FROM_CHECKS: Final = frozenset(
    {
        "CheckError", "CheckErrors", "CheckFailed", "Inconclusive", "PreRolloutChecks",
        "WaitingForConfirmation",
    }
)  # fmt: skip
"""Reasons whose cause is what a metric or a webhook said."""


def name_of(candidate: CandidateStatus) -> str:
    """Return the name of a candidate for people: its commit, or its digest, and its flags."""
    return f"{candidate.revision or candidate.digest[:_LISTED]} ({flags_text(candidate.flags)})"


def flags_text(flags: Iterable[str]) -> str:
    """The flags of a candidate for people."""
    return names_text(sorted(flags)) or "no flag"


def message_of(status: CandidateStatus, tick: Tick) -> str | None:
    """Return the cause for which a candidate is held now; None: its reason says all."""
    reason, message = status.reason, None
    if reason in _FROM_CHECKS:
        message = status.message
    elif reason == "OverrideActive":
        message = f"FlagOverride {names_text(tick.overrides)}"
    elif reason == "OverrideEnded":
        message = f"FlagOverride {status.interrupted_by}"
    elif reason in {"Frozen", "OutsideWindow"}:
        message = _opening_text(tick)
    elif tick.misfit is not None and reason == tick.misfit.reason:
        message = tick.misfit.message
    return message


def _opening_text(tick: Tick) -> str:
    spec = tick.spec
    freezes = (period for period in spec.freeze if period.bounds[0] <= tick.now < period.bounds[1])
    why = "".join(f"{period.reason}; " for period in freezes if period.reason)
    opening = next_opening(spec.windows, spec.freeze, tick.now)
    return f"{why}until {timestamp(opening)}" if opening is not None else f"{why}no end is in sight"


def held_text(status: CandidateStatus) -> str:
    """Return in words at which step a candidate is held, and why; empty if it is not."""
    if status.reason is None:
        return ""
    place = f"step {status.step_text}" if status.step_text else "the first step"
    words = HELD_WORDS.get(status.reason, "")
    why = ": ".join(filter(None, (words, status.message)))
    return f"{place} of {name_of(status)} is held: {why or status.reason}"


def advice(status: CandidateStatus, tick: Tick) -> str:
    """Return what a person may do about a candidate that is held; empty: nothing but to mend the cause."""
    digest, rollout = status.digest, tick.rollout
    if status.reason in FOR_APPROVAL:
        approve = tick.advise(Approve(rollout, digest, status.gate))
        return f"to approve: {approve}; to roll back: {tick.advise(Abort(rollout, digest))}"
    if status.reason == "OverrideEnded":
        resume = tick.advise(ResumeCandidate(rollout, digest))
        return f"to go on: {resume}; to roll back: {tick.advise(Abort(rollout, digest))}"
    return f"to roll back: {tick.advise(Abort(rollout, digest))}"
