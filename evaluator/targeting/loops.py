"""`map`, `filter`, `reduce`, `all`, `some`, `none`: rules that run once per element."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evaluator.targeting.site import Evaluate, Scope, Site, constant, failing
from evaluator.targeting.values import RuleError, is_number, number, real, text
from evaluator.targeting.variables import variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json

_Solvers: TypeAlias = "Callable[[tuple[Json, ...], Json, Json], tuple[Json, ...]]"
"""(solvers so far, outer value, element) → the solvers of the body."""


def _size(node: Json) -> int:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return 1 + sum(_size(child) for child in children)


def _subject(node: Json, site: Site) -> Evaluate:
    """The list that is run over: a literal one is taken as it stands, other literals count as none."""
    if isinstance(node, list):
        return constant(node)
    if not isinstance(node, dict):
        return constant(None)
    if len(node) == 1 and "var" in node:
        return variable(node["var"], site.at(0, "var"), subject=True)
    return site.child(node, 0)


def _elements(subject: Json) -> list[Json]:
    if not isinstance(subject, list):
        raise RuleError("a loop needs a list")
    return subject


def _data(argument: Json) -> Json:
    return argument.data if isinstance(argument, Scope) else argument


def _solved(solvers_of: _Solvers) -> Callable[[Json, Json], Scope]:
    """Make what builds the scope of one element."""

    def scope_of(argument: Json, element: Json) -> Scope:
        if isinstance(argument, Scope):
            return Scope(element, solvers_of(argument.solvers, argument.data, element))
        return Scope(element, solvers_of((), argument, element))

    return scope_of


_by_outer = _solved(lambda solvers, outer, _: (*solvers, outer))
_by_element = _solved(lambda solvers, _, element: (*solvers, element))
_by_both = _solved(lambda solvers, outer, element: (*solvers, outer, element))


def _inner(argument: Json, element: Json) -> Json:
    """The argument of a body that is not substituted: `map`, `reduce`."""
    return Scope(element, argument.solvers) if isinstance(argument, Scope) else element


def _condition(node: Json, site: Site) -> Evaluate:
    """The body of `all`, `none`, `some`: it must be an object."""
    if not isinstance(node, dict):
        return failing("a condition in a loop must be a rule")
    if len(node) == 1 and "var" in node:
        return variable(node["var"], site.element(1, "var", scoped=True), condition=True)
    return site.body(node, 1, scoped=True)


def filtered(values: Json, site: Site) -> Evaluate:
    """Compile `filter`."""
    if not isinstance(values, list) or len(values) < 2:
        return failing("filter needs a list and a rule")
    subject_of, meter = _subject(values[0], site), site.metered()
    body, cost = site.body(values[1], 1, scoped=True), _size(values[1])

    def keep(argument: Json) -> Json:
        subject = subject_of(argument)
        kept = []
        for element in () if subject is None else _elements(subject):
            meter.charge(cost)
            if body(_by_outer(argument, element)):
                kept.append(element)
        return kept

    return keep


def mapped(values: Json, site: Site) -> Evaluate:
    """Compile `map`."""
    if not isinstance(values, list) or len(values) < 2:
        return failing("map needs a list and a rule")
    subject_of, meter = _subject(values[0], site), site.metered()
    body = site.body(values[1], 1, scoped=site.scoped)
    cost = _size(values[1])

    def transform(argument: Json) -> Json:
        subject = subject_of(argument)
        results = []
        for element in () if subject is None else _elements(subject):
            meter.charge(cost)
            results.append(body(_inner(argument, element)))
        return results

    return transform


def reduced(values: Json, site: Site) -> Evaluate:
    """Compile `reduce`: what the accumulator starts as, it stays: a boolean, a number or text."""
    if not isinstance(values, list) or len(values) < 3:
        return failing("reduce needs a list, a rule and a first value")
    subject_of, meter = _subject(values[0], site), site.metered()
    start = site.child(values[2], 2) if isinstance(values[2], dict) else constant(values[2])
    body = (
        site.body(values[1], 1, scoped=site.scoped)
        if isinstance(values[1], dict)
        else failing("reduce needs a rule")
    )
    cost = _size(values[1])

    def accumulate(argument: Json) -> Json:
        accumulator, name, convert = _accumulator(start(argument))
        subject = subject_of(argument)
        if subject is None:
            return 0.0
        for element in _elements(subject):
            meter.charge(cost)
            if element is not None:
                frame = {"current": element, "accumulator": accumulator, "valueType": name}
                accumulator = convert(body(_inner(argument, frame)))
        return accumulator

    return accumulate


def _accumulator(start: Json) -> tuple[Json, str, Callable[[Json], Json]]:
    if isinstance(start, bool):
        return start, "bool", bool
    if is_number(start):
        return real(start), "number", number
    if isinstance(start, str):
        return start, "string", text
    raise RuleError("reduce starts with a boolean, a number or text")


def quantified(
    scope_of: Callable[[Json, Json], Scope], *, stops_at: bool, then: bool, empty: bool
) -> Callable[[Json, Site], Evaluate]:
    """Make a compiler for `all`, `none` or `some`.

    scope_of: who substitutes into the condition. stops_at: the outcome of an element that settles it. then: the
    answer if one did. empty: the answer where there is nothing to ask.
    """

    def compile_quantifier(values: Json, site: Site) -> Evaluate:
        if not isinstance(values, list) or not values:
            return failing("a loop needs a list and a rule")
        subject_of, meter = _subject(values[0], site), site.metered()
        body = _condition(values[1] if len(values) > 1 else None, site)
        cost = _size(values[1:])

        def ask(argument: Json) -> bool:
            subject = subject_of(argument)
            if not subject:
                return empty
            for element in _elements(subject):
                meter.charge(cost)
                if bool(body(scope_of(argument, element))) is stops_at:
                    return then
            return not then

        return ask

    return compile_quantifier


LOOPS: dict[str, Callable[[Json, Site], Evaluate]] = {
    "filter": filtered,
    "map": mapped,
    "reduce": reduced,
    "all": quantified(_by_element, stops_at=False, then=False, empty=False),
    "some": quantified(_by_both, stops_at=True, then=True, empty=False),
    "none": quantified(_by_outer, stops_at=True, then=False, empty=True),
}
