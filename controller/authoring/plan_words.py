"""What a change does to users of a flag, in words for people, and as a comment on a pull request. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.authoring.flag_calendar import calendar_lines
from controller.authoring.shares import SAMPLES
from evaluator.flags.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.authoring.change_tests import CoveringTests
    from controller.authoring.flag_calendar import CalendarEntry
    from controller.authoring.plans import Audience, FlagPlan, Method, UsersAlike

FORGES: Final = {
    "github": 65_536,
    "gitlab": 1_000_000,
    "gitea": 1_000_000,
    "bitbucket": 250_000,
    "azuredevops": 150_000,
}
"""The largest comment that each takes, in bytes."""
_SIGNS: Final = {"Added": "+", "Removed": "-", "Changed": "~"}
_MOST_BRANCHES: Final = 10
_MOST_FAILURES: Final = 10
_NAME: Final = 100
"""Characters of a marker's name."""


def summary(flags: Sequence[FlagPlan]) -> str:
    """`3 flags differ; 2 of them give up to 15 % of users another value; 1 test fails`."""
    count, moving = len(flags), [flag.most for flag in flags if flag.most]
    if not count:
        return "no flag differs"
    differ = f"{count} flag{' differs' if count == 1 else 's differ'}"
    failing = {message for flag in flags if flag.tests for message in flag.tests.failures}
    tests = f"; {len(failing)} test{' fails' if len(failing) == 1 else 's fail'}" if failing else ""
    if not moving:
        return f"{differ}; no user gets another value of a flag that there was{tests}"
    verb = f"{len(moving)} of them give{'s' if len(moving) == 1 else ''}" if count > 1 else "it gives"
    return f"{differ}; {verb} up to {percent(max(moving))} of users another value{tests}"


def marker(name: str) -> str:
    """The first line of a comment, by which it is found again: a reference of Markdown, which no code host
    shows.
    """
    plain = "".join(sign for sign in name if sign.isalnum() or sign in "-_./")[:_NAME]
    return f"[//]: # (flagstaff plan {plain})"


def comment(
    flags: Sequence[FlagPlan],
    sides: tuple[str, str],
    limit: int,
    contexts: int = SAMPLES,
    problems: Sequence[str] = (),
    more: Sequence[str] = (),
) -> str:
    """A comment on a pull request in Markdown, of at most `limit` bytes: the flags that move
    most users first, without those that do not fit. Empty where nothing changes. `sides`: their names; `more`
    stands before the flags.
    """
    if not flags and not problems:
        return ""
    parts = [f"**Flags**: {summary(flags)} (`{sides[0]}` → `{sides[1]}`)"]
    if problems:
        parts += ["Problems:", block("text", problems)]
    parts += more
    rest = [block("diff", _coloured(flag, contexts)) for flag in sorted(flags, key=_by_effect)]
    return _cut(parts, rest, limit)


def calendar_parts(calendar: Sequence[CalendarEntry]) -> list[str]:
    """The part of a comment that says what changes by itself; none where nothing does."""
    return ["Calendar:", block("text", [*calendar_lines(calendar)])] if calendar else []


def block(language: str, lines: Sequence[str]) -> str:
    """Lines as a block of Markdown that nothing in them ends."""
    text = "\n".join(map(visible, "\n".join(lines).split("\n"))).replace("```", "'''")
    return f"```{language}\n{text}\n```"


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
        text = f"{parts[0]}\n\nIt is too long for a comment; `flagstaff plan` prints it.\n"
    return text


def _size(parts: list[str]) -> int:
    return sum(len(part.encode()) + 2 for part in parts)


def _coloured(flag: FlagPlan, contexts: int) -> list[str]:
    # GitHub and GitLab colour lines that begin with + and -.
    first, *others = flag_lines(flag, contexts)
    return [first.replace("~ ", "! ", 1) if flag.change == "Changed" else first, *others]


def flag_lines(flag: FlagPlan, contexts: int) -> Iterator[str]:
    """Yield lines, the first with a sign, the others indented."""
    first, *others = flag_words(flag, contexts)
    yield f"{_SIGNS[flag.change]} {first}"
    yield from (f"    {line}" for line in others)


