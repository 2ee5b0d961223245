"""Finds the results that a rule can give, and compares them with the flag's variants. Pure.

A literal is an outcome where the rule's result is that literal: a branch of `if` or `?:`, an operand of `and`
or `or`, the variant of a bucket of `fractional`, and the same within a shared rule. The result of any other
operator is known only at evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import (
    MOST_WEIGHT,
    PREREQUISITE,
    REFERENCE,
    SCHEDULE,
    reference_name,
    shorten,
)
from evaluator.flags.problems import Severity
from evaluator.flags.text import choices, number_text, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.flags.layer import Assembled
    from evaluator.flags.model import Flag, Json, Path


NUMBER: Final = "number"
BOOLEAN: Final = "boolean"
TEXT: Final = "text"
NULL: Final = "null"
LIST: Final = "list"
OTHER: Final = "other"
"""An object, or whatever the context holds."""

_OF_LITERALS: Final[Mapping[type, str]] = {
    bool: BOOLEAN, int: NUMBER, float: NUMBER, str: TEXT, list: LIST, type(None): NULL,
}  # fmt: skip
_OF_OPERATORS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "abs"), frozenset({NUMBER})),
    **dict.fromkeys(("!", "!!", "==", "===", "!=", "!==", "<", "<=", ">", ">="), frozenset({BOOLEAN})),
    **dict.fromkeys(("in", "all", "none", "some", PREREQUISITE, SCHEDULE), frozenset({BOOLEAN})),
    **dict.fromkeys(("contains_all", "contains_any", "contains_none"), frozenset({BOOLEAN})),
    **dict.fromkeys(("starts_with", "ends_with", "sem_ver"), frozenset({BOOLEAN, NULL})),
    **dict.fromkeys(("cat", "substr"), frozenset({TEXT})),
    **dict.fromkeys(("map", "filter", "merge", "missing", "missing_some"), frozenset({LIST})),
}
_OF_VARIABLES: Final[Mapping[str, str]] = {"$flagd.timestamp": NUMBER, "$flagd.flagKey": TEXT}
_UNKNOWN: Final = frozenset({OTHER})
_MOST_STEPS: Final = 50
"""Most parts of one rule that are read, shared rules included; with more its kind is unknown."""


def kinds_of(rule: Json, evaluators: Mapping[str, Json]) -> frozenset[str]:
    """Return the kinds of the rule's possible results; OTHER is among them where they are not known."""
    known: set[str] = set()
    pending, steps = [rule], 0
    while pending:
        value, steps = pending.pop(), steps + 1
        if steps > _MOST_STEPS:
            return _UNKNOWN
        if not isinstance(value, dict):
            known.add(_OF_LITERALS.get(type(value), OTHER))
            continue
        operator, arguments = next(iter(value.items())) if len(value) == 1 else ("", None)
        if operator in _OF_OPERATORS:
            known |= _OF_OPERATORS[operator]
        elif operator == "var":
            name = arguments[0] if isinstance(arguments, list) and arguments else arguments
            known.add(_OF_VARIABLES.get(name, OTHER) if isinstance(name, str) else OTHER)
        elif reference_name(value) in evaluators:
            pending.append(evaluators[str(arguments)])
        elif not isinstance(arguments, list) or not arguments:
            return _UNKNOWN
        elif operator in ("max", "min"):
            known.add(NUMBER)
        elif operator in ("and", "or"):
            pending += arguments
        elif operator == "reduce":
            pending += arguments[1:]
        elif operator in ("if", "?:"):
            pending += arguments[1::2]
            pending.append(arguments[-1] if len(arguments) % 2 else None)
        else:
            return _UNKNOWN
    return frozenset(known)


