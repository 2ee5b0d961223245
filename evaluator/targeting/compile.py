"""From a JSONLogic rule to one function of the evaluation context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.targeting.fractional import fractional
from evaluator.targeting.logic import LOGIC
from evaluator.targeting.loops import LOOPS
from evaluator.targeting.operators import EAGER
from evaluator.targeting.site import (
    STEPS,
    Context,
    Evaluate,
    Plan,
    Site,
    Trace,
    constant,
    failing,
    is_static,
)
from evaluator.targeting.variables import missing, missing_some, variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Bucketing, Json

DEEPEST: Final = 200
"""Lists and objects within each other; a parser that admits rules has a stricter bound of its own."""

OPERATORS: Final[dict[str, Callable[[Json, Site], Evaluate]]] = {
    "var": variable,
    "missing": missing,
    "missing_some": missing_some,
    "fractional": fractional,
    **LOGIC,
    **LOOPS,
    **EAGER,
}
"""Every operator of flagd's engine. Each compiler takes the operator's raw arguments and its place."""

_REPORT_THEMSELVES: Final = frozenset({"var", "fractional"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule; call it with an evaluation context (a dict) for its result. Raises RuleError."""

    run: Callable[[Context], Json]
    reads_flagd: bool
    """The context must hold `$flagd`: {"flagKey": str, "timestamp": Unix seconds}."""

    def __call__(self, context: Context) -> Json:
        """Evaluate; the same as `run`."""
        return self.run(context)


def compile_rule(
    rule: Json, *, bucketing: Bucketing, flag_key: str, trace: Trace | None = None
) -> Rule:
    """Compile `rule`, its `$ref`s expanded. Never fails: what is wrong is a RuleError once it is evaluated.

    With a `trace`, every operator that is evaluated reports to it.
    """
    if _too_deep(rule):
        return Rule(failing(f"the rule is nested deeper than {DEEPEST}"), reads_flagd=False)
    site = Site(Plan(_build, flag_key, bucketing, trace))
    root = _build(rule, site)
    if not site.needs.meter:
        return Rule(root, site.needs.flagd)
    meter = site.meter

    def metered(context: Context) -> Json:
        meter.left = STEPS
        return root(context)

    return Rule(metered, site.needs.flagd)


def _too_deep(rule: Json) -> bool:
    level = [rule]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True


def _build(node: Json, site: Site) -> Evaluate:
    if isinstance(node, dict):
        return _operator(node, site) if len(node) == 1 else constant(node)
    if not isinstance(node, list) or is_static(node):
        return constant(node)
    parts = tuple(site.child(item, index) for index, item in enumerate(node))
    return lambda argument: [part(argument) for part in parts]


def _operator(node: dict[str, Json], site: Site) -> Evaluate:
    ((name, values),) = node.items()
    compiler = OPERATORS.get(name)
    if compiler is None:
        return failing(f"unknown operator {name!r}")
    place = site.at(name)
    evaluate = compiler(values, place)
    if site.trace is None or name in _REPORT_THEMSELVES:
        return evaluate
    return lambda argument: place.report(evaluate(argument))
