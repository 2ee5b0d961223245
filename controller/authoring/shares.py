"""The share of users who get another answer, from the arithmetic of `fractional`. Pure.

A hash is one of 2^32 numbers, evenly, and each answer owns a range of them. Two assignments by the same
hash are compared range by range; assignments by different hashes are independent of each other. Where a rule
has no such arithmetic, a share is estimated by synthetic users.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.model import Bucketing, Json
from evaluator.resolving.rule_words import variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from evaluator.targeting.fractional import Buckets

HASHES: Final = 1 << 32
"""How many hashes there are."""
SAMPLES: Final = 10_000
"""Synthetic users by which a share is estimated."""
_MOST_CONSTANTS: Final = 20
"""Constants of one list that synthetic users have."""
_KEY: Final = "targetingKey"


@dataclass(frozen=True, slots=True)
class Assignment:
    """How the users of one branch get their answers."""

    hashed: str
    """What is hashed, in a form that is the same only for the same hash; empty where all get one answer."""
    answers: tuple[str, ...]
    ends: tuple[int, ...]
    """The exclusive end of each answer's range of hashes, the last one HASHES."""

    def shares(self) -> dict[str, Fraction]:
        """The share of each answer."""
        counts: Counter[str] = Counter()
        start = 0
        for answer, end in zip(self.answers, self.ends, strict=True):
            counts[answer] += end - start
            start = end
        return {answer: Fraction(count, HASHES) for answer, count in counts.items() if count}


Moves: TypeAlias = "dict[tuple[str, str], Fraction]"
"""The share of users by their answers before and after."""


def everybody(answer: str) -> Assignment:
    """All users get one answer."""
    return Assignment("", (answer,), (HASHES,))