def bucket_kinds(arguments: Json) -> frozenset[str] | None:
    """Return the kinds of what `fractional` gives, where a text is hashed and all buckets are literal and
    valid, so that it is never null; None for any other.
    """
    if not isinstance(arguments, list) or not arguments or kinds_of(arguments[0], {}) != {TEXT}:
        return None
    weights = [_weight(bucket) for bucket in arguments[1:]]
    if None in weights or not all(type(weight) is int for weight in weights):
        return None
    kinds = frozenset(_OF_LITERALS.get(type(bucket[0]), OTHER) for bucket in arguments[1:])
    valid = 0 < sum(weight or 0 for weight in weights) <= MOST_WEIGHT
    return kinds if valid and kinds.isdisjoint({LIST, OTHER}) else None


_DEEPEST: Final = 100
"""Most levels that are followed, shared rules included; anything deeper counts as computed."""
_MOST_SHARED: Final = 100
"""Most literals of one shared rule; a rule with more counts as computed, since every flag may refer to it."""

ESCAPED: Final = frozenset('<>&"\\\u2028\u2029') | {chr(code) for code in range(32)}
"""Characters that flagd's JSON escapes, so a text with one of them never matches a variant."""


@dataclass(slots=True)
class Outcomes:
    """The possible results of one rule."""

    literals: list[tuple[Path, Json]] = field(default_factory=list)
    """Results except null, with their places in the rule; for a shared rule, the place of the `$ref`."""
    computed: bool = False
    """Whether there may be further results, known only at evaluation."""
    nothing: bool = False
    """Whether the result may be null, which serves the default variant."""


class OutcomeReader:
    """Reads the rules of one flag set; each shared rule is read once."""

    def __init__(self, evaluators: Mapping[str, Json]) -> None:
        self._evaluators = evaluators
        self._shared: dict[str, Outcomes] = {}
        self._depth = 0

    def of(self, rule: Json) -> Outcomes:
        """Return the outcomes of a rule that is within the bounds on depth and size."""
        outcomes = Outcomes()
        self._read(outcomes, rule, ())
        return outcomes

    def _read(self, outcomes: Outcomes, value: Json, path: Path) -> None:
        if isinstance(value, dict):
            operator = next(iter(value)) if len(value) == 1 else ""
            reader = _READERS.get(operator)
            if operator != REFERENCE and not isinstance(value.get(operator), list):
                reader = None
            if reader is None or self._depth == _DEEPEST:
                outcomes.computed = True
                return
            self._depth += 1
            reader(self, outcomes, value[operator], (*path, operator))
            self._depth -= 1
        elif value is None:
            outcomes.nothing = True
        else:
            outcomes.literals.append((path, value))

    def _branches(self, outcomes: Outcomes, arguments: Json, path: Path) -> None:
        last = len(arguments) - 1
        outcomes.nothing |= last % 2 == 1
        for at, value in enumerate(arguments):
            if at % 2 or at == last:
                self._read(outcomes, value, (*path, at))

    def _operands(self, outcomes: Outcomes, arguments: Json, path: Path, *, passed_on: bool) -> None:
        """Collect the last operand as a result, and the others whose truth value is `passed_on`."""
        for at, value in enumerate(arguments):
            own = Outcomes()
            self._read(own, value, (*path, at))
            outcomes.computed |= own.computed
            is_last = at == len(arguments) - 1
            outcomes.nothing |= own.nothing and (is_last or not passed_on)
            outcomes.literals += [
                literal for literal in own.literals if is_last or bool(literal[1]) is passed_on
            ]

    def _buckets(self, outcomes: Outcomes, arguments: Json, path: Path) -> None:
        # Without a text to hash, such as a targeting key, there is no bucket, nor without a weight.
        seed, weights = arguments[0] if arguments else None, [_weight(bucket) for bucket in arguments[1:]]
        outcomes.nothing |= kinds_of(seed, self._evaluators) != {TEXT} or None in weights or not any(weights)
        for at, bucket in enumerate(arguments):
            if isinstance(bucket, list) and bucket:
                self._read(outcomes, bucket[0], (*path, at, 0))

    def _reference(self, outcomes: Outcomes, name: Json, path: Path) -> None:
        shared = self._outcomes_of(name) if isinstance(name, str) else None
        if shared is None:
            outcomes.computed = True
            return
        outcomes.computed |= shared.computed
        outcomes.nothing |= shared.nothing
        outcomes.literals += [(path, value) for _, value in shared.literals]

    def _outcomes_of(self, name: str) -> Outcomes | None:
        if name not in self._evaluators:
            return None
        shared = self._shared.get(name)
        if shared is None:
            # A rule that refers to itself finds this entry: it cannot be expanded, so its results are
            # unknown.
            self._shared[name] = Outcomes(computed=True)
            shared = self.of(self._evaluators[name])
            by_name = {variant_named(value): value for _, value in shared.literals}
            shared.literals = [((), value) for value in by_name.values()]
            if len(by_name) > _MOST_SHARED:
                shared = Outcomes(computed=True)
            self._shared[name] = shared
        return shared


