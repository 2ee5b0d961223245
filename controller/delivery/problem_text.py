"""Problems of definitions: which refuse flags that a person writes, and how a status and a message tell
them. Pure.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from controller.api.flagset_status import ProblemStatus
from controller.runtime.plain_text import one_line
from evaluator.flags.problems import Problem, Severity
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MOST_PROBLEMS: Final = 50
MESSAGE: Final = 500
"""Most characters of one: a key may be as long as a file, and fifty of them make a status that no API server
takes.
"""


_FLAGS: Final = "$.flags"


def place(problem: Problem) -> str:
    """Return `file:line:column`, as far as known."""
    parts = [problem.file, *(str(number) for number in (problem.line, problem.column) if number)]
    return ":".join(part for part in parts if part)


def first_problem(problems: Sequence[Problem]) -> str:
    """Return the worst problem in one line, with the number of others."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    worst = (errors or list(problems))[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    where = place(worst)
    return f"{where}{': ' if where else ''}{one_line(worst.message, MESSAGE)}{more}"


def problem_list(problems: Sequence[Problem]) -> tuple[ProblemStatus, ...]:
    """The status' list, errors first, bounded. What is not known of a place is left out. One problem of many
    flags leaves room for others.
    """
    first = {(problem.file, problem.line, problem.message): problem for problem in reversed(problems)}
    firsts = {id(problem) for problem in first.values()}
    ordered = sorted(
        problems, key=lambda problem: (problem.severity is not Severity.ERROR, id(problem) not in firsts)
    )
    return tuple(
        ProblemStatus(
            severity="error" if problem.severity is Severity.ERROR else "warning",
            file=cut(problem.file, MESSAGE) or None,
            line=problem.line or None,
            column=problem.column or None,
            path=cut(problem.path, MESSAGE) or None,
            # Paths of definitions name their flag.
            flag=cut(problem.flag, MESSAGE) if problem.flag and not problem.path.startswith(_FLAGS) else None,
            message=cut(problem.message, MESSAGE),
        )
        for problem in ordered[:MOST_PROBLEMS]
    )


REFUSED: Final = frozenset(
    {
        "bad-argument",
        "bad-bucket",
        "bad-flagd-variable",
        "bad-weight",
        "empty-rule",
        "empty-variants",
        "lax-version",
        "metadata-type",
        "missing-state",
        "missing-variants",
        "mixed-variants",
        "not-a-rule",
        "null-section",
        "reference-position",
        "several-operators",
        "unknown-operator",
        "unknown-state",
        "unlisted-operator",
        "unusual-name",
        "variant-type",
        "wrong-arity",
    }
)
"""Codes of problems of a flag that refuse it: flagd's published schemas reject these, and OpenFeature
Operator goes by those. What no schema can see, such as a `$ref` to nothing, is warned of.
"""
MOST_NAMED: Final = 5
"""Problems that a refusal names."""
CHARACTERS: Final = 500
"""Of the text of one problem."""


def refusals(problems: Iterable[Problem]) -> list[Problem]:
    """The problems for which flags are refused, in the given order."""
    return [
        problem
        for problem in problems
        if problem.severity is Severity.ERROR or (problem.flag is not None and problem.code in REFUSED)
    ]


def summary(texts: Iterable[str], count: int) -> str:
    """The texts of all refused problems as one; those after the first MOST_NAMED are counted, not made."""
    more = f" (and {count - MOST_NAMED} more)" if count > MOST_NAMED else ""
    named = "; ".join(islice(texts, MOST_NAMED)) + more
    end = "" if named.endswith("?") else ";"
    return f"{named}{end} correct it and apply again"
