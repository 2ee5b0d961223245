"""Where in a rule the compiler stands, and what every operator's compiler is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.model import Json
from evaluator.targeting.values import RuleError

if TYPE_CHECKING:
    from evaluator.flags.model import Bucketing

Context: TypeAlias = Mapping[str, Json]
"""The evaluation context, with `$flagd` in it for rules that read it."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the rule's root to an operator, the operator's own name last."""

Trace: TypeAlias = Callable[[Path, str, Json, Mapping[str, Json]], None]
"""Called with an operator's path, name, result and particulars, innermost first.

Particulars: `var` has `name`; `fractional` has `bucket`, `of` (the total weight) and `hashed` (text, or hex of CBOR).
"""

Evaluate: TypeAlias = Callable[[Json], Json]
"""A compiled node. Its argument is the current value, or a Scope within a body that was substituted first."""

STEPS: Final = 20_000
"""What one evaluation may do in loops: nodes of a body, counted once per element; and elements of long lists elsewhere.

A step takes up to half a microsecond, so that an evaluation ends within some ten milliseconds.
"""

_FREE: Final = 256
"""Lists no longer than this cost nothing by themselves outside loops; the rule's own size bounds how many there are."""


class Meter:
    """Counts one evaluation's steps, so that no rule and no context can keep a server busy.

    One per rule, refilled when an evaluation starts: threads that share a rule share its budget.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS

    def charge(self, steps: int) -> None:
        """Spend `steps`; RuleError once they are used up."""
        self.left -= steps
        if self.left < 0:
            raise RuleError("the rule takes too many steps with this context")

    def name(self, value: Json) -> Json:
        """Charge for looking up a name that was computed; return it."""
        self.charge(1 + (len(value) >> 4 if isinstance(value, str) else 0))
        return value

    def visit(self, value: Json) -> None:
        """Charge for reading `value` once through, where it is long."""
        if isinstance(value, list):
            if len(value) > _FREE:
                self.charge(len(value))
        elif isinstance(value, str) and len(value) > 16 * _FREE:
            self.charge(len(value) >> 9)


@dataclass(slots=True)
class Needs:
    """What a rule asks of whoever evaluates it; filled while it is compiled."""

    flagd: bool = False
    """It may read `$flagd`, so the context must hold it."""
    meter: bool = False
    """It may take many steps, so the meter must be refilled first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What holds for a whole rule while it is compiled."""

    build: Callable[[Json, Site], Evaluate]
    flag_key: str
    bucketing: Bucketing
    trace: Trace | None
    meter: Meter = field(default_factory=Meter)
    needs: Needs = field(default_factory=Needs)


class Site:
    """One place in a rule. Operators' compilers get it with their arguments.

    in_body: the current value is an element of a list, not the evaluation context. scoped: closures get a Scope.
    """

    __slots__ = (
        "bucketing",
        "flag_key",
        "in_body",
        "meter",
        "needs",
        "path",
        "plan",
        "scoped",
        "trace",
    )

    def __init__(
        self, plan: Plan, path: Path = (), *, in_body: bool = False, scoped: bool = False
    ) -> None:
        self.plan = plan
        self.path = path
        self.in_body = in_body
        self.scoped = scoped
        self.bucketing, self.flag_key = plan.bucketing, plan.flag_key
        self.meter, self.needs, self.trace = plan.meter, plan.needs, plan.trace

    def at(self, *steps: str | int) -> Site:
        """The place `steps` below here."""
        return Site(self.plan, self.path + steps, in_body=self.in_body, scoped=self.scoped)

    def element(self, *steps: str | int, scoped: bool) -> Site:
        """The place below here that is evaluated with each element of a list."""
        return Site(self.plan, self.path + steps, in_body=True, scoped=scoped)

    def child(self, node: Json, *steps: str | int) -> Evaluate:
        """Compile `node`, which stands `steps` below here."""
        return self.plan.build(node, self.at(*steps))

    def body(self, node: Json, *steps: str | int, scoped: bool) -> Evaluate:
        """Compile what is evaluated with each element of a list."""
        return self.plan.build(node, self.element(*steps, scoped=scoped))

    def metered(self) -> Meter:
        """Return the meter, noting that the rule needs one."""
        self.needs.meter = True
        return self.meter

    def report(self, value: Json, **particulars: Json) -> Json:
        """Tell the trace, if there is one, what the operator here came to; return `value`."""
        if self.trace is not None:
            self.trace(self.path, str(self.path[-1]), value, particulars)
        return value


class Scope:
    """An element, and the values whose variables the engine substitutes into the body beforehand, outermost first.

    flagd's engine rewrites the bodies of `filter`, `all`, `none` and `some` before it runs them: a `var` that the
    outer value knows is replaced by what it finds there, and only the others are left to the element.
    """

    __slots__ = ("data", "solvers")

    def __init__(self, data: Json, solvers: tuple[Json, ...]) -> None:
        self.data = data
        self.solvers = solvers


def constant(value: Json) -> Evaluate:
    """A node that is the same every time."""
    return lambda _: value


def failing(message: str) -> Evaluate:
    """A node that cannot be evaluated: the error waits until somebody asks, as in flagd."""

    def fail(_: Json) -> Json:
        raise RuleError(message)

    return fail


def is_static(node: Json) -> bool:
    """Whether evaluating `node` gives `node`: nothing in it is an operator.

    An object with several keys is no operator but a value, whatever it holds; so is an empty one.
    """
    if isinstance(node, dict):
        return len(node) != 1
    return not isinstance(node, list) or all(is_static(item) for item in node)


def inert(value: Json, meter: Meter | None = None) -> Json:
    """Pass `value` where flagd's engine would run it as a rule once more; RuleError if it could be one.

    It would run any object with one key that a context brings: mostly an unknown operator, at worst the client's own
    rule. Both are refused here. A meter lets lists be
    looked through, whose elements the engine would run too.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list) and meter is not None:
            meter.charge(len(item))
            pending.extend(item)
        elif isinstance(item, dict) and len(item) == 1:
            raise RuleError("an object from the context stands where a rule is evaluated")
    return value
