"""A rule in words: a list of clauses, the first that applies decides, with their conditions. Pure.

Shares of users are arithmetic over the buckets of `fractional`, which the hash fills evenly.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from evaluator.flags.known_operators import REFERENCE
from evaluator.flags.model import ABSENT, Json, Path
from evaluator.flags.schedules import NOW, ScheduleWindow, window_of, windows
from evaluator.host.texts import cut
from evaluator.targeting.fractional import read_buckets
from evaluator.targeting.frame import is_static

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_MOST_PARTS: Final = 8
"""Most parts of one condition, and most values of one list, that are written out."""
_MOST_TEXT: Final = 80
_DEEPEST: Final = 12
"""Levels beyond which a condition is written as JSON."""
_PLAIN: Final = re.compile(r"[\w@.+/-]+")
_NAMES: Final = {"targetingKey": "the targeting key", "$flagd.flagKey": "the flag's key", NOW: "the time"}
_COMPARISONS: Final = {
    "==": ("is", "is not"),
    "===": ("is", "is not"),
    "!=": ("is not", "is"),
    "!==": ("is not", "is"),
    "<": ("is less than", "is at least"),
    "<=": ("is at most", "is more than"),
    ">": ("is more than", "is at most"),
    ">=": ("is at least", "is less than"),
    "starts_with": ("starts with", "does not start with"),
    "ends_with": ("ends with", "does not end with"),
    "contains_all": ("contains all of", "does not contain all of"),
    "contains_any": ("contains one of", "contains none of"),
    "contains_none": ("contains none of", "contains one of"),
}
_AS_TIMES: Final = {
    "is less than": "is before",
    "is at most": "is not after",
    "is more than": "is after",
    "is at least": "is not before",
}
_VERSIONS: Final = {
    "=": ("is version", "is not version"),
    "!=": ("is not version", "is version"),
    "<": ("is below version", "is at least version"),
    "<=": ("is at most version", "is above version"),
    ">": ("is above version", "is at most version"),
    ">=": ("is at least version", "is below version"),
    "^": ("has the major version of", "has another major version than"),
    "~": ("has the minor version of", "has another minor version than"),
}
_LOOPS: Final = {"some": "one of", "all": "each of", "none": "none of"}
_ARITHMETIC: Final = {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "%": "modulo"}


@dataclass(frozen=True, slots=True)
class Phrase:
    """A condition in words."""

    text: str
    of_user: bool = False
    """Whether the words begin with an attribute, so that `users whose` may precede them."""
    joined: str = ""
    """`and` or `or`, where the words are joined by that."""


_Writer: TypeAlias = "Callable[[str, Sequence[Json], int, bool], Phrase | None]"
"""(operator, arguments, level, negated) → words; None: the form is unusual."""


def condition(rule: Json, level: int = 0, *, negated: bool = False) -> Phrase:
    """Return a condition in words, or its negation."""
    if not isinstance(rule, dict) or len(rule) != 1 or level > _DEEPEST:
        return _constant_phrase(rule, negated=negated)
    ((operator, given),) = rule.items()
    arguments = given if isinstance(given, list) else [given]
    if operator in {"!", "!!"} and arguments:
        return condition(arguments[0], level + 1, negated=negated ^ (operator == "!"))
    writer = _WRITERS.get(operator)
    phrase = None if writer is None else writer(operator, arguments, level, negated)
    if phrase is None:
        phrase = Phrase(f"{'not ' if negated else ''}{value(rule, level)}")
    return phrase


def value(node: Json, level: int = 0) -> str:
    """Return a value, or the expression that computes it, in words."""
    if isinstance(node, list):
        shown = [value(item, level + 1) for item in node[:_MOST_PARTS]]
        more = [f"{len(node) - len(shown)} more"] if len(node) > len(shown) else []
        return alternatives([*shown, *more])
    if not isinstance(node, dict) or len(node) != 1 or level > _DEEPEST:
        return _literal(node)
    ((operator, given),) = node.items()
    arguments = given if isinstance(given, list) else [given]
    if operator == "var":
        return _variable(arguments)
    if operator == REFERENCE and isinstance(given, str):
        return cut(given, _MOST_TEXT)
    if operator in _ARITHMETIC and len(arguments) > 1:
        shown = [value(item, level + 1) for item in arguments[:_MOST_PARTS]]
        return f" {_ARITHMETIC[operator]} ".join(shown)
    return _literal(node)


def alternatives(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "nothing"


def variables(node: Json) -> list[str]:
    """Return the names that a rule reads from the evaluation context, without duplicates and flagd's own."""
    names: dict[str, None] = {}
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, dict):
            if len(item) == 1 and "var" in item:
                given = item["var"]
                name = given[0] if isinstance(given, list) and given else given
                if isinstance(name, str) and name and not name.startswith("$flagd"):
                    names[name] = None
            pending.extend(reversed(list(item.values())))
    return [*names]


