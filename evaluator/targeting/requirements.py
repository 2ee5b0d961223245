"""What a rule needs from its evaluation, read from the rule before it is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.targeting.scope import is_static
from evaluator.targeting.variables import FLAGD, split

if TYPE_CHECKING:
    from evaluator.flags.model import Json

_VARIABLES: Final = frozenset({"var", "missing", "missing_some"})
_LOOPS: Final = frozenset({"map", "filter", "reduce", "all", "some", "none"})


def reads_flagd(node: Json, *, in_body: bool = False) -> bool:
    """Whether evaluating `node` may read `$flagd` from the context; True where a name is computed, unknown,
    or the whole context: a needless True costs a copy of the context, a wrong False would let a client's own
    `$flagd` through. in_body: a loop runs `node` for each element.
    """
    if isinstance(node, list):
        return any(reads_flagd(item, in_body=in_body) for item in node)
    if not isinstance(node, dict) or len(node) != 1:
        return False
    ((operator, values),) = node.items()
    if operator in _VARIABLES:
        return _variable_reads(operator, values, in_body=in_body)
    if operator in _LOOPS and isinstance(values, list):
        return any(reads_flagd(item, in_body=in_body or index == 1) for index, item in enumerate(values))
    return reads_flagd(values, in_body=in_body)


def _variable_reads(operator: str, values: Json, *, in_body: bool) -> bool:
    if operator == "var" and isinstance(values, str):
        if in_body and (not values or values.startswith(".")):
            # Never substituted from outside, so it is the element's.
            return False
        if not in_body and values == f"{FLAGD}.flagKey":
            # Compiled to the flag's key.
            return False
    return any(_may_be_flagd(name) for name in _names(operator, values))


def _names(operator: str, values: Json) -> list[Json]:
    """The names that the operator looks up; what is no text stands for a name that is computed."""
    if not is_static(values) or not isinstance(values, list):
        return [values]
    if operator == "var":
        return values[:1] or [None]
    if operator == "missing_some":
        return values[1] if len(values) > 1 and isinstance(values[1], list) else []
    return values


def _may_be_flagd(name: Json) -> bool:
    parts = split(name) if isinstance(name, str) else ()
    return not parts or parts[0] == FLAGD
