"""The last good flag set of each source on disk, for the start that finds the source gone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import stat
from time import monotonic
from typing import TYPE_CHECKING, Final

from evaluator import durable
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from evaluator.sync.schedule import Backoff

log = logging.getLogger(__name__)


KEPT_SECONDS: Final = 30 * 86_400.0
"""How long the file of a source that is not followed any more stays, should it be followed again."""
_OURS: Final = re.compile(r"\.?([0-9a-f]{32}\.flags)(\..*)?")
"""A source's file, one that was set aside, and what a killed write left."""


class LastGood:
    """One source's file, below a folder that is made when it is first written to."""

    def __init__(self, folder: Path, identity: str) -> None:
        """`identity` is the source's, from one start to the next."""
        name = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.flags"

    def load(self) -> Saved | None:
        """What was saved last; None for nothing, or damage (set aside and logged). Raises OSError."""
        return durable.load(self.path, MAX_BYTES, decode)

    def save(self, saved: Saved) -> None:
        """Replace what is on disk. Raises OSError with the old in place, ValueError for too large a set."""
        durable.save(self.path, encode(saved))


def sweep(folder: Path, followed: Collection[LastGood], now: float) -> int:
    """Remove old files of sources that are not `followed`; how many. now: Unix seconds. Raises OSError."""
    kept, removed = {each.path.name for each in followed}, 0
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _OURS.fullmatch(path.name)
        if named is None or named[1] in kept:
            continue
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and now - status.st_mtime > KEPT_SECONDS:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


class Keeper:
    """Saves the newest flag set of a source, and tries again for as long as the disk refuses."""

    def __init__(
        self, last_good: LastGood, source: str, backoff: Backoff, clock: Callable[[], float] = monotonic
    ) -> None:
        """`clock` is monotonic seconds."""
        self.source = source
        self.last_good = last_good
        self._backoff = backoff
        self._clock = clock
        self._newest: tuple[Saved, float | None] | None = None
        """With when its content was served first; None: by an earlier process."""
        self._served_at: float | None = None
        """When the newest content was served first."""
        self._unsaved_since: float | None = None
        """When the oldest content was that is served and not on disk."""
        self.last_save_seconds: float | None = None
        """From when content was served to when it was on disk, of the last one; None before the first."""
        self._woken = asyncio.Event()

    @property
    def unsaved_seconds(self) -> float:
        """For how long there is something that is served and not on disk; 0 while there is nothing."""
        since = self._unsaved_since
        return 0.0 if since is None else self._clock() - since

    def keep(self, saved: Saved, *, changed: bool) -> None:
        """Save this as soon as the disk takes it, in place of what still waits. changed: it is new."""
        if changed:
            self._served_at = self._clock()
            if self._unsaved_since is None:
                self._unsaved_since = self._served_at
        self._newest = (saved, self._served_at)
        self._woken.set()

    async def run(self) -> None:
        """Save what is kept, until cancelled."""
        logged: str | None = None
        while True:
            await self._woken.wait()
            self._woken.clear()
            newest = self._newest
            if newest is None:
                continue
            saved, served_at = newest
            try:
                await asyncio.to_thread(self.last_good.save, saved)
            except OSError as error:
                logged = self._log_failure(error.strerror or type(error).__name__, logged)
                self._woken.set()
                await asyncio.sleep(self._backoff.pause())
                continue
            except ValueError as error:
                logged = self._log_failure(str(error), logged)
            else:
                if logged is not None:
                    log.info("%s: its last good flag set is saved again", self.source)
                logged = None
                self._backoff.reset()
                self._is_saved(served_at)
            if self._newest is newest:
                self._newest = None

    def _is_saved(self, served_at: float | None) -> None:
        if self._unsaved_since is not None:
            self.last_save_seconds = self._clock() - self._unsaved_since
        # What came up while this was being written is still to be.
        self._unsaved_since = None if self._served_at == served_at else self._served_at

    def _log_failure(self, cause: str, logged: str | None) -> str:
        if cause != logged:
            log.warning(
                "%s: its last good flag set cannot be saved in %s: %s",
                self.source,
                self.last_good.path,
                cause,
            )
        return cause
