"""The rule of a flag under an override: `{"if": [CONDITION, VARIANT, …]}`, and the rule in it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.flags.checking.outcomes import OutcomeReader, variant_named
from evaluator.flags.model import ABSENT, State

if TYPE_CHECKING:
    from evaluator.flags.model import Flag, Json


def rest_of(beneath: Flag) -> list[Json]:
    """Return the arguments of `if` after the variant: the rule for everybody else. A rule that is not to be
    evaluated stands behind `false`; an empty object is no rule, but only as the whole of `targeting`.
    """
    rule = beneath.targeting
    if rule is ABSENT:
        return []
    if rule == {}:
        return [False, None, None]
    return [rule] if beneath.state is State.ENABLED else [False, rule]


def rule_beneath(arguments: list[Json]) -> Json:
    """Return the rule of which `rest_of` made the last of these arguments of `if`."""
    match arguments[2:]:
        case []:
            return ABSENT
        case [rule] | [False, rule]:
            return rule
        case _:
            return {}


def arguments_of(rule: Json) -> list[Json]:
    """Return the arguments of a rule that `with_override` made; empty for any other."""
    match rule:
        case {"if": [{"<": _} | {"and": [_, _]}, str(), *rest]} if len(rule) == 1 and len(rest) <= 3:
            return list(rule["if"])
        case _:
            return []


def may_choose(flag: Flag, name: str) -> bool:
    """Whether a definition may choose a variant that it lacks: its users get an error then, and no value."""
    if flag.state is State.DISABLED or flag.targeting in (ABSENT, {}):
        return False
    # What shared rules come to is not known here.
    outcomes = OutcomeReader({}).of(flag.targeting)
    return outcomes.computed or any(variant_named(literal) == name for _, literal in outcomes.literals)
