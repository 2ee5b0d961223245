"""The gates of a candidate: why it may not begin, take its next step, or be promoted, in words, too. Pure.

The definitions that a flag had before its promoted one are kept for `spec.rollbackWindow`.

They are a stack for each flag: a promotion of one of them takes those off that came after it, since these
were taken back. An entry is `KEY=DIGEST`; `KEY=!DIGEST` marks a definition that an override hid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from controller.api.flagoverride import moment_of
from controller.api.rollout_status import PROMOTION, CandidatePhase, CandidateStatus, FlagRolloutStatus
from controller.delivery.actions import Abort, Approve, ResumeCandidate
from controller.delivery.state_words import HELD_WORDS, names_text
from controller.rollouts.clocks import date_of_next, exposed_seconds, next_step, present_step, seconds_since
from evaluator.host.times import read_clock, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from controller.api.flagrollout import FlagRolloutSpec, Freeze, Webhook, WebhookType, Window
    from controller.rollouts.observation import Observation, Tick


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_WEEK: Final = 8
"""Days among which each window opens once at least, this day included."""
_FREEZES: Final = 64
"""Most times of freeze in a spec."""


def is_open(windows: Sequence[Window], freeze: Iterable[Freeze], at: datetime) -> bool:
    """Whether a step may be taken at a moment, which is aware."""
    return not is_frozen(freeze, at) and (not windows or any(_holds(window, at) for window in windows))


def is_frozen(freeze: Iterable[Freeze], at: datetime) -> bool:
    """Whether a moment is in one of the times of freeze."""
    return any(begin <= at < end for begin, end in (period.bounds for period in freeze))


def next_opening(windows: Sequence[Window], freeze: Sequence[Freeze], at: datetime) -> datetime | None:
    """Return the first moment from `at` on at which a step may be taken, in UTC; None: none was found."""
    try:
        return _find_opening(windows, freeze, at.astimezone(UTC))
    except OverflowError:
        # A freeze that ends with the calendar.
        return None


def _find_opening(windows: Sequence[Window], freeze: Sequence[Freeze], at: datetime) -> datetime | None:
    for _ in range(_FREEZES + 1):
        if windows and not any(_holds(window, at) for window in windows):
            openings = (moment for window in windows for moment in _openings(window, at))
            at = min((moment for moment in openings if moment > at), default=at)
        ends = [end for begin, end in (period.bounds for period in freeze) if begin <= at < end]
        if not ends:
            return at if is_open(windows, freeze, at) else None
        at = max(ends)
    return None


def _holds(window: Window, at: datetime) -> bool:
    """Whether a window is open by the clocks of its time zone: twice in an hour that they repeat, never in
    one that they skip.
    """
    local = at.astimezone(ZoneInfo(window.time_zone))
    begin, end = read_clock(window.from_), read_clock(window.to)
    clock, today = local.time(), _DAYS[local.weekday()]
    if begin < end:
        return today in window.days and begin <= clock < end
    yesterday = _DAYS[local.weekday() - 1]
    return (today in window.days and clock >= begin) or (yesterday in window.days and clock < end)


def _openings(window: Window, at: datetime) -> Iterator[datetime]:
    """Yield moments at which a window opens, in UTC, in no order: all those within a week among them."""
    zone = ZoneInfo(window.time_zone)
    begin = read_clock(window.from_)
    first = at.astimezone(zone).date() - _DAY
    for days, fold in product(range(_WEEK + 2), (0, 1)):
        local = datetime.combine(first + days * _DAY, begin, zone).replace(fold=fold)
        moment = local.astimezone(UTC)
        if _holds(window, moment):
            yield moment
        if moment.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None) and not fold:
            yield from _after_gap(window, moment)


def _after_gap(window: Window, moment: datetime) -> Iterator[datetime]:
    """Yield when a window opens whose first minutes the clocks skip: at the first minute after the gap."""
    earlier = (moment - minutes * _MINUTE for minutes in range(120, -1, -1))
    yield from (minute for minute in earlier if _holds(window, minute))


_MOST: Final = 64


def earlier_definitions(status: FlagRolloutStatus, flag: str) -> list[str]:
    """Return the entries of a flag without its key, the newest first."""
    parts = (entry.rpartition("=") for entry in status.recent_digests)
    return [digest for key, _, digest in parts if key == flag]


def with_promoted(
    status: FlagRolloutStatus, candidate: CandidateStatus, observation: Observation
) -> tuple[str, ...]:
    """Return the entries after the promotion of a candidate."""
    recent: list[str] = []
    others = [entry for entry in status.recent_digests if entry.rpartition("=")[0] not in candidate.flags]
    for key, definition in candidate.flags.items():
        earlier = earlier_definitions(status, key)
        before = observation.promoted_definitions.get(key)
        if definition in earlier:
            earlier = earlier[earlier.index(definition) + 1 :]
        elif before is not None and f"!{before}" not in earlier:
            earlier = [before, *earlier]
        recent += [f"{key}={digest}" for digest in earlier]
    return (*recent, *others)[:_MOST]


def with_overridden(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation
) -> FlagRolloutStatus:
    """Mark the definitions that overrides hide: nobody goes back to them without steps."""
    if spec.rollback_window is None:
        return status
    hidden = {key: observation.promoted_definitions.get(key) for key in observation.overrides}
    marks = [f"{key}=!{digest}" for key, digest in sorted(hidden.items()) if digest is not None]
    marks += [
        f"{key}=!{digest}"
        for candidate in status.candidates
        for key, digest in sorted(candidate.flags.items())
        if key in observation.overrides
    ]
    new = [mark for mark in marks if mark not in status.recent_digests]
    return status.model_copy(update={"recent_digests": (*new, *status.recent_digests)[:_MOST]})


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
    if (closed := closed_reason(status, tick)) is not None:
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
    if (closed := closed_reason(status, tick)) is not None:
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


def closed_reason(status: CandidateStatus, tick: Tick) -> str | None:
    """Return why the next step may not be taken at this time; None: it may."""
    spec, date = tick.spec, date_of_next(tick.spec.steps, status)
    if date is not None and tick.now < moment_of(date) and not tick.skips:
        return "WaitingForDate"
    if is_open(spec.windows, spec.freeze, tick.now):
        return None
    return "Frozen" if is_frozen(spec.freeze, tick.now) else "OutsideWindow"


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
    elif reason == "WaitingForDate":
        message = f"until {date_of_next(tick.spec.steps, status)}"
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
