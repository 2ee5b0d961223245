"""The deadline of a candidate that is held: announced, then kept or rolled back. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import precise_timestamp, timestamp
from controller.rollouts.machine.clocks import moment_after, parse_time
from controller.rollouts.machine.judgement import Cause
from controller.rollouts.machine.reasons import advice, held_text
from controller.rollouts.machine.step_order import present_step
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.api.rollouts.rollout_steps import Deadline
    from controller.rollouts.machine.observation import Tick

_COUNTING: Final = frozenset(
    {
        "CheckError", "CheckErrors", "CheckFailed", "Inconclusive", "NotServed", "OverrideEnded",
        "PreRolloutChecks", "PromotionNotServed", "WaitingForApproval", "WaitingForConfirmation",
        "WaitingForPromotion",
    }
)  # fmt: skip
"""Reasons for which a candidate waits for people, webhooks or checks. Nobody is late in a window, a pause or
a freeze, which somebody asked for.
"""


def deadline_of(spec: FlagRolloutSpec, status: CandidateStatus) -> tuple[Deadline, datetime] | None:
    """Return the deadline of a candidate that is held, and when it ends; None: it has none."""
    deadline = present_step(spec.steps, status).deadline or spec.deadline
    if deadline is None or status.reason not in _COUNTING:
        return None
    end = moment_after(status.held_since, deadline.after)
    return None if end is None else (deadline, end)


def deadline_moments(spec: FlagRolloutSpec, status: CandidateStatus) -> Iterator[datetime]:
    """Yield when a deadline is announced, and when it ends."""
    if (known := deadline_of(spec, status)) is not None:
        deadline, end = known
        yield end - timedelta(seconds=deadline.announce)
        yield end


def apply_deadline(
    status: CandidateStatus, tick: Tick
) -> tuple[CandidateStatus, tuple[Occurrence, ...], Cause | None]:
    """Announce the deadline of a candidate that is held; at its end say so once, or return the cause for
    which it is rolled back.
    """
    known = deadline_of(tick.spec, status)
    if known is None:
        return status, (), None
    deadline, end = known
    announced = parse_time(status.announced_at)
    rolls_back = deadline.action == "Rollback"
    if tick.now >= end:
        text = f"{held_text(status)}; its deadline ended {timestamp(end)}"
        if rolls_back:
            return status, (), Cause("DeadlineExceeded", text)
        if announced is not None and announced >= end:
            return status, (), None
        message = f"{text}, and it stays held; {advice(status, tick)}"
        event = Occurrence("DeadlineExceeded", message, warning=True)
    elif announced is None and tick.now >= end - timedelta(seconds=deadline.announce):
        then = "it is rolled back then" if rolls_back else "it stays held then"
        message = f"{held_text(status)}; its deadline ends {timestamp(end)}: {then}; {advice(status, tick)}"
        event = Occurrence("DeadlineNear", message, warning=True)
    else:
        return status, (), None
    return status.model_copy(update={"announced_at": precise_timestamp(tick.now)}), (event,), None
