"""The form of a known difference, and the words that rows share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.differences.calls import Call

EQUALITIES = "== !="
ORDERS = "< <= > >="
COMPARISONS = f"{EQUALITIES} {ORDERS}"
ARITHMETIC = "+ - * / % max min"
EAGER = (
    f"{COMPARISONS} === !== {ARITHMETIC} ! !! in cat substr merge starts_with "
    "ends_with sem_ver fractional var"
)
TRUTHS = "if ?: and or ! !! filter all some none"
CRASH = "CRASH "
V2, V3, BOTH = ("v2",), ("v3",), ("v2", "v3")


@dataclass(frozen=True)
class Difference:
    name: str
    operators: str
    """Separated by spaces; `flag` is the flag around the rule."""
    rule: Any
    ours: str
    """A variant, DEFAULT, STATIC or an error code."""
    theirs: str
    reason: str
    applies: Callable[[Call], bool]
    context: dict[str, Any] = field(default_factory=dict)
    generations: tuple[str, ...] = BOTH
    wanted: str = "string"
    variants: dict[str, Any] = field(default_factory=dict)
    """Beside the usual ones."""


FIRST = {"var": "a"}
OBJECT = {"a": {"k": 1}}
