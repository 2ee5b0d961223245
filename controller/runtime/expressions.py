"""Expressions of the Common Expression Language (CEL) that users write: checked when they are read, and
evaluated within a budget, since a tenant may write what would never end.

Of CEL there are its operators, the macros `all`, `exists`, `exists_one`, `filter`, `map` and `has`, and the
functions that `expression_syntax` names, of which `isSorted` is an extension by Kubernetes
(https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-list-library); there are no bytes,
durations and messages, and timestamps can only be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from celpy import celtypes
from celpy.adapter import CELJSONEncoder, json_to_cel
from celpy.celtypes import BoolType, DoubleType, IntType, ListType, MapType, StringType, TimestampType
from celpy.evaluation import Activation, CELEvalError, Evaluator, base_functions

from controller.api.expression_syntax import LONGEST, ExpressionError, one_line_of, parse
from controller.api.parsing import InvalidTextError, compile_pattern
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    import lark

_Operator = TypeVar("_Operator", bound="Callable[..., Any]")

BUDGET: Final = 4_000
"""Steps of one evaluation: a node of the expression that is visited, 32 characters or one element of a value
that it works on, and what reading a pattern and searching with it may take. All of them take about a
tenth of a second.
"""
INPUT: Final = 16_000
"""Elements, and 32 characters each, of all values that an expression is given: converting them takes about a
tenth of a second.
"""
_MEMORY: Final = 1 << 20
"""Bytes that RE2 may use for one pattern."""
_PATTERNS: Final = 32
"""Compiled patterns that one evaluation keeps."""
_REFUSAL: Final = 320
"""Steps of a pattern that turns out to be too large."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression, all of whose names are known."""

    text: str
    _tree: lark.Tree[lark.Token]

    @classmethod
    def of(cls, text: str, variables: frozenset[str]) -> Self:
        """Read it. It may use `variables`. Raises ExpressionError."""
        return cls(text, parse(text, variables))

    def holds(self, values: Mapping[str, Any], budget: int = BUDGET) -> bool:
        """Whether it is true; `values`: by the names of variables, as JSON has them. Raises ExpressionError,
        also for what is neither true nor false, for what takes more than `budget` steps, and for values that
        have more than `INPUT` elements.
        """
        result = self._evaluate(values, budget)
        if not isinstance(result, BoolType):
            raise ExpressionError(f"1:1: it gives a {_kind(result)}, and must give true or false")
        return bool(result)

    def value(self, values: Mapping[str, Any], budget: int = BUDGET) -> Any:
        """What it gives, as JSON has it. Raises ExpressionError, as `holds` does."""
        return CELJSONEncoder.to_python(self._evaluate(values, budget))

    def _evaluate(self, values: Mapping[str, Any], budget: int) -> Any:
        try:
            _Budget(INPUT, "the objects that it is about are too large").pay_for(values)
            names = {name: json_to_cel(value) for name, value in values.items()}
            return _Bounded(self._tree, Activation(vars=names), _Budget(budget)).evaluate()
        except CELEvalError as error:
            line, column = error.line or 1, error.column or 1
            why = str(error.args[0])
            why = "these types cannot be combined" if "overload" in why else why
            raise ExpressionError(f"{line}:{column}: {one_line_of(why)}") from None
        except RecursionError:
            raise ExpressionError("1:1: it is nested too deeply") from None
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ExpressionError(f"1:1: {one_line_of(error)}") from None


def _kind(value: object) -> str:
    kinds = {
        DoubleType: "double", IntType: "int", ListType: "list", StringType: "string", MapType: "map",
        TimestampType: "timestamp",
    }  # fmt: skip
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "null")


