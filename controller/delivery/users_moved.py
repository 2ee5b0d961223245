"""How many users a change of flags moves to another variant, by real evaluation, and how many it has to.

The least that any change can move is the total variation distance of the shares of variants before and after:
half of the sum of their differences.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.resolving.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.flags.model import Json
    from evaluator.resolving.resolve import CompiledFlagSet

TARGETING_KEY: Final = "targetingKey"


@dataclass(frozen=True, slots=True)
class Movement:
    """What a change does to some users."""

    users: int
    """The number of all users."""
    moved: int
    """The number of users who get another variant than before."""
    needed: int
    """The least number of users who must move for the shares that the variants have afterwards."""


def numbered_users(count: int) -> Iterator[dict[str, Json]]:
    """Yield the evaluation contexts of users who have a targeting key and nothing else."""
    for number in range(count):
        yield {TARGETING_KEY: f"user-{number}"}


def answers(flags: CompiledFlagSet, key: str, contexts: Sequence[Mapping[str, Json]], now: int) -> list[str]:
    """Return the variant that each user gets of one flag, or the reason or error in parentheses if there is
    none: `(DEFAULT)` is the application's default. now: Unix seconds.
    """
    return [_answer(flags, key, context, now) for context in contexts]


def _answer(flags: CompiledFlagSet, key: str, context: Mapping[str, Json], now: int) -> str:
    resolution = resolve(flags, key, None, context, now)
    if resolution.variant is not None:
        return resolution.variant
    return f"({resolution.error_code or resolution.reason})"


def movement(before: Sequence[str], after: Sequence[str]) -> Movement:
    """Return how many users moved between two lists of their variants, both in the same order."""
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    arrived = Counter(after) - Counter(before)
    return Movement(len(before), moved, arrived.total())
