"""What a change does to users of a flag, in words for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.authoring.change_tests import CoveringTests
    from controller.authoring.plans import FlagPlan, UsersAlike

_MOST_BRANCHES: Final = 10
_MOST_FAILURES: Final = 10
_SIGNS: Final = {"Added": "+", "Removed": "-", "Changed": "~"}


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


def percent(share: float) -> str:
    """A share of users, short."""
    return f"{share:.4g} %"
