"""How many users a change of flags moves to another variant, by real evaluation, and how many it has to.

The least that any change can move is the total variation distance of the shares of variants before and after:
half of the sum of what they differ by.
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
    """How many were asked for."""
    moved: int
    """How many get another variant than before."""
    needed: int
    """How many must, so that each variant has the share of users that it has afterwards."""


def numbered_users(count: int) -> Iterator[dict[str, Json]]:
    """Yield the evaluation contexts of users who have a targeting key and nothing else."""
    for number in range(count):
        yield {TARGETING_KEY: f"user-{number}"}


def answers(flags: CompiledFlagSet, key: str, contexts: Sequence[Mapping[str, Json]], now: int) -> list[str]:
    """The variant that each user gets of one flag; where there is none, the reason or the error, such as
    `(DEFAULT)` for the application's default. now: Unix seconds.
    """
    return [_answer(flags, key, context, now) for context in contexts]


def _answer(flags: CompiledFlagSet, key: str, context: Mapping[str, Json], now: int) -> str:
    resolution = resolve(flags, key, None, context, now)
    if resolution.variant is not None:
        return resolution.variant
    return f"({resolution.error_code or resolution.reason})"


def movement(before: Sequence[str], after: Sequence[str]) -> Movement:
    """What moved between two answers of the same users, in the same order."""
    moved = sum(one != other for one, other in zip(before, after, strict=True))
    arrived = Counter(after) - Counter(before)
    return Movement(len(before), moved, arrived.total())
