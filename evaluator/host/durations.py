"""Durations as Go writes them, such as `1m30s`: in settings, and in the specs of objects."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MOST_CHARACTERS: Final = 64
"""Of digits alone, the pattern tries the rest anew at each of them."""


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as `1m30s` or `0`, without a sign; None for any other text."""
    if text == "0":
        return 0.0
    parts = _PART.findall(text) if len(text) <= _MOST_CHARACTERS else []
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
