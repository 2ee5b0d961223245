"""The compiler's position in a rule, given to every operator's compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluator.targeting.values import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Bucketing, Json
    from evaluator.targeting.frame import Evaluate, Frame, Path


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a whole rule's compilation."""

    build: Callable[[Json, CompileScope], Evaluate]
    flag_key: str
    bucketing: Bucketing


@dataclass(frozen=True, slots=True)
class CompileScope:
    """One position in a rule, given to operators' compilers with their arguments."""

    options: CompileOptions
    path: Path = ()
    in_body: bool = False
    """Whether the current value is an element of a list, not the evaluation context."""
    substituted: bool = False
    """Whether the current value is an `Element`: variables are substituted before the body runs."""

    def at(self, *steps: str | int) -> CompileScope:
        """Return the position `steps` below."""
        return CompileScope(self.options, self.path + steps, self.in_body, self.substituted)

    def element(self, *steps: str | int, substituted: bool) -> CompileScope:
        """Return the position below that is evaluated with each element of a list."""
        return CompileScope(self.options, self.path + steps, True, substituted)

    def child(self, node: Json, *steps: str | int) -> Evaluate:
        """Compile `node`, which is `steps` below."""
        return self.options.build(node, self.at(*steps))

    def body(self, node: Json, *steps: str | int, substituted: bool) -> Evaluate:
        """Compile a node that is evaluated with each element of a list."""
        return self.options.build(node, self.element(*steps, substituted=substituted))


def constant(value: Json) -> Evaluate:
    """Return a node with a constant value."""
    return lambda _data, _frame: value


def fail_with(message: str) -> Evaluate:
    """Return a node that raises an error at its evaluation, as in flagd."""

    def fail(_data: Json, _frame: Frame) -> Json:
        raise RuleError(message)

    return fail


def is_static(node: Json) -> bool:
    """Whether evaluating `node` gives `node`: nothing in it is an operator. An object without exactly one key
    is no operator but a value, whatever it holds.
    """
    if isinstance(node, dict):
        return len(node) != 1
    return not isinstance(node, list) or all(is_static(item) for item in node)
