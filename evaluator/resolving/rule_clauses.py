"""Reads a rule as a list of clauses, the first that applies decides, and writes it in words. Pure.

Shares of users are arithmetic over the buckets of `fractional`, which the hash fills evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.model import ABSENT
from evaluator.resolving.condition_words import Phrase, alternatives, condition, value, variables
from evaluator.targeting.fractional import read_buckets
from evaluator.targeting.scope import is_static

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import Json, Path

MOST: Final = 20
"""Most clauses of a rule that are listed."""
_DEEPEST: Final = 12
TRUTHS: Final = frozenset({"==", "===", "!=", "!==", "<", "<=", ">", ">=", "in", "starts_with", "ends_with",
                            "sem_ver", "!", "!!", "some", "all", "none"})  # fmt: skip
"""Operators whose result is true or false, which name variants."""


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
    return tuple(islice(_clauses(rule, (), (), 0), MOST))


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


def _clauses(node: Json, conditions: tuple[Json, ...], path: Path, level: int) -> Iterator[Clause]:
    """Yield the clauses of a node that is reached where all `conditions` hold."""
    if not isinstance(node, dict) or len(node) != 1:
        yield Clause(_all_of(conditions), _constant(node))
        return
    ((operator, given),) = node.items()
    arguments = given if isinstance(given, list) else [given]
    here = (*path, operator)
    if operator in {"if", "?:"} and level < _DEEPEST:
        yield from _branches(arguments, conditions, here, level)
    elif operator == "fractional":
        yield Clause(_all_of(conditions), _split(given, here) or Computed(value(node)))
    elif operator in TRUTHS:
        yield Clause(_all_of((*conditions, node)), "true")
        yield Clause(_all_of(conditions), "false")
    else:
        yield Clause(_all_of(conditions), Computed(value(node)))


def _branches(
    arguments: list[Json], conditions: tuple[Json, ...], path: Path, level: int
) -> Iterator[Clause]:
    for index in range(0, len(arguments) - 1, 2):
        held = (*conditions, arguments[index])
        yield from _clauses(arguments[index + 1], held, (*path, index + 1), level + 1)
    last = len(arguments) - 1
    if len(arguments) % 2:
        yield from _clauses(arguments[last], conditions, (*path, last), level + 1)
    else:
        yield Clause(_all_of(conditions), None)


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
