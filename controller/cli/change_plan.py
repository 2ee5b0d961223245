"""What a change does to users, as words, JSON, Markdown and SARIF. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.plan_words import flag_lines, flag_words, percent
from controller.authoring.plans import FlagPlan  # noqa: TC001 - pydantic reads the annotation
from controller.cli.flag_changes import block
from controller.cli.plan_rollout import as_text as rollout_text
from controller.cli.printing import printable, short
from controller.cli.problems import as_sarif
from controller.rollouts.rollout_plan import RolloutPlan  # noqa: TC001 - as above
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FORGES: Final = {"github": 65_536, "gitlab": 1_000_000, "gitea": 1_000_000, "bitbucket": 250_000}
"""The largest comment that each takes, in bytes."""
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
    problems: tuple[str, ...] = ()
    """What is wrong with the definitions of the second side, and which policies are not met. A flag with an
    error stays as it was.
    """

    @property
    def summary(self) -> str:
        """`3 flags differ; 2 of them give up to 15 % of users another value; 1 test fails`."""
        count, moving = len(self.flags), [flag.most for flag in self.flags if flag.most]
        if not count:
            return "no flag differs"
        differ = f"{count} flag{' differs' if count == 1 else 's differ'}"
        failing = {message for flag in self.flags if flag.tests for message in flag.tests.failures}
        tests = f"; {len(failing)} test{' fails' if len(failing) == 1 else 's fail'}" if failing else ""
        if not moving:
            return f"{differ}; no user gets another value of a flag that there was{tests}"
        verb = f"{len(moving)} of them give{'s' if len(moving) == 1 else ''}" if count > 1 else "it gives"
        return f"{differ}; {verb} up to {percent(max(moving))} of users another value{tests}"


def as_text(plan: ChangePlan) -> Iterator[str]:
    """Yield lines, the first of each flag with a sign."""
    yield f"{short(plan.before)} → {short(plan.after)}: {plan.summary}"
    for flag in plan.flags:
        yield from (printable(line) for line in flag_lines(flag, plan.contexts))
    for rollout in plan.rollouts:
        yield ""
        yield from rollout_text(rollout).splitlines()


def as_markdown(plan: ChangePlan, name: str, limit: int) -> str:
    """A comment on a pull request, of at most `limit` bytes: the flags that move most users first, without
    those that do not fit. Empty where nothing changes. Its first line, which is not shown, has the `name` by
    which the next comment replaces it.
    """
    if not plan.flags and not plan.problems:
        return ""
    heading = f"**Flags**: {plan.summary} (`{short(plan.before)}` → `{short(plan.after)}`)"
    parts = [marker(name), heading]
    if plan.problems:
        parts += ["Problems:", block("text", plan.problems)]
    parts += [block("text", rollout_text(rollout).splitlines()) for rollout in plan.rollouts]
    rest = [block("diff", _coloured(plan, flag)) for flag in sorted(plan.flags, key=_by_effect)]
    return _cut(parts, rest, limit)


def marker(name: str) -> str:
    """The line by which a comment is found again: a reference of Markdown, which no code host shows."""
    return f"[//]: # (flagstaff plan {''.join(sign for sign in name if sign.isalnum() or sign in '-_./')})"


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


def _by_effect(flag: FlagPlan) -> tuple[float, str]:
    return -(flag.most or 0.0), flag.key


def _cut(parts: list[str], rest: list[str], limit: int) -> str:
    """The parts, and as many of the rest as fit, with the number of those that do not."""
    kept = list(parts)
    for index, part in enumerate(rest):
        left = len(rest) - index
        more = f"… and {left} more flag{'' if left == 1 else 's'}; `flagstaff plan` prints all"
        if _size([*kept, part, more]) > limit:
            kept.append(more)
            break
        kept.append(part)
    text = "\n\n".join(kept) + "\n"
    if len(text.encode()) > limit:
        # Problems or rollouts alone are too many.
        heading = "\n\n".join(parts[:2])
        text = f"{heading}\n\nIt is too long for a comment; `flagstaff plan` prints it.\n"
    return text


def _size(parts: list[str]) -> int:
    return sum(len(part.encode()) + 2 for part in parts)


def _coloured(plan: ChangePlan, flag: FlagPlan) -> list[str]:
    # GitHub and GitLab colour lines that begin with + and -.
    first, *others = flag_lines(flag, plan.contexts)
    return [first.replace("~ ", "! ", 1) if flag.change == "Changed" else first, *others]
