"""What a change does to users, as words, JSON, Markdown and SARIF. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.plans import FlagPlan  # noqa: TC001 - pydantic reads the annotation
from controller.cli.flag_changes import block
from controller.cli.plan_rollout import as_text as rollout_text
from controller.cli.printing import printable, short
from controller.cli.problems import as_sarif
from controller.rollouts.rollout_plan import RolloutPlan  # noqa: TC001 - as above
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.authoring.plans import UsersAlike

FORGES: Final = {"github": 65_536, "gitlab": 1_000_000, "gitea": 1_000_000, "bitbucket": 250_000}
"""The largest comment that each takes, in bytes."""
_MOST_BRANCHES: Final = 10
_SIGNS: Final = {"Added": "+", "Removed": "-", "Changed": "~"}
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
    """What is wrong with the definitions of the second side. A flag with an error stays as it was."""

    @property
    def summary(self) -> str:
        """`3 flags differ; 2 of them give up to 15 % of users another value`."""
        count, moving = len(self.flags), [flag.most for flag in self.flags if flag.most]
        if not count:
            return "no flag differs"
        differ = f"{count} flag{' differs' if count == 1 else 's differ'}"
        if not moving:
            return f"{differ}; no user gets another value of a flag that there was"
        verb = f"{len(moving)} of them give{'s' if len(moving) == 1 else ''}" if count > 1 else "it gives"
        return f"{differ}; {verb} up to {_percent(max(moving))} of users another value"


def as_text(plan: ChangePlan) -> Iterator[str]:
    """Yield lines, the first of each flag with a sign."""
    yield f"{short(plan.before)} → {short(plan.after)}: {plan.summary}"
    for flag in plan.flags:
        yield from (printable(line) for line in _flag_lines(plan, flag))
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


def as_findings(plan: ChangePlan, places: Mapping[str, tuple[str, int]], file: str) -> str:
    """SARIF: a finding for each flag that gives users another value, at its definition; `file` has those that
    are removed.
    """
    return as_sarif(
        [
            Problem(
                *(places.get(flag.key) or (file, 0)), 0, Severity.NOTE, _CODE, "; ".join(_words(plan, flag))
            )
            for flag in plan.flags
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
    first, *others = _flag_lines(plan, flag)
    return [first.replace("~ ", "! ", 1) if flag.change == "Changed" else first, *others]


def _flag_lines(plan: ChangePlan, flag: FlagPlan) -> Iterator[str]:
    first, *others = _words(plan, flag)
    yield f"{_SIGNS[flag.change]} {first}"
    yield from (f"    {line}" for line in others)


def _words(plan: ChangePlan, flag: FlagPlan) -> Iterator[str]:
    yield f"{flag.key}: {flag.words}"
    if flag.method is not None:
        yield _effect(plan, flag)
    if flag.of_contexts is not None and flag.least != flag.most:
        yield f"{_percent(flag.of_contexts)} of the {plan.contexts:,} given contexts get another value"
    only = len(flag.branches) == 1 and flag.least == flag.most
    for branch in flag.branches[:_MOST_BRANCHES]:
        yield _branch(branch, only=only)
        if branch.needless:
            least = _percent(branch.percent - branch.needless)
            yield (
                f"{_percent(branch.needless)} move needlessly, as the shares need only {least} to: keep "
                "variants in their order, and what is hashed"
            )
    if len(flag.branches) > _MOST_BRANCHES:
        yield f"… and {len(flag.branches) - _MOST_BRANCHES} more kinds of users"
    if flag.rollout is not None:
        yield f"FlagRollout {flag.rollout} serves this in steps"
    if flag.override is not None:
        yield f"FlagOverride {flag.override} decides now what users get, until it ends"
    if flag.references is not None:
        count = flag.references
        yield (
            f"the code refers to it {count} time{'' if count == 1 else 's'}"
            if count
            else "no code refers to it"
        )


def _effect(plan: ChangePlan, flag: FlagPlan) -> str:
    """How many users get another value, and how that was found."""
    least, most = flag.least or 0.0, flag.most or 0.0
    how = {
        "Arithmetic": "exact, by arithmetic",
        "SyntheticContexts": f"of {plan.contexts:,} synthetic contexts",
        "GivenContexts": f"of {plan.contexts:,} given contexts",
    }[flag.method or "Arithmetic"]
    if not most:
        return f"nobody gets another value ({how})"
    share = _percent(most) if least == most else f"{_percent(least)} to {_percent(most)}"
    return f"{share} of users get another value ({how})"


def _branch(branch: UsersAlike, *, only: bool) -> str:
    whole = len(branch.moves) == 1
    moves = ", ".join(
        f"{move.before or 'the default of the code'} → {move.after or 'the default of the code'}"
        + ("" if whole else f" {_percent(move.percent)}")
        for move in branch.moves
    )
    who = f" where {branch.who}" if branch.who else ""
    if only and not who and branch.by == "user":
        return moves
    share = f"{_percent(branch.percent)} of {'users' if branch.by == 'user' else f'values of {branch.by}'}"
    return f"{share}{who}: {moves}"


def _percent(share: float) -> str:
    return f"{share:.4g} %"
