"""Numbers of independent events."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def poisson(random: Random, mean: float) -> int:
    """A number of events with this mean; for large means a rounded normal one."""
    if mean > 50:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, random.random()
    while product > limit:
        count += 1
        product *= random.random()
    return count
