"""What a change does to users, as words, JSON, Markdown and SARIF. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.flag_calendar import (
    CalendarEntry,
    calendar_lines,
    schedule_entries,
    step_entry,
    to_come,
)
from controller.authoring.plan_words import (
    block,
    calendar_parts,
    comment,
    flag_lines,
    flag_words,
    marker,
    summary,
)
from controller.authoring.plans import FlagPlan  # noqa: TC001 - pydantic reads the annotation
from controller.cli.plan_rollout import as_text as rollout_text
from controller.cli.printing import printable, short
from controller.cli.problems import as_sarif
from controller.rollouts.rollout_plan import RolloutPlan  # noqa: TC001 - as above
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from evaluator.flags.model import FlagSet

_CODE: Final = "flag-change"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change does to users."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    before: str
    """The name of the first side: a revision, `working tree`, or FlagSet/NAME."""
    after: str
    """The name of the second side."""
    contexts: int
    """How many contexts were counted for each flag that has no arithmetic."""
    flags: tuple[FlagPlan, ...]
    """Those that differ, by key."""
    rollouts: tuple[RolloutPlan, ...] = ()
    """What each FlagRollout does with the change, as `flagstaff rollout plan` says it."""
    calendar: tuple[CalendarEntry, ...] = ()
    """What is to change by itself: the times in rules of flags that differ, and dates of steps, in order."""
    problems: tuple[str, ...] = ()
    """What is wrong with the definitions of the second side, and which policies are not met. A flag with an
    error stays as it was.
    """


def calendar_of(
    after: FlagSet, flags: Iterable[FlagPlan], rollouts: Iterable[RolloutPlan], now: datetime
) -> tuple[CalendarEntry, ...]:
    """What is to change by itself after a change."""
    dates = (
        step_entry(plan.rollout, step.number, step.users, step.date)
        for plan in rollouts
        for step in plan.steps
        if step.date is not None
    )
    return to_come((*schedule_entries(after, [flag.key for flag in flags]), *dates), now)


def as_text(plan: ChangePlan) -> Iterator[str]:
    """Yield lines, the first of each flag with a sign."""
    yield f"{short(plan.before)} → {short(plan.after)}: {summary(plan.flags)}"
    for flag in plan.flags:
        yield from (printable(line) for line in flag_lines(flag, plan.contexts))
    if plan.calendar:
        yield "Calendar:"
        yield from (printable(f"    {line}") for line in calendar_lines(plan.calendar))
    for rollout in plan.rollouts:
        yield ""
        yield from rollout_text(rollout).splitlines()


def as_markdown(plan: ChangePlan, name: str, limit: int) -> str:
    """A comment on a pull request, of at most `limit` bytes with its first line; see `comment`."""
    sides = short(plan.before), short(plan.after)
    more = calendar_parts(plan.calendar)
    more += [block("text", rollout_text(rollout).splitlines()) for rollout in plan.rollouts]
    first = f"{marker(name)}\n\n"
    rest = limit - len(first.encode())
    text = comment(plan.flags, sides, rest, plan.contexts, plan.problems, more)
    return text and first + text


def as_findings(
    plan: ChangePlan, places: Mapping[str, tuple[str, int]], file: str, unmet: Sequence[Problem] = ()
) -> str:
    """SARIF: a finding for each flag that gives users another value, at its definition; `file` has those that
    are removed. Before them the policies that are not met.
    """
    return as_sarif(
        [
            *unmet,
            *(
                Problem(
                    *(places.get(flag.key) or (file, 0)),
                    0,
                    Severity.NOTE,
                    _CODE,
                    "; ".join(flag_words(flag, plan.contexts)),
                )
                for flag in plan.flags
            ),
        ]
    )
