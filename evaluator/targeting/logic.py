"""`if`, `and`, `or`, `!`, the comparisons, and rules that run once per element. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evaluator.targeting.frame import (
    CompileScope,
    Element,
    Evaluate,
    Frame,
    constant,
    fail_with,
    is_static,
    refuse_rule,
)
from evaluator.targeting.values import RuleError, equals, is_number, less, number, real, strictly_equals, text
from evaluator.targeting.variables import top_level_name, variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json


def conditional(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `if`: pairs of condition and result, then perhaps a last result."""
    if not isinstance(values, list):
        return fail_with("if needs a list")
    parts = [scope.child(node, index) for index, node in enumerate(values)]
    last = parts.pop() if len(parts) % 2 else constant(None)
    pairs = tuple(zip(parts[::2], parts[1::2], strict=True))
    path = scope.path
    if len(pairs) == 1 and all(is_static(node) for node in values[1:]):
        return _choice(pairs[0][0], values[1], values[2] if len(values) == 3 else None, scope)

    def choose(data: Json, frame: Frame) -> Json:
        for condition, result in pairs:
            if condition(data, frame):
                value = result(data, frame)
                break
        else:
            value = last(data, frame)
        if value.__class__ is dict:
            refuse_rule(value)
        return value if frame.trace is None else frame.report(path, value)

    return choose


def _choice(condition: Evaluate, yes: Json, no: Json, scope: CompileScope) -> Evaluate:
    path = scope.path

    def choose(data: Json, frame: Frame) -> Json:
        value = yes if condition(data, frame) else no
        return value if frame.trace is None else frame.report(path, value)

    return choose


def compile_junction(*, ends_on: bool) -> Callable[[Json, CompileScope], Evaluate]:
    """Make a compiler for `and` or `or`: the first value whose truth is `ends_on`, or the last one."""

    def compile_joined(values: Json, scope: CompileScope) -> Evaluate:
        if not isinstance(values, list):
            return fail_with(f"{scope.path[-1]} needs a list")
        parts = tuple(scope.child(node, index) for index, node in enumerate(values))
        path = scope.path

        def join(data: Json, frame: Frame) -> Json:
            value = None
            for part in parts:
                value = part(data, frame)
                if value if ends_on else not value:
                    break
            return value if frame.trace is None else frame.report(path, value)

        return join

    return compile_joined


def truth(*, negated: bool) -> Callable[[Json, CompileScope], Evaluate]:
    """Make a compiler for `!` or `!!`: of a list its first element counts; an empty list is false."""

    def compile_truth(values: Json, scope: CompileScope) -> Evaluate:
        if isinstance(values, list) and values and all(is_static(node) for node in values[1:]):
            first_of = scope.child(values[0], 0)
        else:
            first_of = _first_of(scope.child(values))
        path = scope.path

        def holds(data: Json, frame: Frame) -> Json:
            value = bool(first_of(data, frame)) is not negated
            return value if frame.trace is None else frame.report(path, value)

        return holds

    return compile_truth


def _first_of(arguments_of: Evaluate) -> Evaluate:
    def first(data: Json, frame: Frame) -> Json:
        arguments = arguments_of(data, frame)
        return arguments[0] if isinstance(arguments, list) and arguments else arguments

    return first


def equality(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `==`; a variable beside a text is the rule that most flags have."""
    if isinstance(values, list) and len(values) == 2:
        for known, other, index in ((values[1], values[0], 0), (values[0], values[1], 1)):
            if isinstance(known, str) and isinstance(other, dict) and len(other) == 1 and "var" in other:
                name = top_level_name(other["var"], scope)
                if name is not None:
                    return _variable_equals(name, known, scope, index)
    return _EQUALS(values, scope)


def _variable_equals(name: str, known: str, scope: CompileScope, index: int) -> Evaluate:
    """`==` and the `var` in it at once; both report."""
    path, variable_path = scope.path, (*scope.path, index, "var")

    def is_known(context: Json, frame: Frame) -> Json:
        value = context.get(name)
        equal = value == known if value.__class__ is str else equals(value, known)
        if frame.trace is None:
            return equal
        frame.report(variable_path, value, name=name)
        return frame.report(path, equal)

    return is_known


def compile_comparison(
    holds: Callable[[Json, Json], bool], *, negated: bool = False, ranges: bool = False, bare: bool = False
) -> Callable[[Json, CompileScope], Evaluate]:
    """Make a compiler for a comparison of the first two arguments; with fewer it is false. ranges: of three
    arguments, the second and third must compare, too. bare: arguments that are no list count as too few; else
    they are an error.
    """

    def compile_comparison(values: Json, scope: CompileScope) -> Evaluate:
        path = scope.path
        if isinstance(values, list) and len(values) == 2:
            left, right = scope.child(values[0], 0), scope.child(values[1], 1)

            def compare(data: Json, frame: Frame) -> Json:
                value = holds(left(data, frame), right(data, frame)) is not negated
                return value if frame.trace is None else frame.report(path, value)

            return compare
        arguments_of = scope.child(values)

        def compare_arguments(data: Json, frame: Frame) -> Json:
            arguments = arguments_of(data, frame)
            if not isinstance(arguments, list):
                if not bare:
                    raise RuleError("a comparison needs a list of arguments")
                arguments = []
            value = len(arguments) > 1 and holds(arguments[0], arguments[1])
            if value and ranges and len(arguments) == 3:
                value = holds(arguments[1], arguments[2])
            value = value is not negated
            return value if frame.trace is None else frame.report(path, value)

        return compare_arguments

    return compile_comparison


_EQUALS = compile_comparison(equals)

LOGIC: dict[str, Callable[[Json, CompileScope], Evaluate]] = {
    "if": conditional,
    "?:": conditional,
    "and": compile_junction(ends_on=False),
    "or": compile_junction(ends_on=True),
    "!": truth(negated=True),
    "!!": truth(negated=False),
    "==": equality,
    "!=": compile_comparison(equals, negated=True),
    "===": compile_comparison(strictly_equals, bare=True),
    "!==": compile_comparison(strictly_equals, negated=True, bare=True),
    "<": compile_comparison(less, ranges=True),
    "<=": compile_comparison(lambda left, right: less(left, right) or equals(left, right), ranges=True),
    ">": compile_comparison(lambda left, right: less(right, left), ranges=True),
    ">=": compile_comparison(lambda left, right: less(right, left) or equals(left, right), ranges=True),
}


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