def _conjunction_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    if not arguments:
        return None
    if operator == "and" and (window := window_of({operator: [*arguments]})) is not None:
        return Phrase(f"{_NAMES[NOW]} {window.words(negated=negated)}")
    # The negation of a and b is: not a, or not b.
    word = operator if not negated else {"and": "or", "or": "and"}[operator]
    parts = [condition(argument, level + 1, negated=negated) for argument in arguments[:_MOST_PARTS]]
    if len(arguments) == 1:
        return parts[0]
    texts = [f"({part.text})" if part.joined not in {"", word} else part.text for part in parts]
    if len(arguments) > len(parts):
        texts.append(f"{len(arguments) - len(parts)} more")
    return Phrase(f" {word} ".join(texts), all(part.of_user for part in parts), word)


def _comparison_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    if len(arguments) == 3 and operator in {"<", "<="}:
        low, subject, high = arguments
        verb = "is not between" if negated else "is between"
        return _phrase(subject, f"{verb} {_amount(subject, low)} and {_amount(subject, high)}", level)
    if len(arguments) != 2:
        return None
    subject, other = arguments
    verb = _COMPARISONS[operator][negated]
    if _is_constant(subject) and not _is_constant(other):
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        if operator in {"starts_with", "ends_with"} or operator.startswith("contains"):
            return _phrase(subject, f"{verb} {value(other, level + 1)}", level)
        subject, other, verb = other, subject, _COMPARISONS[flipped][negated]
    if _is_time(subject):
        verb = _AS_TIMES.get(verb, verb)
    return _phrase(subject, f"{verb} {_amount(subject, other)}", level)


def _membership_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    del operator
    if len(arguments) != 2:
        return None
    item, holder = arguments
    if isinstance(holder, list):
        return _phrase(item, f"{'is not' if negated else 'is'} {value(holder, level + 1)}", level)
    if _is_constant(item):
        verb = "does not contain" if negated else "contains"
        return _phrase(holder, f"{verb} {value(item, level + 1)}", level)
    return _phrase(item, f"{'is not' if negated else 'is'} in {value(holder, level + 1)}", level)


def _version_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    del operator
    if len(arguments) != 3 or not isinstance(arguments[1], str) or arguments[1] not in _VERSIONS:
        return None
    subject, sign, wanted = arguments
    return _phrase(subject, f"{_VERSIONS[sign][negated]} {value(wanted, level + 1)}", level)


def _loop_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    if len(arguments) != 2:
        return None
    inner = condition(arguments[1], level + 1)
    text = f"for {_LOOPS[operator]} {value(arguments[0], level + 1)}, {inner.text}"
    return Phrase(f"not ({text})" if negated else text)


def _presence_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    del operator, level
    if not arguments or not isinstance(arguments[0], str):
        return None
    return Phrase(f"{_variable(arguments)} is {'not ' if negated else ''}set", of_user=True)


def _missing_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    del operator
    if not arguments or not all(isinstance(name, str) for name in arguments):
        return None
    names = [_variable([name]) for name in arguments[:_MOST_PARTS]]
    if negated:
        return Phrase(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} there")
    return Phrase(f"{alternatives(names)} is missing", of_user=True)


def _reference_phrase(operator: str, arguments: Sequence[Json], level: int, negated: bool) -> Phrase | None:
    del operator, level
    name = arguments[0] if arguments else None
    return Phrase(f"{'not ' if negated else ''}{cut(name, _MOST_TEXT)}") if isinstance(name, str) else None


_WRITERS: Final[dict[str, _Writer]] = {
    "and": _conjunction_phrase,
    "or": _conjunction_phrase,
    **dict.fromkeys(_COMPARISONS, _comparison_phrase),
    "in": _membership_phrase,
    "sem_ver": _version_phrase,
    **dict.fromkeys(_LOOPS, _loop_phrase),
    "var": _presence_phrase,
    "missing": _missing_phrase,
    REFERENCE: _reference_phrase,
}


def _phrase(subject: Json, rest: str, level: int) -> Phrase:
    of_user = isinstance(subject, dict) and "var" in subject and not _is_time(subject)
    return Phrase(f"{value(subject, level + 1)} {rest}", of_user)


def _constant_phrase(node: Json, *, negated: bool) -> Phrase:
    if isinstance(node, dict | list) and node:
        return Phrase(f"{'not ' if negated else ''}{_literal(node)}")
    return Phrase("always" if bool(node) ^ negated else "never")


def _is_constant(node: Json) -> bool:
    return not isinstance(node, dict)


def _is_time(node: Json) -> bool:
    return isinstance(node, dict) and node.get("var") in (NOW, [NOW])


