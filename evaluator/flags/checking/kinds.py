"""The kinds of values that a rule can give, where its operators alone tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.known_operators import reference_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Json

NUMBER: Final = "number"
BOOLEAN: Final = "boolean"
TEXT: Final = "text"
NULL: Final = "null"
LIST: Final = "list"
OTHER: Final = "other"
"""An object, or whatever the context holds."""

_OF_LITERALS: Final[Mapping[type, str]] = {
    bool: BOOLEAN, int: NUMBER, float: NUMBER, str: TEXT, list: LIST, type(None): NULL,
}  # fmt: skip
_OF_OPERATORS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "abs"), frozenset({NUMBER})),
    **dict.fromkeys(("!", "!!", "==", "===", "!=", "!==", "<", "<=", ">", ">="), frozenset({BOOLEAN})),
    **dict.fromkeys(("in", "all", "none", "some"), frozenset({BOOLEAN})),
    **dict.fromkeys(("contains_all", "contains_any", "contains_none"), frozenset({BOOLEAN})),
    **dict.fromkeys(("starts_with", "ends_with", "sem_ver"), frozenset({BOOLEAN, NULL})),
    **dict.fromkeys(("cat", "substr"), frozenset({TEXT})),
    **dict.fromkeys(("map", "filter", "merge", "missing", "missing_some"), frozenset({LIST})),
}
_OF_VARIABLES: Final[Mapping[str, str]] = {"$flagd.timestamp": NUMBER, "$flagd.flagKey": TEXT}
_UNKNOWN: Final = frozenset({OTHER})
_MOST_STEPS: Final = 50
"""Most parts of one rule that are read, shared rules included; with more its kind is unknown."""


def kinds_of(rule: Json, evaluators: Mapping[str, Json]) -> frozenset[str]:
    """Return the kinds of the rule's possible results; OTHER is among them where they are not known."""
    known: set[str] = set()
    pending, steps = [rule], 0
    while pending:
        value, steps = pending.pop(), steps + 1
        if steps > _MOST_STEPS:
            return _UNKNOWN
        if not isinstance(value, dict):
            known.add(_OF_LITERALS.get(type(value), OTHER))
            continue
        operator, arguments = next(iter(value.items())) if len(value) == 1 else ("", None)
        if operator in _OF_OPERATORS:
            known |= _OF_OPERATORS[operator]
        elif operator == "var":
            name = arguments[0] if isinstance(arguments, list) and arguments else arguments
            known.add(_OF_VARIABLES.get(name, OTHER) if isinstance(name, str) else OTHER)
        elif reference_name(value) in evaluators:
            pending.append(evaluators[str(arguments)])
        elif not isinstance(arguments, list) or not arguments:
            return _UNKNOWN
        elif operator in ("max", "min"):
            known.add(NUMBER)
        elif operator in ("and", "or"):
            pending += arguments
        elif operator == "reduce":
            pending += arguments[1:]
        elif operator in ("if", "?:"):
            pending += arguments[1::2]
            pending.append(arguments[-1] if len(arguments) % 2 else None)
        else:
            return _UNKNOWN
    return frozenset(known)
