"""Objects that wait for each other in a circle. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def cycle(start: str, next_ones: Callable[[str], Iterable[str]]) -> list[str]:
    """A way from `start` back to it, its name at both ends, or nothing. `next_ones`: what one waits for."""
    trails: list[list[str]] = [[start]]
    seen: set[str] = set()
    while trails:
        trail = trails.pop()
        for name in next_ones(trail[-1]):
            if name == start:
                return [*trail, name]
            if name not in seen:
                seen.add(name)
                trails.append([*trail, name])
    return []
