"""`sem_ver`: semantic versions as golang.org/x/mod/semver orders them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from evaluator.flags.model import Json
from evaluator.targeting.values import fixed, is_number, real

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER = r"(0|[1-9][0-9]*)"
_VERSION = re.compile(
    rf"[vV]?{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)?)?"
)
_LONGEST = 256

Version: TypeAlias = tuple[tuple[int, str], tuple[int, str], tuple[int, str], tuple[Json, ...]]
"""Major, minor, patch, each as (digits, text) to order any length; then the pre-release's order."""


@lru_cache(maxsize=1024)
def parse_version(source: str) -> Version | None:
    """Parse a version: `1` and `1.2` are padded, build metadata is dropped; None if it is invalid."""
    match = _VERSION.fullmatch(source) if len(source) <= _LONGEST else None
    if match is None:
        return None
    major, minor, patch = (_ordered(part or "0") for part in match.groups()[:3])
    if match[4] is None:
        return major, minor, patch, (1,)
    identifiers = match[4].split(".")
    if any(part.isdigit() and part != "0" and part.startswith("0") for part in identifiers):
        return None
    order = tuple((0, *_ordered(p)) if p.isdigit() else (1, 0, p) for p in identifiers)
    return major, minor, patch, (0, order)


def _ordered(digits: str) -> tuple[int, str]:
    return len(digits), digits


_HOLDS: dict[str, Callable[[Version, Version], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "~": lambda left, right: left[:2] == right[:2],
    "^": lambda left, right: left[0] == right[0],
}


def sem_ver(values: Json) -> bool | None:
    """Evaluate [version, operator, version]; None if any of them is invalid."""
    if not isinstance(values, list) or len(values) != 3:
        return None
    left, operator, right = values
    holds = _HOLDS.get(operator) if isinstance(operator, str) else None
    if holds is None:
        return None
    first, second = _version(left), _version(right)
    return None if first is None or second is None else holds(first, second)


def _version(value: Json) -> Version | None:
    if isinstance(value, str):
        return parse_version(value)
    # Go writes a number of a million or more with an exponent, which is no version.
    return parse_version(fixed(real(value))) if is_number(value) and value < 1e6 else None
