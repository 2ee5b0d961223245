"""`if`, `?:`, `and`, `or`, `!`, `!!` and the comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.targeting.frame import Evaluate, refuse_rule
from evaluator.targeting.scope import constant, fail_with, is_static
from evaluator.targeting.values import RuleError, equals, less, strictly_equals
from evaluator.targeting.variables import top_level_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json
    from evaluator.targeting.frame import Frame
    from evaluator.targeting.scope import CompileScope


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
