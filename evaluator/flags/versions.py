"""`sem_ver`, in lint and in evaluation: versions as golang.org/x/mod/semver reads and orders them. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.model import Json
from evaluator.flags.text import fixed_notation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_VERSION: Final = re.compile(
    rf"[vV]?{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)?)?"
)
_WHOLE: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]")
_LONGEST: Final = 256

Version: TypeAlias = tuple[tuple[int, str], tuple[int, str], tuple[int, str], tuple[Json, ...]]
"""Major, minor, patch, each as (digits, text) to order any length; then the pre-release's order."""


COMPARISONS: Final[Mapping[str, Callable[[Version, Version], bool]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "~": lambda left, right: left[:2] == right[:2],
    "^": lambda left, right: left[0] == right[0],
}
"""Operators between two versions."""


def sem_ver(values: Json) -> bool | None:
    """Evaluate [version, operator, version]; None if any of them is invalid."""
    if not isinstance(values, list) or len(values) != 3:
        return None
    left, operator, right = values
    holds = COMPARISONS.get(operator) if isinstance(operator, str) else None
    if holds is None:
        return None
    first, second = version_of(left), version_of(right)
    return None if first is None or second is None else holds(first, second)


def version_of(value: Json) -> Version | None:
    """Return the version that a text, or a number such as 1.2, stands for; None for any other value."""
    if isinstance(value, str):
        return parse_version(value)
    # Go writes a number of a million or more with an exponent, which is no version.
    if type(value) in (int, float) and 0 <= value < 1e6:
        return parse_version(fixed_notation(float(value)))
    return None


@lru_cache(maxsize=1024)
def parse_version(source: str) -> Version | None:
    """Parse a version: `1` and `1.2` are padded, build metadata is dropped; None if it is invalid."""
    match = _VERSION.fullmatch(source) if len(source) <= _LONGEST else None
    if match is None:
        return None
    major, minor, patch = (_order_of(part or "0") for part in match.groups()[:3])
    if match[4] is None:
        return major, minor, patch, (1,)
    identifiers = match[4].split(".")
    if any(part.isdigit() and part != "0" and part.startswith("0") for part in identifiers):
        return None
    order = tuple((0, *_order_of(p)) if p.isdigit() else (1, 0, p) for p in identifiers)
    return major, minor, patch, (0, order)


def is_written_out(source: str) -> bool:
    """Return whether a valid version is as https://semver.org has it: three numbers, without a `v`."""
    return _WHOLE.match(source) is not None


def _order_of(digits: str) -> tuple[int, str]:
    return len(digits), digits