def _variable(arguments: Sequence[Json]) -> str:
    name = arguments[0] if arguments else ""
    if name == "" or name is None:
        return "it"
    if not isinstance(name, str):
        return _literal({"var": name})
    shown = _NAMES.get(name) or cut(name, _MOST_TEXT)
    return f"{shown} (without one, {value(arguments[1])})" if len(arguments) > 1 else shown


def _amount(subject: Json, node: Json) -> str:
    """Return the value that a subject is compared with; seconds that the time is compared with are a date."""
    if _is_time(subject) and isinstance(node, int) and not isinstance(node, bool) and 0 < node < 2**34:
        return f"{datetime.fromtimestamp(node, UTC):%Y-%m-%d %H:%M} UTC"
    return value(node)


def _literal(node: Json) -> str:
    if isinstance(node, str):
        return (
            cut(node, _MOST_TEXT)
            if _PLAIN.fullmatch(node)
            else json.dumps(cut(node, _MOST_TEXT), ensure_ascii=False)
        )
    text = json.dumps(node, ensure_ascii=False, default=str) if _is_small(node) else "…"
    return cut(text, _MOST_TEXT)


def _is_small(node: Json) -> bool:
    """Whether a value is small enough to be written out; visits at most 100 nodes."""
    pending, seen = [node], 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > 100:
            return False
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return True


MOST: Final = 20
"""Most clauses of a rule that are listed."""
TRUTHS: Final = frozenset({"==", "===", "!=", "!==", "<", "<=", ">", ">=", "in", "starts_with", "ends_with",
                            "sem_ver", "!", "!!", "some", "all", "none"})  # fmt: skip
"""Operators whose result is true or false, which name variants."""


def is_truth(node: Json, level: int = 0) -> bool:
    """Whether the result of a rule is true or false, whatever the evaluation context."""
    if not isinstance(node, dict) or len(node) != 1 or level > _DEEPEST:
        return False
    ((operator, given),) = node.items()
    if operator in {"and", "or"} and isinstance(given, list) and given:
        return all(is_truth(argument, level + 1) for argument in given)
    return operator in TRUTHS


@dataclass(frozen=True, slots=True)
class Share:
    """The buckets of one variant."""

    variant: str | None
    """None: the default variant."""
    first: int
    """The first bucket."""
    end: int
    """The bucket after the last."""


@dataclass(frozen=True, slots=True)
class Split:
    """Users are assigned to buckets, and buckets to variants."""

    by: str
    """The hashed attributes in words: `user`, or their names."""
    shares: tuple[Share, ...]
    """By bucket; those without buckets are left out."""
    total: int
    """The number of buckets."""
    path: Path = ()
    """The path of `fractional` in the rule, as a trace has it."""

    def percent(self, share: Share) -> float:
        """The share of users, of 100."""
        return (share.end - share.first) * 100 / self.total


@dataclass(frozen=True, slots=True)
class Computed:
    """The variant that the result of an operator names."""

    words: str


Outcome: TypeAlias = str | Split | Computed | None
"""A variant's name, None for the default variant, or a choice among several."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The variant, or the choice, for some users."""

    condition: Phrase | None
    """Which users; None: all that no earlier clause is for."""
    outcome: Outcome


def clauses(rule: Json) -> tuple[Clause, ...]:
    """The clauses of a rule, its `$ref`s expanded or not; MOST at most. Never raises."""
    if rule is ABSENT or rule == {}:
        return (Clause(None, None),)
    ways = islice(_ways(rule, (), (), 0), MOST)
    return tuple(Clause(_all_of(conditions), outcome) for conditions, outcome in ways)


def splits(rule: Json) -> tuple[Split, ...]:
    """Each assignment to buckets among the clauses of a rule."""
    outcomes = (clause.outcome for clause in clauses(rule))
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Split))


def sentence(listed: tuple[Clause, ...]) -> str:
    """Clauses in words, such as `for users whose email ends with @example.com: on; else on for 10 % and off
    for 90 %, by user`; empty where everybody gets the default variant.
    """
    if all(clause.outcome is None for clause in listed):
        return ""
    parts = []
    for index, clause in enumerate(listed):
        words = outcome_words(clause.outcome)
        if clause.condition is None:
            parts.append(f"else {words}" if index else words)
        else:
            parts.append(f"{subject_words(clause.condition)}: {words}")
    return "; ".join(parts) + ("; …" if len(listed) == MOST else "")


def subject_words(phrase: Phrase) -> str:
    """`for users whose email …`, or `if …`."""
    return f"for users whose {phrase.text}" if phrase.of_user else f"if {phrase.text}"