def _weight(bucket: Json) -> float | None:
    """Return the weight of a bucket; None where it is computed, or wrong."""
    if not isinstance(bucket, list) or not bucket:
        return None
    weight = bucket[1] if len(bucket) > 1 else 1
    return weight if type(weight) in (int, float) and weight >= 0 else None


_READERS: Final[Mapping[str, Callable[[OutcomeReader, Outcomes, Json, Path], None]]] = {
    "if": OutcomeReader._branches,
    "?:": OutcomeReader._branches,
    "and": partial(OutcomeReader._operands, passed_on=False),
    "or": partial(OutcomeReader._operands, passed_on=True),
    "fractional": OutcomeReader._buckets,
    REFERENCE: OutcomeReader._reference,
}
"""Reader functions by operator. Unbound, since bound methods would form a cycle for the garbage collector."""


def variant_named(literal: Json) -> str | None:
    """Return the variant name of a literal result: its JSON text without quotes, as Go writes it. None for
    lists, and for texts with characters that JSON escapes: they match no variant.
    """
    if isinstance(literal, str):
        return literal if ESCAPED.isdisjoint(literal) else None
    if isinstance(literal, bool):
        return "true" if literal else "false"
    if isinstance(literal, int | float):
        return number_text(float(literal))
    return None


def check_reach(flag: Assembled, checked: Flag, reader: OutcomeReader) -> None:
    """Warn of literal outcomes that are no variant; note what is never served. The rule is within bounds."""
    variants = checked.variants
    if not variants or not isinstance(checked.targeting, dict) or not checked.targeting:
        return
    outcomes = reader.of(checked.targeting)
    reached = set()
    unknown: dict[Path, tuple[Json, str | None]] = {}
    """The first at each place: a shared rule may have many."""
    for path, value in outcomes.literals:
        name = variant_named(value)
        if name in variants:
            reached.add(name)
        else:
            unknown.setdefault(path, (value, name))
    for path, (value, name) in unknown.items():
        _unknown_outcome(flag, path, value, name)
    if outcomes.computed or unknown:
        return
    default = checked.default_variant
    if default in variants and default not in reached and not outcomes.nothing:
        message = (
            f"`targeting` always returns another variant, so the default variant {quote(default)} is never "
            "served; return it from a branch, or leave out the last result to fall back to it"
        )
        flag.note("unreached-default", message, "defaultVariant")
    for name in variants.keys() - reached - {default}:
        message = f"nothing returns the variant {quote(name)}: not `targeting`, not `defaultVariant`"
        flag.note("unused-variant", message, "variants", name)


def _unknown_outcome(flag: Assembled, path: Path, value: Json, name: str | None) -> None:
    if name is not None and flag.index("variants", name) > flag.index("targeting"):
        message = f"the variant {quote(name)} is removed here, but `targeting` can still return it"
        flag.warn("unknown-outcome", message, "variants", name, at_key=True)
        return
    variants, suggestions = flag.value["variants"], flag.suggestions

    def text() -> str:
        subject = "this shared rule" if path[-1] == REFERENCE else "`targeting`"
        near = "" if name is None else suggestions.did_you_mean(name, variants)
        known = choices(variants)
        return (
            f"{subject} can return {shorten(value)}, which is not a variant{near}; the variants are {known}"
        )

    flag.find(Severity.WARNING, "unknown-outcome", text, "targeting", below=path)
