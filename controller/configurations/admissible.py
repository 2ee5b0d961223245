"""Whether a FeatureFlagConfiguration or FeatureFlag may be stored as it is to be written. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.configurations.validation import judge
from controller.delivery.problems import one_line, place
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.meta import Resource
    from evaluator.flags.syntax.problems import Problem

REFUSED: Final = frozenset(
    {
        "bad-argument",
        "bad-bucket",
        "bad-flagd-variable",
        "bad-weight",
        "empty-rule",
        "empty-variants",
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
"""Codes of warnings of a flag that refuse it: flagd's published schemas reject these, and OpenFeature
Operator goes by those. What no schema can see, such as a `$ref` to nothing, is warned of.
"""
_NAMED: Final = 5
_CHARACTERS: Final = 500


def objection(resource: Resource) -> tuple[str, tuple[str, ...]]:
    """(why it is refused, with each place and what to do, or empty; what its writer is warned of). Takes as
    long as the content is large.
    """
    try:
        problems = judge(resource, lambda _: None).problems
    except MissingShardsError:
        # They may be written after their index, which then is not in force yet.
        return "", ()
    except InvalidSpecError as error:
        return f"{error}; correct it and apply again", ()
    except RecursionError:
        return "the flags are nested too deeply to be read; make them flatter", ()
    bad = [each for each in problems if _refuses(each)]
    if bad:
        return f"{_listed(bad)}; correct it and apply again", ()
    return "", tuple(_text(each) for each in problems[:_NAMED])


def _refuses(problem: Problem) -> bool:
    return problem.severity is Severity.ERROR or (problem.flag is not None and problem.code in REFUSED)


def _listed(problems: Sequence[Problem]) -> str:
    more = f" (and {len(problems) - _NAMED} more)" if len(problems) > _NAMED else ""
    return "; ".join(_text(each) for each in problems[:_NAMED]) + more


def _text(problem: Problem) -> str:
    return one_line(": ".join(filter(None, (place(problem), problem.message))), _CHARACTERS)
