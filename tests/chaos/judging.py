"""What was seen, held against what the commits say. Pure but for the lock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.chaos.commits import Content

SAVED_WITHIN: Final = 1.0
"""Seconds after which a set that is served must outlive a kill, where its disk has room."""
SAVED_AGAIN_WITHIN: Final = 11.0
"""Seconds after which it must once a full disk was emptied: the longest pause between two tries."""
_LOG: Final = 4000


class Violations:
    """Everything that must not have happened, each text once."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self.texts: list[str] = []

    def add(self, text: str, log: str = "") -> None:
        """The end of `log` is reported with the text, once."""
        with self._lock:
            if text not in self.texts:
                self.texts.append(text)
                self._report(f"VIOLATED: {text}{log and ': …'}{log[-_LOG:]}")


def contradiction(values: Mapping[str, object], revision: str, commits: Mapping[str, Content | None]) -> str:
    """What is wrong with these values of the flags, said to be of this revision; empty: nothing."""
    content = commits.get(revision.rpartition(":")[2])
    if content is None:
        return f"{dict(values)} is said to be of {revision!r}, which no commit that can be read is"
    number, twin, careful = (values.get(key) for key in ("number", "twin", "careful"))
    if (number, twin) != (content.number, content.number):
        return f"{dict(values)} of {revision} which says {content.number}"
    if not isinstance(careful, int) or (
        careful >= content.number if content.broken else careful != content.number
    ):
        return f"careful is {careful} at {revision}, {content}"
    return ""


class Progress:
    """What one evaluator served, from one of its lives to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._floor = -1
        """Nothing older may be served."""
        self._saved = -1
        """What must be on disk, if not something newer."""
        self._unsaved: list[tuple[float, int]] = []
        self._full = False
        self._emptied_at = float("-inf")
        self.first_seen: list[tuple[float, int]] = []
        """When each new number came up, in the clock's seconds."""
        self.checked = 0

    @property
    def newest(self) -> int:
        return self.first_seen[-1][1] if self.first_seen else -1

    def see(self, number: int) -> str:
        """One answer; what is wrong with it, or nothing."""
        self.checked += 1
        if number < self._floor:
            return f"{number} was served after {self._floor}"
        if number != self._floor:
            self._unsaved.append((self._clock(), number))
        if number != self.newest:
            self.first_seen.append((self._clock(), number))
        self._floor = number
        self._settle()
        return ""

    def disk(self, *, full: bool) -> None:
        """The disk has no room, or has it again."""
        self._settle()
        self._full = full
        if not full:
            self._emptied_at = self._clock()

    def thaw(self) -> None:
        """It stood still so far, and saved nothing."""
        self._unsaved = [(self._clock(), number) for _, number in self._unsaved]

    def restart(self) -> None:
        """The next life begins with what is on disk."""
        self._settle()
        self._floor = self._saved
        self._unsaved.clear()

    def _settle(self) -> None:
        now = self._clock()
        if self._full or now - self._emptied_at < SAVED_AGAIN_WITHIN:
            return
        old = [number for since, number in self._unsaved if now - since > SAVED_WITHIN]
        self._saved = max([self._saved, *old])
        self._unsaved = [each for each in self._unsaved if each[1] > self._saved]
