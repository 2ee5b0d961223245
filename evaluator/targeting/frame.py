"""The state of one evaluation, and the compiler's position in a rule. Pure.

The state is the remaining steps and, for an explanation, the trace.

A compiled rule is immutable and shared by every evaluation of it, concurrent ones too. What changes while a
rule runs is in the frame, which the caller creates for each evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from evaluator.flags.model import Bucketing, Json
from evaluator.targeting.values import RuleError

Context: TypeAlias = Mapping[str, Json]
"""The evaluation context, with `$flagd` in it for rules that read it."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the rule's root to an operator, whose name is the last."""

Trace: TypeAlias = Callable[[Path, str, Json, Mapping[str, Json]], None]
"""Called with an operator's path, name, result and particulars, innermost first: of `var` its `name`; of
`fractional` the `bucket`, `of` (the total weight) and `hashed` (text, or hex of CBOR), or `why` there is
none.
"""

STEPS: Final = 20_000
"""Most steps of one evaluation: nodes of a loop's body, counted once per element, and elements of long lists
elsewhere. A step takes up to half a microsecond, so an evaluation takes some ten milliseconds at most.
"""

_FREE: Final = 256
"""Length up to which lists are not charged outside loops; the size of a rule bounds their number."""
FREE_TEXT: Final = 16 * _FREE
"""Characters up to which a text is not charged."""


class Frame:
    """One evaluation of a rule: the steps left, and the trace that receives its operators' results."""

    # Every evaluation makes one. An __init__ would double the time that takes, so its makers (`resolve` and
    # `Rule`) set both attributes.
    __slots__ = ("steps_left", "trace")
    steps_left: int
    trace: Trace | None

    def charge(self, steps: int) -> None:
        """Subtract `steps`; RuleError if none are left."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise RuleError("the rule takes too many steps with this context")

    def charge_name(self, name: Json) -> None:
        """Charge for looking up a computed name."""
        self.charge(1 + (len(name) >> 4 if isinstance(name, str) else 0))

    def charge_reading(self, value: Json) -> None:
        """Charge for reading `value` once through, where it is a long list or text."""
        if value.__class__ is list:
            if len(value) > _FREE:
                self.charge(len(value))
        elif value.__class__ is str and len(value) > FREE_TEXT:
            self.charge(len(value) >> 9)

    def report(self, path: Path, value: Json, **particulars: Json) -> Json:
        """Report to the trace the result of the operator at `path`; return `value`. Operators check first
        whether there is a trace: the call would cost more than most of them.
        """
        if self.trace is not None:
            self.trace(path, str(path[-1]), value, particulars)
        return value


Evaluate: TypeAlias = Callable[[Json, Frame], Json]
"""A compiled node. Its arguments are the evaluation context, or in a loop's body the element (an `Element`
where the engine substitutes variables first), and the evaluation's frame.
"""


class Element:
    """An element of a list, and the outer values (`solvers`, outermost first) in which variables are looked
    up before it: flagd's engine rewrites the bodies of `filter`, `all`, `none` and `some` before it runs
    them. A `var` found in an outer value is replaced by its value there; only others are read from the
    element.
    """

    __slots__ = ("data", "solvers")

    def __init__(self, data: Json, solvers: tuple[Json, ...]) -> None:
        self.data = data
        self.solvers = solvers


def data_of(argument: Json) -> Json:
    """Return the value from which an operator's variables are read."""
    return argument.data if isinstance(argument, Element) else argument


def refuse_rule(value: Json, frame: Frame | None = None) -> None:
    """Raise RuleError if `value`, which flagd's engine would run as a rule once more, could be one: any
    object with one key that a context brings, at worst the client's own rule. With a frame, the elements of
    lists are checked too, as the engine would run them.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list) and frame is not None:
            frame.charge(len(item))
            pending.extend(item)
        elif isinstance(item, dict) and len(item) == 1:
            raise RuleError("an object from the context stands where a rule is evaluated")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a whole rule's compilation."""

    build: Callable[[Json, CompileScope], Evaluate]
    flag_key: str
    bucketing: Bucketing
    hash_of: Callable[[], int] | None = None
    """What every `fractional` takes as its hash, from 0 to 2^32 - 1, in place of one of the user: for tests
    of flags.
    """


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
