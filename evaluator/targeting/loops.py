"""`map`, `filter`, `reduce`, `all`, `some`, `none`: rules that run once per element."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evaluator.targeting.frame import Element, Evaluate
from evaluator.targeting.scope import constant, fail_with
from evaluator.targeting.values import RuleError, is_number, number, real, text
from evaluator.targeting.variables import variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json
    from evaluator.targeting.frame import Frame
    from evaluator.targeting.scope import CompileScope

_Solvers: TypeAlias = "Callable[[tuple[Json, ...], Json, Json], tuple[Json, ...]]"
"""(solvers so far, outer value, element) → the solvers of the body."""


def _size(node: Json) -> int:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return 1 + sum(_size(child) for child in children)


def _subject(node: Json, scope: CompileScope) -> Evaluate:
    """Compile the list of a loop: a literal list is not evaluated, other literals count as no list."""
    if isinstance(node, list):
        return constant(node)
    if not isinstance(node, dict):
        return constant(None)
    if len(node) == 1 and "var" in node:
        return variable(node["var"], scope.at(0, "var"), subject=True)
    return scope.child(node, 0)


def _elements(subject: Json) -> list[Json]:
    if not isinstance(subject, list):
        raise RuleError("a loop needs a list")
    return subject


def _pair_with_solvers(solvers_of: _Solvers) -> Callable[[Json, Json], Element]:
    """Return a function that pairs an element with the values to substitute into the body."""

    def element_of(argument: Json, element: Json) -> Element:
        if isinstance(argument, Element):
            return Element(element, solvers_of(argument.solvers, argument.data, element))
        return Element(element, solvers_of((), argument, element))

    return element_of


_by_outer = _pair_with_solvers(lambda solvers, outer, _: (*solvers, outer))
_by_element = _pair_with_solvers(lambda solvers, _, element: (*solvers, element))
_by_both = _pair_with_solvers(lambda solvers, outer, element: (*solvers, outer, element))


def _inner(argument: Json, element: Json) -> Json:
    """Return the argument of the bodies of `map` and `reduce`, which are not substituted."""
    return Element(element, argument.solvers) if isinstance(argument, Element) else element


def _condition(node: Json, scope: CompileScope, *, substituted: bool) -> Evaluate:
    """Compile the body of `all`, `none`, `some` or `reduce`: it must be an object."""
    if not isinstance(node, dict):
        return fail_with("the rule of a loop must be an object")
    if len(node) == 1 and "var" in node:
        return variable(node["var"], scope.element(1, "var", substituted=substituted), condition=True)
    return scope.body(node, 1, substituted=substituted)


def _with_arguments(
    compile_loop: Callable[[list[Json], CompileScope], Evaluate], *, least: int, otherwise: Json
) -> Callable[[Json, CompileScope], Evaluate]:
    """Wrap the compiler for at least `least` arguments; with fewer the engine returns `otherwise`."""

    def compile_checked(values: Json, scope: CompileScope) -> Evaluate:
        path = scope.path
        if not isinstance(values, list):
            return fail_with(f"{path[-1]} needs a list of arguments")
        if len(values) < least:
            return lambda _data, frame: frame.report(path, otherwise)
        return compile_loop(values, scope)

    return compile_checked


def compile_filter(values: list[Json], scope: CompileScope) -> Evaluate:
    """Compile `filter`."""
    subject_of, path = _subject(values[0], scope), scope.path
    body, cost = scope.body(values[1], 1, substituted=True), _size(values[1])

    def keep(argument: Json, frame: Frame) -> Json:
        subject = subject_of(argument, frame)
        kept = []
        for element in () if subject is None else _elements(subject):
            frame.charge(cost)
            if body(_by_outer(argument, element), frame):
                kept.append(element)
        return frame.report(path, kept)

    return keep


def compile_map(values: list[Json], scope: CompileScope) -> Evaluate:
    """Compile `map`."""
    subject_of, path = _subject(values[0], scope), scope.path
    body, cost = scope.body(values[1], 1, substituted=scope.substituted), _size(values[1])

    def transform(argument: Json, frame: Frame) -> Json:
        subject = subject_of(argument, frame)
        results = []
        for element in () if subject is None else _elements(subject):
            frame.charge(cost)
            results.append(body(_inner(argument, element), frame))
        return frame.report(path, results)

    return transform


def compile_reduce(values: list[Json], scope: CompileScope) -> Evaluate:
    """Compile `reduce`: the accumulator keeps the type of its first value: a boolean, a number or text."""
    subject_of, path = _subject(values[0], scope), scope.path
    start = scope.child(values[2], 2) if isinstance(values[2], dict) else constant(values[2])
    body, cost = _condition(values[1], scope, substituted=scope.substituted), _size(values[1])

    def accumulate(argument: Json, frame: Frame) -> Json:
        accumulator, name, convert = _accumulator(start(argument, frame))
        subject = subject_of(argument, frame)
        if subject is None:
            return frame.report(path, 0.0)
        for element in _elements(subject):
            frame.charge(cost)
            if element is not None:
                data = {"current": element, "accumulator": accumulator, "valueType": name}
                accumulator = convert(body(_inner(argument, data), frame))
        return frame.report(path, accumulator)

    return accumulate


def _accumulator(start: Json) -> tuple[Json, str, Callable[[Json], Json]]:
    if isinstance(start, bool):
        return start, "bool", bool
    if is_number(start):
        return real(start), "number", number
    if isinstance(start, str):
        return start, "string", text
    raise RuleError("reduce starts with a boolean, a number or text")


def compile_quantifier(
    element_of: Callable[[Json, Json], Element], *, stops_at: bool, then: bool, empty: bool
) -> Callable[[Json, CompileScope], Evaluate]:
    """Make a compiler for `all`, `none` or `some`. element_of: pairs elements with substituted values.
    stops_at: the outcome of an element that ends the loop. then: the result in that case. empty: the result
    for an empty list, null or another false value.
    """

    def compile_quantifier(values: Json, scope: CompileScope) -> Evaluate:
        if not isinstance(values, list) or not values:
            return fail_with("a loop needs a list and a rule")
        subject_of, path = _subject(values[0], scope), scope.path
        body = _condition(values[1] if len(values) > 1 else None, scope, substituted=True)
        cost = _size(values[1:])

        def ask(argument: Json, frame: Frame) -> Json:
            subject = subject_of(argument, frame)
            if not subject:
                return frame.report(path, empty)
            for element in _elements(subject):
                frame.charge(cost)
                if bool(body(element_of(argument, element), frame)) is stops_at:
                    return frame.report(path, then)
            return frame.report(path, not then)

        return ask

    return compile_quantifier


LOOPS: dict[str, Callable[[Json, CompileScope], Evaluate]] = {
    "filter": _with_arguments(compile_filter, least=2, otherwise=[]),
    "map": _with_arguments(compile_map, least=2, otherwise=[]),
    "reduce": _with_arguments(compile_reduce, least=3, otherwise=0.0),
    "all": compile_quantifier(_by_element, stops_at=False, then=False, empty=False),
    "some": compile_quantifier(_by_both, stops_at=True, then=True, empty=False),
    "none": compile_quantifier(_by_outer, stops_at=True, then=False, empty=True),
}
