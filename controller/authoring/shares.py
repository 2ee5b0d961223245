"""The share of users who get another answer, from the arithmetic of `fractional`. Pure.

A hash is one of 2^32 numbers, evenly, and each answer owns a range of them. Two assignments by the same
hash are compared range by range; assignments by different hashes are independent of each other.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.model import Bucketing, Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.targeting.fractional import Buckets

HASHES: Final = 1 << 32
"""How many hashes there are."""
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
