"""Wall clocks of processes, each of which can be set while its process runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.clients.upstreams import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF_BY: Final[Mapping[str, float]] = {"ahead": 100 * 86_400.0, "behind": -100 * 86_400.0}
"""Seconds by kind of fault: more than any certificate or token of ours lives."""
_PRELOADED: Final = Path(__file__).parent / "clock"


class Clock:
    """What a process of `environ` takes for the time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        self.environ = {"PYTHONPATH": str(_PRELOADED), "FLAGSTAFF_CHAOS_CLOCK": str(self._file)}

    def set(self, seconds: float) -> None:
        """Put it off by so many seconds, a tenth of a second from now."""
        replace(self._file, str(seconds))