def outcome_words(outcome: Outcome) -> str:
    """`on`, `the default`, or `on for 10 % and off for 90 %, by user`."""
    if outcome is None:
        return "the default"
    if isinstance(outcome, str):
        return outcome
    if isinstance(outcome, Computed):
        return f"the variant that {outcome.words} names"
    shares = [
        f"{share.variant or 'the default'} for {outcome.percent(share):.3g} %" for share in outcome.shares
    ]
    return f"{', '.join(shares[:-1])} and {shares[-1]}, by {outcome.by}" if shares[1:] else f"{shares[0]}"


_Conditions: TypeAlias = "tuple[Json, ...]"
_Way: TypeAlias = "tuple[_Conditions, Outcome]"
"""The conditions that all hold for some users, and what these get."""


def _ways(node: Json, conditions: _Conditions, path: Path, level: int) -> Iterator[_Way]:
    """Yield the ways through a node that is reached where all `conditions` hold."""
    if not isinstance(node, dict) or len(node) != 1:
        yield conditions, _constant(node)
        return
    ((operator, given),) = node.items()
    arguments = given if isinstance(given, list) else [given]
    here = (*path, operator)
    if operator in {"if", "?:"} and level < _DEEPEST:
        yield from _branches(arguments, conditions, here, level)
    elif operator == "fractional":
        yield conditions, _split(given, here) or Computed(value(node))
    elif is_truth(node):
        yield (*conditions, node), "true"
        yield conditions, "false"
    else:
        yield conditions, Computed(value(node))


def _branches(arguments: list[Json], conditions: _Conditions, path: Path, level: int) -> Iterator[_Way]:
    for index in range(0, len(arguments) - 1, 2):
        held = (*conditions, arguments[index])
        yield from _ways(arguments[index + 1], held, (*path, index + 1), level + 1)
    last = len(arguments) - 1
    if len(arguments) % 2:
        yield from _ways(arguments[last], conditions, (*path, last), level + 1)
    else:
        yield conditions, None


class Period(NamedTuple):
    """A time of a rule, and what it gives whom then."""

    window: ScheduleWindow
    condition: Phrase | None
    """Which users; None: all."""
    outcome: Outcome


def periods(rule: Json) -> Iterator[Period]:
    """Yield the times of a rule by its clauses, its `$ref`s expanded. A time within a condition that also
    holds at others, such as `not`, comes with the whole condition. Never raises.
    """
    for conditions, outcome in islice(_ways(rule, (), (), 0), MOST):
        parts = [(part, window_of(part)) for part in _conjuncts(conditions)]
        others = tuple(part for part, window in parts if window is None)
        common = _common([window for _, window in parts if window is not None])
        if common is not None:
            yield Period(common, _all_of(others), outcome)
        for window in windows([*others]):
            yield Period(window, _all_of(conditions), outcome)


def _conjuncts(conditions: Iterable[Json]) -> Iterator[Json]:
    """Yield the parts of conditions that all hold."""
    for node in conditions:
        parts = node.get("and") if isinstance(node, dict) and len(node) == 1 else None
        if isinstance(parts, list) and window_of(node) is None:
            yield from _conjuncts(parts)
        else:
            yield node


def _common(listed: Sequence[ScheduleWindow]) -> ScheduleWindow | None:
    """The time in which all windows hold; None: there is none."""
    start = max((window.start for window in listed if window.start is not None), default=None)
    end = min((window.end for window in listed if window.end is not None), default=None)
    if start is None and end is None:
        return None
    zone = next((window.zone for window in listed if window.zone is not None), None)
    return (
        None if start is not None and end is not None and start >= end else ScheduleWindow(start, end, zone)
    )


def _all_of(conditions: tuple[Json, ...]) -> Phrase | None:
    if not conditions:
        return None
    return condition(conditions[0]) if len(conditions) == 1 else condition({"and": [*conditions]})


def _constant(node: Json) -> Outcome:
    if node is None or node is ABSENT:
        return None
    if isinstance(node, bool):
        return "true" if node else "false"
    return node if isinstance(node, str) else Computed(value(node))


def _split(given: Json, path: Path) -> Split | None:
    """The buckets of `fractional`; None where they are computed or not valid."""
    if not isinstance(given, list) or not given:
        return None
    shorthand = isinstance(given[0], list)
    entries = given if shorthand else given[1:]
    buckets = read_buckets(entries) if is_static(entries) else None
    if buckets is None:
        return None
    ends = pairwise((0, *buckets.ends))
    shares = [
        Share(outcome if isinstance(outcome := _constant(result), str) else None, first, end)
        for result, (first, end) in zip(buckets.results, ends, strict=True)
        if end > first
    ]
    return Split("user" if shorthand else _hashed_names(given[0]), tuple(shares), buckets.total, path)


def _hashed_names(node: Json) -> str:
    """Return the hashed attributes in words."""
    names = ["user" if name == "targetingKey" else name for name in variables(node)]
    return alternatives(names).replace(" or ", " and ") if names else "the flag alone"
