"""Notes on parts of rules that cannot do what they seem to: those that give everybody the same, and branches
that nobody reaches. Pure.

One pass from the leaves up. What depends on no context is evaluated by the engine that serves; what depends
on one is known where an operator allows but one result. Each part is looked at once, and the outermost is
told.
"""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.known_operators import PREREQUISITE, REFERENCE, SCHEDULE, shorten
from evaluator.flags.layer import EVALUATORS
from evaluator.flags.model import ABSENT, Bucketing, Json
from evaluator.flags.outcomes import BOOLEAN, NUMBER, kinds_of
from evaluator.flags.problems import Finding, Problem, Severity, problems_of
from evaluator.flags.text import DEFAULT
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.values import js_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.flags.layer import Layer
    from evaluator.flags.model import FlagSet, Path
    from evaluator.flags.problems import Piece


CONSTANT: Final = "constant-part"
UNREACHED: Final = "unreached-branch"
_OF_CONTEXT: Final = frozenset({"var", "missing", "missing_some", PREREQUISITE, SCHEDULE})
_COMPARISONS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("==", "===", "<", "<=", ">", ">="), False), "!=": True, "!==": True,
}  # fmt: skip
"""Operators, and what each gives for values that it cannot compare."""
_NUMBERS: Final = frozenset({NUMBER, BOOLEAN})
_LONGEST: Final = 1_000
"""Characters of a value that is folded further: texts of texts could double at every level."""


class _Part(NamedTuple):
    value: Json = ABSENT
    """What the part always gives; ABSENT: that depends."""
    truth: bool | None = None
    """Whether that is true, where it does not depend."""


_DEPENDS: Final = _Part()


def _always(value: Json) -> _Part:
    return _Part(value, bool(value))


class _Folding:
    """The shared rules of one flag set, each folded once."""

    def __init__(self, evaluators: Mapping[str, Json]) -> None:
        self._evaluators = evaluators
        self._shared: dict[str, _Part] = {}
        self._notes: list[tuple[Path, str, str]] = []

    def notes(self, rule: Json) -> list[tuple[Path, str, str]]:
        """Return (path, code, message) of what is wrong in a rule."""
        self._notes = []
        self._fold(rule, ())
        return self._notes

    def result(self, rule: Json) -> Json:
        """Return what a rule always gives, or ABSENT."""
        return self._fold(rule, ()).value

    def _fold(self, node: Json, path: Path) -> _Part:
        if isinstance(node, list):
            parts = [self._fold(item, (*path, at)) for at, item in enumerate(node)]
            whole = all(part.value is not ABSENT for part in parts)
            return _always([part.value for part in parts]) if whole else _DEPENDS
        if not isinstance(node, dict):
            return _always(node)
        if len(node) != 1:
            return _DEPENDS
        ((operator, given),) = node.items()
        if operator == REFERENCE:
            return self._reference(given)
        before = len(self._notes)
        arguments = given if isinstance(given, list) else [given]
        part = self._operator(operator, arguments, (*path, operator))
        if part.value is not ABSENT:
            del self._notes[before:]
            message = f"this gives everybody {shorten(part.value)}; write that in its place, or correct it"
            self._notes.append((path, CONSTANT, message))
        return part

    def _reference(self, name: Json) -> _Part:
        if not isinstance(name, str) or name not in self._evaluators:
            return _DEPENDS
        if name not in self._shared:
            # What refers to itself depends on what is not known.
            self._shared[name] = _DEPENDS
            told = self._notes
            self._notes = []
            self._shared[name] = self._fold(self._evaluators[name], ())
            self._notes = told
        return self._shared[name]

    def _operator(self, operator: str, arguments: list[Json], path: Path) -> _Part:
        if operator in _OF_CONTEXT or not arguments:
            return _DEPENDS
        special = _SPECIAL.get(operator)
        if special is not None:
            return special(self, operator, arguments, path)
        parts = [self._fold(item, (*path, at)) for at, item in enumerate(arguments)]
        if all(part.value is not ABSENT for part in parts):
            return _evaluate({operator: [part.value for part in parts]})
        return self._of_one_result(operator, arguments, parts)

    def _of_one_result(self, operator: str, arguments: list[Json], parts: list[_Part]) -> _Part:
        if operator in ("!", "!!") and parts[0].truth is not None:
            return _always(parts[0].truth is (operator == "!!"))
        if len(parts) == 2:
            if operator == "in" and parts[1].value == []:
                return _always(False)
            if operator in _COMPARISONS and self._never_match(operator, arguments, parts):
                return _always(_COMPARISONS[operator])
        return _DEPENDS

    def loop(self, operator: str, arguments: list[Json], path: Path) -> _Part:
        # The body is about each item, so it is judged only where there is none.
        empty = self._fold(arguments[0], (*path, 0)).value == []
        return _evaluate({operator: [[], *arguments[1:]]}) if empty else _DEPENDS

    def _never_match(self, operator: str, arguments: list[Json], parts: list[_Part]) -> bool:
        """Whether two values have no type in common that the operator could compare."""
        kinds = [kinds_of(argument, self._evaluators) for argument in arguments]
        if operator in ("===", "!=="):
            return kinds[0].isdisjoint(kinds[1]) and "other" not in kinds[0] | kinds[1]
        for part, others in zip(parts, reversed(kinds), strict=True):
            # What is no number to JavaScript matches none.
            if isinstance(part.value, str) and others <= _NUMBERS and isnan(js_number(part.value)):
                return True
        return False

    def branches(self, _: str, arguments: list[Json], path: Path) -> _Part:
        results: list[_Part] = []
        seen: set[str] = set()
        decided = False
        for at in range(0, len(arguments) - 1, 2):
            if decided:
                break
            before = len(self._notes)
            condition = self._fold(arguments[at], (*path, at))
            told = len(self._notes) > before
            text = json.dumps(arguments[at], sort_keys=True)
            if text in seen and condition.truth is None:
                self._unreached((*path, at), "the same condition stands before it")
                continue
            seen.add(text)
            if condition.truth is False:
                if not told:
                    self._unreached((*path, at + 1), "its condition is never true")
                continue
            results.append(self._fold(arguments[at + 1], (*path, at + 1)))
            if condition.truth is True:
                decided = True
                if not told and at + 2 < len(arguments):
                    self._unreached((*path, at + 2), "the condition before it is always true")
        if not decided:
            last = len(arguments) - 1
            results.append(self._fold(arguments[last], (*path, last)) if last % 2 == 0 else _always(None))
        first = results[0]
        return first if all(_is_same(first, result) for result in results) else _DEPENDS

    def operands(self, operator: str, arguments: list[Json], path: Path) -> _Part:
        ends_on = operator == "or"
        parts: list[_Part] = []
        for at, argument in enumerate(arguments):
            parts.append(self._fold(argument, (*path, at)))
            if parts[-1].truth is ends_on:
                break
        open_parts = [part for part in parts if part.truth is not (not ends_on)]
        if not open_parts:
            return parts[-1]
        if open_parts[0].truth is ends_on:
            return open_parts[0]
        return _Part(truth=ends_on) if parts[-1].truth is ends_on else _DEPENDS

    def buckets(self, _: str, arguments: list[Json], path: Path) -> _Part:
        buckets = [item for item in arguments if isinstance(item, list) and 1 <= len(item) <= 2]
        start = len(arguments) - len(buckets)
        for at, item in enumerate(arguments):
            self._fold(item[0] if at >= start and isinstance(item, list) else item, (*path, at))
        if not buckets or start > 1:
            return _DEPENDS
        if all(len(bucket) == 2 and bucket[1] == 0 for bucket in buckets):
            return _always(None)
        variants = {json.dumps(bucket[0], sort_keys=True) for bucket in buckets}
        if len(buckets) > 1 and len(variants) == 1:
            variant = shorten(buckets[0][0])
            message = f"every bucket has the variant {variant}; write that in its place, or correct it"
            self._notes.append((path, CONSTANT, message))
        return _DEPENDS

    def _unreached(self, path: Path, why: str) -> None:
        self._notes.append((path, UNREACHED, f"nobody gets here: {why}; remove it, or correct the condition"))