def flag_words(flag: FlagPlan, contexts: int) -> Iterator[str]:
    """Yield sentences, the first with the flag's key. contexts: how many were counted, where they were."""
    yield f"{flag.key}: {flag.words}"
    only = len(flag.branches) == 1 and flag.least == flag.most and not flag.branches[0].who
    if flag.method is not None:
        yield f"{_effect(flag, contexts)}{f': {_moves(flag.branches[0])}' if only else ''}"
    if flag.of_contexts is not None and flag.least != flag.most:
        yield f"{percent(flag.of_contexts)} of the {contexts:,} given contexts get another value"
    for branch in flag.branches[:_MOST_BRANCHES]:
        if not only:
            who = f" where {branch.who}" if branch.who else ""
            yield f"{percent(branch.percent)} of {_subjects(branch)}{who}: {_moves(branch)}"
        if branch.needless:
            least = percent(branch.percent - branch.needless)
            yield (
                f"{percent(branch.needless)} move needlessly, as the shares need only {least} to: keep "
                "variants in their order, and what is hashed"
            )
    if len(flag.branches) > _MOST_BRANCHES:
        yield f"… and {len(flag.branches) - _MOST_BRANCHES} more kinds of users"
    if flag.rollout is not None:
        yield f"FlagRollout {flag.rollout} serves this in steps"
    if flag.override is not None:
        yield f"FlagOverride {flag.override} decides now what users get, until it ends"
    yield from () if flag.tests is None else _tests(flag.tests)
    if flag.references is not None:
        count = flag.references
        yield f"the code refers to it {_count(count, 'time')}" if count else "no code refers to it"
    if flag.requests is not None:
        yield flag.requests


def _tests(tests: CoveringTests) -> Iterator[str]:
    """Which tests cover a change, what they leave out, and which fail."""
    covered = f"covered by {_count(tests.count, 'test')}" if tests.count else "no test covers it"
    if tests.count and (missed := tests.untested):
        named = ", ".join(missed[:_MOST_BRANCHES]) + (", …" if len(missed) > _MOST_BRANCHES else "")
        change = "branch that changes" if len(missed) == 1 else "branches that change"
        covered += f"; none reaches {len(missed)} {change}: {named}"
    yield covered
    yield from tests.failures[:_MOST_FAILURES]
    if len(tests.failures) > _MOST_FAILURES:
        yield f"… and {len(tests.failures) - _MOST_FAILURES} more failures"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _effect(flag: FlagPlan, contexts: int) -> str:
    """How many users get another value, and how that was found."""
    least, most = flag.least or 0.0, flag.most or 0.0
    how = {
        "Arithmetic": "exact, by arithmetic",
        "SyntheticContexts": f"of {contexts:,} synthetic contexts",
        "GivenContexts": f"of {contexts:,} given contexts",
    }[flag.method or "Arithmetic"]
    if not most:
        return f"nobody gets another value ({how})"
    share = percent(most) if least == most else f"{percent(least)} to {percent(most)}"
    kinds = {_subjects(branch) for branch in flag.branches}
    subjects = kinds.pop() if len(kinds) == 1 else "users"
    return f"{share} of {subjects} get another value ({how})"


def _subjects(branch: UsersAlike) -> str:
    return "users" if branch.by == "user" else f"values of {branch.by}"


def _moves(branch: UsersAlike) -> str:
    """`off → on`, with shares where there are several."""
    whole = len(branch.moves) == 1
    return ", ".join(
        f"{move.before or 'the default of the code'} → {move.after or 'the default of the code'}"
        + ("" if whole else f" {percent(move.percent)}")
        for move in branch.moves
    )


def audience_words(method: Method, audiences: Sequence[Audience]) -> Iterator[str]:
    """Yield a line for each kind of users: what they get."""
    for audience in audiences[:_MOST_BRANCHES]:
        names = [(name or "the default of the code", share) for name, share in audience.shares]
        get = (
            names[0][0] if len(names) == 1 else ", ".join(f"{name} {percent(share)}" for name, share in names)
        )
        by = "" if audience.by == "user" else f" of values of {audience.by}"
        about = f" (of {SAMPLES:,} synthetic contexts)" if method == "SyntheticContexts" else ""
        yield f"{f'where {audience.who}' if audience.who else 'everybody'}: {get}{by}{about}"
    if len(audiences) > _MOST_BRANCHES:
        yield f"… and {len(audiences) - _MOST_BRANCHES} more kinds of users"


def percent(share: float) -> str:
    """A share of users, short."""
    return f"{share:.4g} %"
