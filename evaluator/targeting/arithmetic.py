"""Arithmetic of flagd's engine: on 64-bit floats, of arguments that are no numbers, too."""

from __future__ import annotations

import math
from functools import reduce
from operator import sub
from typing import TYPE_CHECKING

from evaluator.targeting.values import first, number, require_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json


def extreme(choose: Callable[[list[float]], float]) -> Callable[[Json], Json]:
    """Make `max` or `min`; nothing of no numbers."""

    def extreme(values: Json) -> Json:
        numbers = [number(value) for value in require_list(values)]
        return choose(numbers) if numbers else None

    return extreme


def total(values: Json) -> Json:
    """`+`; of one value, its number."""
    if not isinstance(values, list):
        return number(values)
    if len(values) == 1:
        return number(values[0])
    result = 0.0
    for value in values:
        result += number(value)
    return result


def minus(values: Json) -> Json:
    """`-`: the negative of one number, or what is left of the first."""
    numbers = [number(value) for value in require_list(values)]
    if not numbers:
        return 0
    return -numbers[0] if len(numbers) == 1 else reduce(sub, numbers)


def product(values: Json) -> Json:
    """`*`; 1 of no numbers."""
    return math.prod(map(number, require_list(values)), start=1.0)


def quotient(values: Json) -> Json:
    """`/`, from left to right, as floating point divides."""
    numbers = [number(value) for value in require_list(values)]
    return reduce(_divide, numbers) if numbers else 0


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(values: Json) -> Json:
    """`%`, with the sign of the dividend."""
    left, right = (number(value) for value in first(values, 2)[:2])
    if not right or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def absolute(values: Json) -> Json:
    """`abs`, of the first of a list."""
    return abs(number(first(values, 1)[0] if isinstance(values, list) else values))