_SPECIAL: Final[Mapping[str, Callable[[_Folding, str, list[Json], Path], _Part]]] = {
    "if": _Folding.branches,
    "?:": _Folding.branches,
    "and": _Folding.operands,
    "or": _Folding.operands,
    "fractional": _Folding.buckets,
    **dict.fromkeys(("map", "filter", "reduce", "all", "some", "none"), _Folding.loop),
}


def _is_same(one: _Part, other: _Part) -> bool:
    return one.value is not ABSENT and type(one.value) is type(other.value) and one.value == other.value


def _evaluate(rule: Json) -> _Part:
    try:
        value = compile_rule(rule, bucketing=Bucketing.V2, flag_key="")({})
    except RuleError:
        return _DEPENDS
    return _always(value) if len(json.dumps(value)) <= _LONGEST else _DEPENDS


def constant_result(rule: Json, evaluators: Mapping[str, Json]) -> Json:
    """Return what a rule gives everybody; ABSENT where that depends on the context, and for no rule."""
    return ABSENT if rule is ABSENT else _Folding(evaluators).result(rule)


def constant_parts(layers: Sequence[Layer], flag_set: FlagSet) -> tuple[Problem, ...]:
    """Return a note for each part of the good flags' rules, and of shared rules, that cannot do what it seems
    to.
    """
    folding = _Folding(flag_set.evaluators)
    rules: dict[tuple[str, str], tuple[Piece, Path]] = {}
    for layer in layers:
        for key, piece in layer.flags.items():
            if isinstance(piece.value, dict) and "targeting" in piece.value and key in flag_set.flags:
                rules["flag", key] = (piece, ("targeting",))
        for name, piece in layer.evaluators.items():
            if name in flag_set.evaluators:
                rules[EVALUATORS, name] = (piece, ())
    found: list[Finding] = []
    for (section, key), (piece, start) in rules.items():
        rule = piece.value["targeting"] if start else piece.value
        flag = key if section == "flag" else None
        found += (
            piece.finding(Severity.NOTE, code, message, flag, below=(*start, *path))
            for path, code, message in folding.notes(rule)
        )
    return problems_of(found, DEFAULT)
