"""`if`, `?:`, `and`, `or`, `!`, `!!` and the comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.targeting.site import Evaluate, Site, constant, failing, inert, is_static
from evaluator.targeting.values import RuleError, equals, less, strictly_equals

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json


def conditional(values: Json, site: Site) -> Evaluate:
    """Compile `if`: pairs of condition and result, then perhaps a last result."""
    if not isinstance(values, list):
        return failing("if needs a list")
    conditions = [
        site.child(node, 2 * i) for i, node in enumerate(values[: len(values) // 2 * 2 : 2])
    ]
    results = [_result(node, 2 * i + 1, site) for i, node in enumerate(values[1::2])]
    last = _result(values[-1], len(values) - 1, site) if len(values) % 2 else constant(None)
    if len(conditions) == 1 and site.trace is None:
        return _single(conditions[0], values, results[0], last)
    pairs = tuple(zip(conditions, results, strict=True))

    def choose(argument: Json) -> Json:
        for condition, result in pairs:
            if condition(argument):
                return result(argument)
        return last(argument)

    return choose


def _single(condition: Evaluate, values: list[Json], result: Evaluate, last: Evaluate) -> Evaluate:
    if all(is_static(node) for node in values[1:]):
        yes, no = values[1], values[2] if len(values) == 3 else None
        return lambda argument: yes if condition(argument) else no
    return lambda argument: result(argument) if condition(argument) else last(argument)


def _result(node: Json, index: int, site: Site) -> Evaluate:
    evaluate = site.child(node, index)
    if is_static(node):
        return evaluate

    def result(argument: Json) -> Json:
        value = evaluate(argument)
        return inert(value) if value.__class__ is dict else value

    return result


def conjunction(values: Json, site: Site) -> Evaluate:
    """Compile `and`: the first false value, or the last."""
    if not isinstance(values, list):
        return failing("and needs a list")
    parts = tuple(site.child(node, index) for index, node in enumerate(values))
    if len(parts) == 2:
        left, right = parts
        return lambda argument: left(argument) and right(argument)

    def every(argument: Json) -> Json:
        value = None
        for part in parts:
            value = part(argument)
            if not value:
                return value
        return value

    return every


def disjunction(values: Json, site: Site) -> Evaluate:
    """Compile `or`: the first true value, or the last."""
    if not isinstance(values, list):
        return failing("or needs a list")
    parts = tuple(site.child(node, index) for index, node in enumerate(values))
    if len(parts) == 2:
        left, right = parts
        return lambda argument: left(argument) or right(argument)

    def some(argument: Json) -> Json:
        value = None
        for part in parts:
            value = part(argument)
            if value:
                return value
        return value

    return some


def negation(values: Json, site: Site) -> Evaluate:
    """Compile `!`: of a list, its first element counts; an empty list is false."""
    truth = affirmation(values, site)
    return lambda argument: not truth(argument)


def affirmation(values: Json, site: Site) -> Evaluate:
    """Compile `!!`."""
    if isinstance(values, list) and values and site.trace is None:
        rest = values[1:]
        if all(is_static(node) for node in rest):
            first = site.child(values[0], 0)
            return lambda argument: bool(first(argument))
    evaluate = site.child(values)

    def truth(argument: Json) -> bool:
        value = evaluate(argument)
        return bool(value[0] if isinstance(value, list) and value else value)

    return truth


def equality(values: Json, site: Site) -> Evaluate:
    """Compile `==`; a variable beside a text is the rule that most flags have."""
    if site.trace is None and isinstance(values, list) and len(values) == 2:
        for known, other, index in ((values[1], values[0], 0), (values[0], values[1], 1)):
            if isinstance(known, str):
                return _equal_to(known, other, site, index)
    return compared(equals)(values, site)


def _equal_to(known: str, other: Json, site: Site, index: int) -> Evaluate:
    if isinstance(other, dict) and len(other) == 1 and not site.in_body:
        name = other.get("var")
        if isinstance(name, str) and name and "." not in name and name != "$flagd":

            def is_known(context: Json) -> bool:
                value = context.get(name)
                return value == known if value.__class__ is str else equals(value, known)

            return is_known
    evaluate = site.child(other, index)
    return lambda argument: equals(evaluate(argument), known)


def compared(
    holds: Callable[[Json, Json], bool], *, negated: bool = False
) -> Callable[[Json, Site], Evaluate]:
    """Make a compiler for a comparison of the first two arguments; fewer are an error."""

    def compile_comparison(values: Json, site: Site) -> Evaluate:
        if isinstance(values, list) and len(values) == 2:
            left, right = site.child(values[0], 0), site.child(values[1], 1)
            if negated:
                return lambda argument: not holds(left(argument), right(argument))
            return lambda argument: holds(left(argument), right(argument))
        arguments_of = site.child(values)

        def compare(argument: Json) -> bool:
            first, second, *_ = _at_least_two(arguments_of(argument))
            return holds(first, second) is not negated

        return compare

    return compile_comparison


def strict(*, negated: bool) -> Callable[[Json, Site], Evaluate]:
    """Make a compiler for `===` or `!==`: with fewer than two arguments nothing is equal."""

    def compile_strict(values: Json, site: Site) -> Evaluate:
        arguments_of = site.child(values)

        def compare(argument: Json) -> bool:
            arguments = arguments_of(argument)
            if not isinstance(arguments, list) or len(arguments) < 2:
                return negated
            return strictly_equals(arguments[0], arguments[1]) is not negated

        return compare

    return compile_strict


def ordered(holds: Callable[[Json, Json], bool]) -> Callable[[Json, Site], Evaluate]:
    """Make a compiler for an ordering of two arguments, or of three, which means between."""
    pair = compared(holds)

    def compile_order(values: Json, site: Site) -> Evaluate:
        if isinstance(values, list) and len(values) == 2:
            return pair(values, site)
        arguments_of = site.child(values)

        def compare(argument: Json) -> bool:
            arguments = _at_least_two(arguments_of(argument))
            low, middle = arguments[:2]
            return holds(low, middle) and (len(arguments) != 3 or holds(middle, arguments[2]))

        return compare

    return compile_order


def _at_least_two(arguments: Json) -> list[Json]:
    if not isinstance(arguments, list) or len(arguments) < 2:
        raise RuleError("a comparison needs two arguments")
    return arguments


LOGIC: dict[str, Callable[[Json, Site], Evaluate]] = {
    "if": conditional,
    "?:": conditional,
    "and": conjunction,
    "or": disjunction,
    "!": negation,
    "!!": affirmation,
    "==": equality,
    "!=": compared(equals, negated=True),
    "===": strict(negated=False),
    "!==": strict(negated=True),
    "<": ordered(less),
    "<=": ordered(lambda left, right: less(left, right) or equals(left, right)),
    ">": ordered(lambda left, right: less(right, left)),
    ">=": ordered(lambda left, right: less(right, left) or equals(left, right)),
}
