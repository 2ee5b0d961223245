"""Decides which problems refuse flags that a person writes into an object or an annotation. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.flags.syntax.problems import Problem

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


def summary(texts: list[str]) -> str:
    """The texts of all refused problems as one; those after the first MOST_NAMED are counted."""
    more = f" (and {len(texts) - MOST_NAMED} more)" if len(texts) > MOST_NAMED else ""
    named = "; ".join(texts[:MOST_NAMED]) + more
    end = "" if named.endswith("?") else ";"
    return f"{named}{end} correct it and apply again"
