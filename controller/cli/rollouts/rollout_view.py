"""How far a FlagRollout is, as a record and as lines. Pure but for the terminal's colours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.api.flagoverride import moment_of
from controller.api.objects.conditions import READY
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import timestamp
from controller.api.objects.parsed_spec import parse_spec
from controller.api.parsing import InvalidTextError
from controller.api.rollouts.flagrollout import FlagRolloutSpec
from controller.api.rollouts.rollout_status import FlagRolloutStatus, MetricStatus, Outcome, Revision
from controller.cli.shared.output import Column, table
from controller.cli.shared.printing import printable, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource
    from controller.api.rollouts.rollout_steps import Step

_UNITS: Final = ((3_600, "h"), (60, "m"))
_COLOURS: Final = {"Pass": "green", "Fail": "red", "Inconclusive": "yellow", "Error": "yellow"}
_MOST_EARLIER: Final = 3


@dataclass(frozen=True, slots=True)
class StepView:
    """One step."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    number: str
    """`2/4`."""
    users: str
    """Who gets the candidate: `10%`, `audience`."""
    lasts: str
    """Its least duration; `-` for none."""
    approval: bool
    """Whether somebody must approve before it ends."""
    state: str
    """`done`, `now`, or empty."""
    samples: int | None = None
    """How many samples its checks need."""
    until: str | None = None
    """Of the step that is served: when it ends at the earliest, RFC 3339, apart from windows and checks."""


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A FlagRollout and how far it is."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    flag_set: str
    """The name of the FlagSet or FeatureFlagConfiguration."""
    phase: str
    """What it is at, such as Progressing; Unknown before the first reconcile."""
    message: str
    """What the condition Ready says."""
    suspended: bool
    """Whether spec.suspend is set."""
    failed: int
    """Checks of this step that failed."""
    steps: tuple[StepView, ...]
    """All steps."""
    metrics: tuple[MetricStatus, ...]
    """The newest check of each metric."""
    history: tuple[Outcome, ...]
    """Rollouts that ended, the newest first."""
    reason: str | None = None
    """Why it is held, or why it ended."""
    step: str | None = None
    """`2/4`; absent while everybody gets the promoted definitions."""
    share: str | None = None
    """`10%`, `audience`."""
    verdict: str | None = None
    """The worst of the newest checks."""
    candidate: Revision | None = None
    """What is rolled out."""
    promoted: Revision | None = None
    """What everybody else gets."""
    served: str | None = None
    """How many evaluators serve the step, of how many there are."""
    served_since: str | None = None
    """When enough of them did, RFC 3339."""
    failure_limit: int | None = None
    """How many roll back."""


def view_of(rollout: Resource) -> RolloutView:
    """How far a FlagRollout is; without steps for a spec that cannot be read."""
    status = FlagRolloutStatus.of(rollout)
    try:
        spec = parse_spec(FlagRolloutSpec, rollout)
    except InvalidSpecError:
        spec = None
    reference = rollout.spec.get("flagSetRef")
    return RolloutView(
        rollout.namespace,
        rollout.name,
        flag_set=str(reference.get("name", "-")) if isinstance(reference, dict) else "-",
        phase=status.phase or "Unknown",
        reason=status.reason,
        message=status.condition(READY).message,
        suspended=rollout.suspended,
        step=status.step_text,
        share=status.share_text,
        verdict=status.verdict,
        candidate=status.candidate,
        promoted=status.promoted,
        served=None if status.served is None else f"{status.served.served}/{status.served.total}",
        served_since=status.propagated_at,
        failed=status.checks.failed if status.checks else 0,
        failure_limit=None if spec is None else spec.analysis.failure_limit,
        steps=() if spec is None else tuple(_steps(spec.steps, status)),
        metrics=status.metrics,
        history=status.history,
    )


def as_text(view: RolloutView) -> str:
    """The view as lines, coloured on a terminal."""
    return "\n".join(_sections(view))


