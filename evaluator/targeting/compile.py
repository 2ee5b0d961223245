"""From a JSONLogic rule to one function of the evaluation context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.targeting.fractional import fractional
from evaluator.targeting.frame import STEPS, Context, Evaluate, Frame, Trace
from evaluator.targeting.logic import LOGIC
from evaluator.targeting.loops import LOOPS
from evaluator.targeting.operators import EAGER
from evaluator.targeting.requirements import reads_flagd
from evaluator.targeting.scope import CompileOptions, CompileScope, constant, failing, is_static
from evaluator.targeting.values import nests_deeper
from evaluator.targeting.variables import missing, missing_some, variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Bucketing, Json

DEEPEST: Final = 200
"""Lists and objects within each other; a parser that admits rules has a stricter bound of its own."""

OPERATORS: Final[dict[str, Callable[[Json, CompileScope], Evaluate]]] = {
    "var": variable,
    "missing": missing,
    "missing_some": missing_some,
    "fractional": fractional,
    **LOGIC,
    **LOOPS,
    **EAGER,
}
"""Every operator of flagd's engine. Each compiler takes the operator's raw arguments and its place; what it
returns reports its result to the frame's trace, if there is one.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. It holds nothing that an evaluation changes, so threads may share it."""

    run: Evaluate
    """Called with the evaluation context and a new Frame. Raises RuleError."""
    reads_flagd: bool
    """The context must hold `$flagd`: {"flagKey": str, "timestamp": Unix seconds}."""

    def __call__(self, context: Context, trace: Trace | None = None) -> Json:
        """Evaluate with an evaluation context (a dict); operators report to `trace`. Raises RuleError."""
        frame = Frame()
        frame.steps_left, frame.trace = STEPS, trace
        return self.run(context, frame)


def compile_rule(rule: Json, *, bucketing: Bucketing, flag_key: str) -> Rule:
    """Compile `rule`, its `$ref`s expanded. Never fails: a mistake is a RuleError once it is evaluated."""
    if nests_deeper(rule, DEEPEST):
        return Rule(failing(f"the rule is nested deeper than {DEEPEST}"), reads_flagd=False)
    scope = CompileScope(CompileOptions(_build, flag_key, bucketing))
    return Rule(_build(rule, scope), reads_flagd(rule))


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
        return failing(f"unknown operator {name!r}")
    return compiler(values, scope.at(name))
