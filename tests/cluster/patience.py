"""How long tests wait for what other processes do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE: Final = 60.0
"""Seconds that a busy machine may take over what is quick on a quiet one."""
T = TypeVar("T")


def within(found: Callable[[], T], state: Callable[[], object] = lambda: "", patience: float = PATIENCE) -> T:
    """What `found` returns once that is true; fails, with what `state` returns, when patience ends."""
    until = time.monotonic() + patience
    while not (last := found()):
        assert time.monotonic() < until, f"not within {patience} s: {last} {state()}"
        time.sleep(0.02)
    return last