def assigned(hashed: str, buckets: Buckets, answers: Sequence[str]) -> Assignment:
    """The assignment by buckets, each with its answer."""
    # The bucket of a hash is hash * total >> 32, so a range ends at the first hash beyond its last bucket.
    return Assignment(hashed, tuple(answers), tuple(-(-(end << 32) // buckets.total) for end in buckets.ends))


def moves(before: Assignment, after: Assignment) -> Moves:
    """The share of users for each pair of answers."""
    if before.hashed and after.hashed and before.hashed != after.hashed:
        return {
            (old, new): share * other
            for old, share in before.shares().items()
            for new, other in after.shares().items()
        }
    counts: Counter[tuple[str, str]] = Counter()
    start = 0
    for end in sorted({*before.ends, *after.ends}):
        old, new = (side.answers[bisect_right(side.ends, start)] for side in (before, after))
        counts[old, new] += end - start
        start = end
    return {pair: Fraction(count, HASHES) for pair, count in counts.items() if count}


def moved(pairs: Mapping[tuple[str, str], Fraction]) -> Fraction:
    """The share of users who get another answer."""
    return sum((share for (old, new), share in pairs.items() if old != new), Fraction(0))


def needed(pairs: Mapping[tuple[str, str], Fraction]) -> Fraction:
    """The least share that can move for the same shares of answers: the sum of what answers gain."""
    gains: defaultdict[str, Fraction] = defaultdict(Fraction)
    for (old, new), share in pairs.items():
        gains[new] += share
        gains[old] -= share
    return sum((gain for gain in gains.values() if gain > 0), Fraction(0))


def hash_input(flag_key: str, given: Json, bucketing: Bucketing) -> tuple[str, tuple[str, ...]] | None:
    """What `fractional` with these arguments hashes, in a form that is the same only for the same hash, and
    the attributes that are in it; None where no user has a hash of its own.
    """
    shorthand = isinstance(given[0], list)
    parts: list[str | tuple[str] | None]
    parts = [flag_key, (_KEY,)] if shorthand else [*_parts(given[0], flag_key)]
    names = tuple(dict.fromkeys(part[0] for part in parts if isinstance(part, tuple)))
    if None in parts or not names or any(name.startswith("$flagd") for name in names):
        return None
    joined: list[str | tuple[str] | None] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(last := joined[-1], str):
            joined[-1] = last + part
        elif part:
            joined.append(part)
    # The older generation hashes flag key and targeting key as one text, the newer one as a list of two.
    pair = shorthand and bucketing is Bucketing.V3
    return json.dumps([bucketing.value, pair, joined]), names


def _parts(node: Json, flag_key: str) -> Iterator[str | tuple[str] | None]:
    """Yield texts, (name,) of attributes, and None for any other expression."""
    if isinstance(node, str):
        yield node
        return
    operator, given = next(iter(node.items())) if isinstance(node, dict) and len(node) == 1 else ("", None)
    arguments = given if isinstance(given, list) else [given]
    if operator == "cat":
        for argument in arguments:
            yield from _parts(argument, flag_key)
    elif operator == "var" and len(arguments) == 1 and isinstance(arguments[0], str):
        yield flag_key if arguments[0] == "$flagd.flagKey" else (arguments[0],)
    else:
        yield None


def synthetic_contexts(rules: Iterable[Json], count: int = SAMPLES) -> Iterator[dict[str, Json]]:
    """Yield contexts of users with a targeting key, whose other attributes have values that the rules compare
    them with, values beside these, or are missing. The same rules give the same contexts.
    """
    values: dict[str, dict[str, Json]] = {}
    for rule in rules:
        for name in variables(rule):
            values.setdefault(name, {})
        for name, constant in _compared(rule):
            for beside in _beside(constant):
                values.setdefault(name, {})[json.dumps(beside)] = beside
    drawn = random.Random(0)  # noqa: S311 - the same contexts each time
    for number in range(count):
        context: dict[str, Json] = {}
        for name, known in values.items():
            chosen = drawn.choice([*known.values(), "other", None])
            if name != _KEY and chosen is not None:
                _put(context, name, chosen)
        own = [value for value in values.get(_KEY, {}).values() if isinstance(value, str) and value]
        context[_KEY] = drawn.choice(own) if own and number % 100 == 0 else f"user-{number}"
        yield context


def _compared(node: Json) -> Iterator[tuple[str, Json]]:
    """Yield each attribute with a constant that is beside it in an operator."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            for operator, given in item.items():
                arguments = given if isinstance(given, list) else [given]
                names = [name for argument in arguments for name in attribute_of(argument)]
                constants = [constant for argument in arguments for constant in _constants(argument)]
                if operator not in {"if", "?:", "var", "fractional", "cat"}:
                    yield from ((name, constant) for name in names for constant in constants)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def attribute_of(node: Json) -> Iterator[str]:
    """Yield the attribute that a part of a rule reads, if it reads one and does nothing else."""
    given = node.get("var") if isinstance(node, dict) and len(node) == 1 else None
    name = given[0] if isinstance(given, list) and given else given
    if isinstance(name, str) and name and not name.startswith("$flagd"):
        yield name


def _constants(node: Json) -> Iterator[Json]:
    if isinstance(node, list):
        yield from (item for item in node[:_MOST_CONSTANTS] if not isinstance(item, list | dict))
    elif not isinstance(node, dict):
        yield node


def _beside(constant: Json) -> Iterator[Json]:
    """Yield a constant and values on both sides of it."""
    yield constant
    if isinstance(constant, bool):
        yield not constant
    elif isinstance(constant, int | float):
        yield from (constant - 1, constant + 1)
    elif isinstance(constant, str):
        yield from (f"{constant}x", f"x{constant}")
        numbers = constant.split(".")
        if len(numbers) == 3 and all(number.isdecimal() for number in numbers):
            yield from (
                f"{int(numbers[0]) + 1}.0.0",
                "0.0.1",
                f"{numbers[0]}.{numbers[1]}.{int(numbers[2]) + 1}",
            )


def _put(context: dict[str, Json], name: str, value: Json) -> None:
    """Set an attribute; `address.city` is in the object `address`."""
    *outer, last = name.split(".")
    for part in outer:
        inner = context.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        context = inner
    context[last] = value