@dataclass(slots=True)
class _Budget:
    """The remaining steps of one evaluation."""

    left: int
    refusal: str = "it takes too many steps"
    _patterns: dict[str, Any] = field(default_factory=dict)

    def pay(self, steps: int) -> None:
        """Charge `steps`. Raises ExpressionError if too few remain."""
        self.left -= steps
        if self.left < 0:
            raise ExpressionError(f"1:1: {self.refusal}")

    def pay_for(self, value: object) -> None:
        """Charge for walking a value, once for each occurrence."""
        self.pay(1)
        if isinstance(value, str):
            self.pay(len(value) // 32)
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                self.pay_for(name)
                self.pay_for(entry)
        elif isinstance(value, list):
            for entry in value:
                self.pay_for(entry)

    def compile(self, pattern: str) -> Any:
        """Kept until the evaluation ends, and paid for in each, so that it takes as many steps every time.
        Raises TypeError.
        """
        if len(pattern) > LONGEST:
            raise TypeError("too long for an RE2 expression")
        if pattern not in self._patterns:
            self.pay(len(pattern))
            if len(self._patterns) >= _PATTERNS:
                self._patterns.clear()
            expression = self._patterns[pattern] = _compile(pattern)
            self.pay(expression.programsize // 64 if expression else _REFUSAL)
        if self._patterns[pattern] is None:
            raise TypeError("not an RE2 expression")
        return self._patterns[pattern]


class _Bounded(Evaluator):
    """Pays for each node, and for each value before anything is done with it. So no value grows beyond the
    budget, and whatever the library does with one takes time in proportion.
    """

    def __init__(self, ast: lark.Tree[lark.Token], activation: Activation, budget: _Budget) -> None:
        super().__init__(ast, activation)
        self._budget = budget
        functions = base_functions | _OWN
        functions |= {"_+_": self._add, "contains": self._contains, "matches": self._matches}
        functions["isSorted"] = self._is_sorted
        activation.functions = activation.functions.new_child(functions)

    def sub_evaluator(self, ast: lark.Tree[lark.Token]) -> _Bounded:
        return _Bounded(ast, self.activation, self._budget)

    def visit_children(self, tree: lark.Tree[lark.Token]) -> list[Any]:
        self._budget.pay(1)
        return super().visit_children(tree)

    def unary(self, tree: lark.Tree[lark.Token]) -> Any:
        value = super().unary(tree)
        self._budget.pay_for(value)
        return value

    def member_dot(self, tree: lark.Tree[lark.Token]) -> Any:
        """A field of a map. The library writes all of what is no map into its error."""
        whole, name = tree.children
        value = self.visit(cast("lark.Tree[lark.Token]", whole))
        if isinstance(value, CELEvalError):
            return value
        if not isinstance(value, MapType):
            return CELEvalError("no such overload", TypeError, None, tree=tree)
        try:
            return value[str(name)]
        except KeyError:
            return CELEvalError(f"no such member in mapping: {str(name)!r}", KeyError, None, tree=tree)

    def _add(self, one: Any, other: Any) -> Any:
        total = one + other
        self._budget.pay_for(total)
        return total

    def _contains(self, whole: Any, part: Any) -> Any:
        # What stands before the dot is no `unary`, and has not been paid for.
        self._budget.pay_for(whole)
        return base_functions["contains"](whole, part)

    def _is_sorted(self, values: Any) -> BoolType:
        if not isinstance(values, ListType):
            raise TypeError("no such overload")
        self._budget.pay_for(values)
        pairs = pairwise(cast("list[Any]", values))
        return BoolType(all(bool(before <= after) for before, after in pairs))

    def _matches(self, text: Any, pattern: Any) -> BoolType:
        if not isinstance(text, str) or not isinstance(pattern, str):
            raise TypeError("no such overload")
        self._budget.pay_for(text)
        expression = self._budget.compile(pattern)
        # A search may try each part of the pattern at each letter.
        self._budget.pay(len(text) * expression.programsize // 4_096)
        return BoolType(expression.search(text) is not None)


def _logical(of_library: _Operator) -> _Operator:
    """`&&` or `||` whose error has one size: the library writes both operands into the text of its error, and
    that into the next, so a chain of errors doubles with each.
    """

    def guard(one: Any, other: Any) -> Any:
        if isinstance(one, BoolType) or isinstance(other, BoolType):
            return of_library(one, other)
        for operand in (one, other):
            if isinstance(operand, Exception):
                return operand
        raise TypeError("no such overload")

    return cast("_Operator", wraps(of_library)(guard))


# The library's macros and its comparison of lists and maps call these by name, and take no others.
celtypes.logical_and = _logical(celtypes.logical_and)
celtypes.logical_or = _logical(celtypes.logical_or)


def _of_numbers(name: str) -> Callable[[Any, Any], Any]:
    """An operator of numbers alone: to Python, a text times a number is a text, too."""
    operator = base_functions[name]

    def guard(one: Any, other: Any) -> Any:
        for operand in (one, other):
            if not isinstance(operand, int | float) or isinstance(operand, BoolType):
                raise TypeError("no such overload")
        return operator(one, other)

    guard.__name__ = name
    return guard


def _compile(pattern: str) -> Any:
    """Compile a pattern; None for an invalid or too large one."""
    try:
        return compile_pattern(pattern, _MEMORY)
    except InvalidTextError:
        return None


def _timestamp(text: Any) -> TimestampType:
    """The library's own takes more than times as RFC 3339 has them."""
    moment = parse_time(text) if isinstance(text, str) else None
    if moment is None:
        raise ExpressionError("1:1: timestamp() takes a time such as 2026-12-24T12:00:00Z")
    return TimestampType(moment)


_OWN: Final[dict[str, Any]] = {
    "_&&_": celtypes.logical_and,
    "_||_": celtypes.logical_or,
    "timestamp": _timestamp,
} | {name: _of_numbers(name) for name in ("_-_", "_*_", "_/_", "_%_")}