def duration_text(seconds: float) -> str:
    """`1h30m`; `0s` for nothing."""
    parts, rest = [], round(seconds)
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join([*parts, f"{rest}s"] if rest or not parts else parts)


def users_text(step: Step) -> str:
    """Who gets the candidate in a step: `10%`, `audience`."""
    return "audience" if step.share is None else f"{step.share:g}%"


def _steps(steps: tuple[Step, ...], status: FlagRolloutStatus) -> Iterator[StepView]:
    for index, step in enumerate(steps):
        here = status.step == index
        state = "now" if here else "done" if status.step is not None and index < status.step else ""
        yield StepView(
            f"{index + 1}/{len(steps)}",
            users_text(step),
            "-" if step.min_duration is None else duration_text(step.min_duration),
            step.approval is not None,
            state,
            step.min_samples,
            _until(step, status) if here else None,
        )


def _until(step: Step, status: FlagRolloutStatus) -> str | None:
    if status.propagated_at is None or not step.min_duration:
        return None
    try:
        return timestamp(moment_of(status.propagated_at) + timedelta(seconds=step.min_duration))
    except (InvalidTextError, OverflowError):
        return None


_STEPS: Final = (
    Column("STEP", lambda step: step.number),
    Column("USERS", lambda step: step.users),
    Column("LASTS", lambda step: step.lasts),
    Column("SAMPLES", lambda step: str(step.samples or "-")),
    Column("APPROVAL", lambda step: "required" if step.approval else "-"),
    Column(
        "STATE",
        lambda step: f"{step.state}, until {step.until} at least" if step.until else step.state,
        style=lambda step: "bold" if step.state == "now" else "",
    ),
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
    Column("OUTCOME", lambda outcome: outcome.outcome),
    Column("ENDED", lambda outcome: outcome.ended_at or "-"),
    Column("REASON", lambda outcome: outcome.reason or "-"),
)


def _sections(view: RolloutView) -> Iterator[str]:
    lines = {
        "Set": view.flag_set,
        "Phase": _phase(view),
        "Candidate": view.candidate and _revision(view.candidate),
        "Promoted": view.promoted and _revision(view.promoted),
        "Served": view.served and view.served + (f" since {view.served_since}" if view.served_since else ""),
        "Failed": f"{view.failed} of at most {view.failure_limit} checks" if view.failed else "",
        "Status": view.message,
    }
    shown = [f"FlagRollout {view.namespace}/{view.name}"]
    shown += [f"  {f'{name}:':<11}{printable(str(text))}" for name, text in lines.items() if text]
    yield "\n".join(line.replace("\n", " ") for line in shown) + "\n"
    earlier = history_lines(view)[: _MOST_EARLIER + 1]
    yield from (
        "\n".join(lines_) + "\n" for lines_ in (step_lines(view), check_lines(view), earlier) if lines_
    )


def step_lines(view: RolloutView) -> list[str]:
    """The steps below a heading; none for a spec that cannot be read."""
    return table(_STEPS, view.steps).splitlines() if view.steps else []


def check_lines(view: RolloutView) -> list[str]:
    """The newest checks below a heading; none before the first one."""
    return table(_CHECKS, view.metrics).splitlines() if view.metrics else []


def history_lines(view: RolloutView) -> list[str]:
    """The rollouts that ended below a heading, the newest first."""
    return table(_EARLIER, view.history).splitlines() if view.history else []


def _phase(view: RolloutView) -> str:
    step = f"step {view.step}, {view.share} of users" if view.step and view.share else ""
    if view.share == "audience":
        step = f"step {view.step}, an audience"
    parts = (view.phase, step, view.reason or "", "suspended" if view.suspended else "")
    return ", ".join(part for part in parts if part)


def _revision(revision: Revision) -> str:
    name = short(revision.revision or revision.digest)
    by = f" by {revision.author}" if revision.author else ""
    count = revision.count or len(revision.flags)
    more = f" and {count - len(revision.flags)} more" if count > len(revision.flags) else ""
    flags = f": {', '.join(revision.flags)}{more}" if revision.flags else ""
    return f"{name}{by}{flags}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}"
