"""Compiles a JSONLogic rule to one function of the evaluation context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import is_scalars
from evaluator.targeting.fractional import fractional
from evaluator.targeting.frame import (
    STEPS,
    CompileOptions,
    CompileScope,
    Context,
    Evaluate,
    Frame,
    Trace,
    constant,
    fail_with,
    is_static,
)
from evaluator.targeting.logic import LOGIC, LOOPS
from evaluator.targeting.operators import EAGER
from evaluator.targeting.values import nests_deeper
from evaluator.targeting.variables import FLAGD, compile_missing, compile_missing_some, split, variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Bucketing, Json

DEEPEST: Final = 200
"""Most lists and objects within each other; the parser of flag sets has a stricter bound."""

OPERATORS: Final[dict[str, Callable[[Json, CompileScope], Evaluate]]] = {
    "var": variable,
    "missing": compile_missing,
    "missing_some": compile_missing_some,
    "fractional": fractional,
    **LOGIC,
    **LOOPS,
    **EAGER,
}
"""Every operator of flagd's engine. Each compiler takes the operator's raw arguments and its place; what it
returns reports its result to the frame's trace, if there is one.
"""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A compiled rule. Immutable, so threads may share it."""

    run: Evaluate
    """Called with the evaluation context and a new Frame. Raises RuleError."""
    reads_flagd: bool
    """Whether the context must hold `$flagd`: {"flagKey": str, "timestamp": Unix seconds}."""

    def __call__(self, context: Context, trace: Trace | None = None) -> Json:
        """Evaluate with an evaluation context (a dict); operators report to `trace`. Raises RuleError."""
        frame = Frame()
        frame.steps_left, frame.trace = STEPS, trace
        return self.run(context, frame)


def compile_rule(
    rule: Json, *, bucketing: Bucketing, flag_key: str, hash_of: Callable[[], int] | None = None
) -> CompiledRule:
    """Compile `rule`, its `$ref`s expanded. Never fails: a mistake is a RuleError once it is evaluated.
    hash_of: see CompileOptions.
    """
    if nests_deeper(rule, DEEPEST):
        return CompiledRule(fail_with(f"the rule is nested deeper than {DEEPEST}"), reads_flagd=False)
    scope = CompileScope(CompileOptions(_build, flag_key, bucketing, hash_of))
    return CompiledRule(_build(rule, scope), reads_flagd(rule))


def _build(node: Json, scope: CompileScope) -> Evaluate:
    if isinstance(node, dict):
        return _operator(node, scope) if len(node) == 1 else constant(node)
    if not isinstance(node, list) or is_static(node):
        return constant(node)
    parts = tuple(scope.child(item, index) for index, item in enumerate(node))
    return lambda data, frame: [part(data, frame) for part in parts]


def _operator(node: dict[str, Json], scope: CompileScope) -> Evaluate:
    ((name, values),) = node.items()
    compiler = OPERATORS.get(name)
    if compiler is None:
        return fail_with(f"unknown operator {name!r}")
    return compiler(values, scope.at(name))


_VARIABLES: Final = frozenset({"var", "missing", "missing_some"})
_LOOPS: Final = frozenset({"map", "filter", "reduce", "all", "some", "none"})


def reads_flagd(node: Json, *, in_body: bool = False) -> bool:
    """Whether evaluating `node` may read `$flagd` from the context; True where a name is computed, unknown,
    or the whole context: a needless True costs a copy of the context, a wrong False would let a client's own
    `$flagd` through. in_body: a loop runs `node` for each element.
    """
    if isinstance(node, list):
        return not is_scalars(node) and any(reads_flagd(item, in_body=in_body) for item in node)
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
            # Never substituted from outside, so it reads the element.
            return False
        if not in_body and values == f"{FLAGD}.flagKey":
            # Compiled to the flag's key, not read from the context.
            return False
    return any(_may_be_flagd(name) for name in _names(operator, values))


def _names(operator: str, values: Json) -> list[Json]:
    """Return the names that the operator reads; for a computed one, the value that computes it."""
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
