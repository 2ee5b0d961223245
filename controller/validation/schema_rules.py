"""The CEL rules of a schema (`x-kubernetes-validations`), as the API server applies them to a new object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing.expression_syntax import ExpressionError
from controller.runtime.user_text.expressions import Expression
from controller.validation.structural_schema import SchemaProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from evaluator.flags.model import Path

RULES: Final = "x-kubernetes-validations"
SELF: Final = frozenset({"self"})
_BUDGET: Final = 10_000_000
"""Steps of one rule: the rules are ours, and whoever runs them waits for nobody else."""


def rule_problems(
    schema: Mapping[str, Any], value: Any, path: Path = (), *, without: Set[Path] = frozenset()
) -> Iterator[SchemaProblem]:
    """Yield the rules that `value`, which has its defaults, breaks. Places `without` are not judged: their
    fields are not as the rules expect them.
    """
    if path not in without:
        for rule in schema.get(RULES, ()):
            # A rule over `oldSelf` is about a change.
            if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
                yield SchemaProblem(path, rule["message"], "broken-rule")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_problems(schema.get("items", {}), item, (*path, index), without=without)
    if isinstance(value, dict):
        more = schema.get("additionalProperties")
        for name, inner in value.items():
            below = schema.get("properties", {}).get(name, more)
            if isinstance(below, dict):
                yield from rule_problems(below, inner, (*path, name), without=without)


def places_around(paths: Iterable[Path]) -> set[Path]:
    """These paths, and those of everything that holds one of them."""
    return {path[:length] for path in paths for length in range(len(path) + 1)}


def _holds(rule: str, value: Any) -> bool:
    try:
        return Expression.of(rule, SELF).holds({"self": value}, _BUDGET)
    except ExpressionError:
        # To the API server a rule that cannot be evaluated is a broken one.
        return False
