"""Durations in steps that add up: histograms of several processes are one by addition. Pure."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STEPS_PER_DOUBLING: Final = 8
"""A step is 9 % wide: two digits are right."""
LAST: Final = 8 * 27
"""Longer than a day is as long as this."""


def step(seconds: float) -> int:
    """Return the step of a duration: step n has those up to 2^(n/8) milliseconds, step 0 all up to one."""
    milliseconds = seconds * 1000
    if milliseconds <= 1:
        return 0
    # Rounded, so that a bound of a step lies in it.
    return min(LAST, ceil(round(log2(milliseconds) * STEPS_PER_DOUBLING, 9)))


def bound(number: int) -> float:
    """The longest duration in a step, in seconds."""
    return float(2 ** (number / STEPS_PER_DOUBLING)) / 1000


def added(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sum of several histograms."""
    whole: dict[int, int] = {}
    for each in histograms:
        for number, count in each.items():
            whole[number] = whole.get(number, 0) + count
    return whole


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """The seconds within which `share` (0 to 1) of all were done; None where there are none."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted, seen = max(1, ceil(share * total)), 0
    for number, count in sorted(histogram.items()):
        seen += count
        if seen >= wanted:
            return bound(number)
    return bound(max(histogram))


def shown(seconds: float) -> str:
    """Format seconds with two digits, as Go does: `38ms`, `1.2s`, `4m10s`."""
    if seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))}ms"
    if seconds < 0.995:
        return f"{round(seconds * 100) * 10}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s"
