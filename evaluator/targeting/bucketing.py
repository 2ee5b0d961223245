"""The arithmetic of `fractional`: weights, hash, bucket. Integers only, so every platform agrees."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import mmh3

from evaluator.flags.checking.operators import MOST_WEIGHT
from evaluator.targeting.values import RuleError

if TYPE_CHECKING:
    from evaluator.flags.model import Json

_LEAST_WEIGHT: Final = -(2**63)
"""Below it flagd finds a weight invalid; above, a negative one counts as 0."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Results by cumulative weight."""

    results: tuple[Json, ...]
    ends: tuple[int, ...]
    """Where each result's range ends, exclusively; an empty range repeats the end before it."""
    total: int
    """The sum of all weights, at least 1."""

    def result(self, bucket: int) -> Json:
        """The result that owns `bucket`, 0 <= bucket < total."""
        return self.results[bisect_right(self.ends, bucket)]


def bucket_of(hashed: str | bytes, total: int) -> int:
    """The bucket, 0 <= bucket < total, of text (as UTF-8) or bytes: murmur3 x86 32, seed 0, scaled."""
    try:
        # Encoded here: given a lone surrogate, mmh3 itself crashes the process.
        raw = hashed.encode() if isinstance(hashed, str) else hashed
    except UnicodeEncodeError:
        raise RuleError("fractional is given text that is no Unicode") from None
    return mmh3.mmh3_32_uintdigest(raw) * total >> 32


def read_buckets(entries: list[Json]) -> Buckets | None:
    """Read evaluated `[result, weight]` entries; None where they are invalid or nothing has weight."""
    results, ends, total = [], [], 0
    for entry in entries:
        if not isinstance(entry, list) or not entry or isinstance(entry[0], list | dict):
            return None
        weight = _weight(entry[1] if len(entry) > 1 else None)
        if weight is None:
            return None
        total += weight
        results.append(entry[0])
        ends.append(total)
    return Buckets(tuple(results), tuple(ends), total) if 0 < total <= MOST_WEIGHT else None


def _weight(value: Json) -> int | None:
    """1 where none is given; negative ones, which computed roll-outs produce, count as 0."""
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not _LEAST_WEIGHT <= value <= MOST_WEIGHT or value != value // 1:
        return None
    return max(0, int(value))
