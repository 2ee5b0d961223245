"""How far a FlagRollout is, as lines and as a document. Pure but for the terminal's colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.rollout_status import MetricStatus, Outcome, PromotedRevision, StoppedDefinition
from controller.cli.object_rows import RECORD
from controller.cli.output import Column, table
from controller.cli.printing import printable, short
from controller.delivery.actions import Who, in_cluster
from controller.delivery.reach import whose_move
from controller.delivery.rollout_state import CandidateState, RolloutState, StepState
from controller.delivery.state_words import candidate_name, cause_text, position_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_COLOURS: Final = {"Pass": "green", "Fail": "red", "Inconclusive": "yellow", "Error": "yellow"}
_MOST_EARLIER: Final = 3


def _step_words(step: StepState) -> str:
    if step.date and not step.state:
        return f"not before {step.date}"
    return f"{step.state}, until {step.until} at least" if step.until else step.state


_STEPS: Final = (
    Column("STEP", lambda step: step.number),
    Column("USERS", lambda step: step.users),
    Column("LASTS", lambda step: step.lasts),
    Column("SAMPLES", lambda step: str(step.samples or "-")),
    Column("APPROVAL", lambda step: "required" if step.approval else "-"),
    Column("STATE", _step_words, style=lambda step: "bold" if step.state == "now" else ""),
)
_CHECKS: Final = (
    Column("CHECK", lambda check: check.name),
    Column("VERDICT", lambda check: check.verdict, style=lambda check: _COLOURS.get(check.verdict, "")),
    Column("VALUE", lambda check: _number(check.value)),
    Column("GOOD", lambda check: check.threshold or "-"),
    Column("SAMPLES", lambda check: _number(check.samples)),
    Column("AT", lambda check: check.at or "-"),
    Column("MESSAGE", lambda check: check.message or "-"),
)
_EARLIER: Final = (
    Column("EARLIER", lambda outcome: short(outcome.revision or outcome.digest)),
    Column("FLAGS", lambda outcome: ", ".join(outcome.flags) or "-"),
    Column("OUTCOME", lambda outcome: outcome.outcome),
    Column("ENDED", lambda outcome: outcome.ended_at or "-"),
    Column("REASON", lambda outcome: outcome.reason or "-"),
)


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """One candidate."""

    __pydantic_config__ = RECORD

    digest: str
    """The candidate's digest."""
    flags: tuple[str, ...]
    """The keys of its flags."""
    phase: str
    """What it is at, such as Progressing."""
    users: str
    """Who gets the new definitions: nobody, some, or everybody."""
    failed: int
    """Checks of this step that failed."""
    approved: bool
    """Whether the step, or the promotion, is approved."""
    steps: tuple[StepState, ...]
    """All steps."""
    metrics: tuple[MetricStatus, ...]
    """The newest check of each metric."""
    actions: tuple[str, ...]
    """Commands by which a person may act on it, the most likely first."""
    revision: str | None = None
    """The commit."""
    author: str | None = None
    """Who wrote it."""
    step: str | None = None
    """`2/4`; absent while everybody gets the promoted definitions."""
    share: str | None = None
    """`10%`, `audience`."""
    reason: str | None = None
    """Why it is held, or why it was stopped."""
    message: str | None = None
    """The cause in words."""
    verdict: str | None = None
    """The worst of the newest checks."""
    since: str | None = None
    """Since when it is held, or at its step, RFC 3339."""
    served: str | None = None
    """How many evaluators serve the step, of how many there are."""
    served_since: str | None = None
    """When enough of them did, RFC 3339."""


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A FlagRollout and its candidates."""

    __pydantic_config__ = RECORD

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    flag_set: str
    """The name of the FlagSet, FeatureFlagConfiguration or FeatureFlag."""
    phase: str
    """What the candidate is at that needs attention most; Unknown before the first reconcile."""
    message: str
    """What the condition Ready says."""
    suspended: bool
    """Whether spec.suspend is set."""
    candidates: tuple[CandidateRecord, ...]
    """The changes that are not promoted, the oldest first."""
    promoted: PromotedRevision | None
    """What everybody else gets."""
    stopped: tuple[StoppedDefinition, ...]
    """Definitions that are not tried again without a person."""
    history: tuple[Outcome, ...]
    """Candidates that ended, the newest first."""


def as_text(state: RolloutState) -> str:
    """The state as lines, coloured on a terminal."""
    return "\n".join(_sections(state))


def as_record(state: RolloutState) -> RolloutRecord:
    """The state as a document has it."""
    return RolloutRecord(
        state.key.namespace,
        state.key.name,
        state.flag_set,
        state.phase,
        state.message,
        state.suspended,
        tuple(map(_candidate_record, state.candidates)),
        state.promoted,
        state.stopped,
        state.history,
    )


def _candidate_record(candidate: CandidateState) -> CandidateRecord:
    layer = candidate.layer
    return CandidateRecord(
        layer.candidate,
        layer.flags,
        layer.phase,
        layer.users,
        candidate.failed,
        candidate.approved,
        candidate.steps,
        candidate.metrics,
        tuple(command for action in candidate.actions if (command := in_cluster(action))),
        revision=layer.revision or None,
        author=layer.author or None,
        step=layer.step or None,
        share=layer.share or None,
        reason=layer.reason or None,
        message=layer.message or None,
        verdict=layer.verdict or None,
        since=layer.since or None,
        served=candidate.served or None,
        served_since=candidate.served_since or None,
    )


def _sections(state: RolloutState) -> Iterator[str]:
    running = [one for one in state.candidates if one.layer.phase not in {"Queued", "Failed"}]
    counts = (
        (len(running), "running"),
        (state.queued, "queued"),
        (len(state.stopped), "stopped definitions"),
    )
    yield _facts(
        f"FlagRollout {state.key.namespace}/{state.key.name}",
        {
            "Set": state.flag_set,
            "Phase": ", ".join((state.phase, *(["suspended"] if state.suspended else []))),
            "Changes": ", ".join(f"{count} {what}" for count, what in counts if count),
            "Promoted": state.promoted and short(state.promoted.revision or state.promoted.digest),
            "Status": state.message,
        },
    )
    for candidate in state.candidates:
        yield from candidate_sections(candidate, state.failure_limit)
    if earlier := history_lines(state)[: _MOST_EARLIER + 1]:
        yield "\n".join(earlier) + "\n"


def candidate_sections(candidate: CandidateState, failure_limit: int | None) -> Iterator[str]:
    """Yield the facts of a candidate, its steps, and its newest checks."""
    layer = candidate.layer
    since = f" since {candidate.served_since}" if candidate.served_since else ""
    waits = whose_move(layer) is Who.PERSON
    yield _facts(
        f"Candidate {candidate_name(layer)}",
        {
            "Commit": short(layer.revision) + (f" by {layer.author}" if layer.author else ""),
            "Phase": f"{layer.phase}, {position_text(layer)}",
            "Held": cause_text(layer) and f"{layer.reason}: {cause_text(layer)}",
            "Since": layer.since,
            "Served": candidate.served and f"{candidate.served}{since}",
            "Failed": f"{candidate.failed} of at most {failure_limit} checks" if candidate.failed else "",
            "To do": waits and candidate.actions and in_cluster(candidate.actions[0]),
        },
    )
    for lines in (step_lines(candidate), check_lines(candidate)):
        if lines:
            yield "\n".join(lines) + "\n"


def step_lines(candidate: CandidateState) -> list[str]:
    """The steps below a heading; none for a spec that cannot be read."""
    return table(_STEPS, candidate.steps).splitlines() if candidate.steps else []


def check_lines(candidate: CandidateState) -> list[str]:
    """The newest checks below a heading; none before the first one."""
    return table(_CHECKS, candidate.metrics).splitlines() if candidate.metrics else []


def history_lines(state: RolloutState) -> list[str]:
    """The candidates that ended below a heading, the newest first."""
    return table(_EARLIER, state.history).splitlines() if state.history else []


def _facts(title: str, facts: Mapping[str, Any]) -> str:
    lines = [title, *(f"  {f'{name}:':<11}{printable(str(text))}" for name, text in facts.items() if text)]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}"
