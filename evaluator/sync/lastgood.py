"""Saves the last good flag set of each source on disk, for a start while the source is unavailable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import stat
from time import monotonic
from typing import TYPE_CHECKING, Final

from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.host import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from evaluator.sync.schedule import Backoff

log = logging.getLogger(__name__)


KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds that the file of a source that is no longer followed is kept, in case it is followed again."""
_OURS: Final = re.compile(r"\.?([0-9a-f]{32}\.flags)(\..*)?")
"""Names of a source's file, of a damaged one, and of the remains of a killed write."""


class LastGood:
    """The file of one source; its folder is created at the first write."""

    def __init__(self, folder: Path, identity: str) -> None:
        """identity: the source's, the same at each start."""
        name = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.flags"

    def load(self) -> Saved | None:
        """Return the saved set; None if missing or damaged (set aside and logged). Raises OSError."""
        return durable.load(self.path, MAX_BYTES, decode)

    def save(self, saved: Saved) -> None:
        """Replace the file. Raises OSError with the old content in place, ValueError for too large a set."""
        durable.save(self.path, encode(saved))


def sweep(folder: Path, followed: Collection[LastGood], now: float) -> int:
    """Remove old files of sources not `followed`; return their number. now: Unix seconds. Raises OSError."""
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


class LastGoodWriter:
    """Saves the newest flag set of a source, and tries again until it is written."""

    def __init__(
        self, last_good: LastGood, source: str, backoff: Backoff, clock: Callable[[], float] = monotonic
    ) -> None:
        """clock: monotonic seconds."""
        self.source = source
        self.last_good = last_good
        self._backoff = backoff
        self._clock = clock
        self._newest: tuple[Saved, float | None] | None = None
        """The newest content, with the time at which it was served first; None: served by an earlier process.
        """
        self._served_at: float | None = None
        """Time at which the newest content was served first."""
        self._unsaved_since: float | None = None
        """Time at which the oldest unsaved content was served first."""
        self.last_save_seconds: float | None = None
        """Seconds from serving to saving of the last saved content; None before the first."""
        self._woken = asyncio.Event()

    @property
    def unsaved_seconds(self) -> float:
        """Return for how many seconds served content has been unsaved; 0 if all is saved."""
        since = self._unsaved_since
        return 0.0 if since is None else self._clock() - since

    def keep(self, saved: Saved, *, changed: bool) -> None:
        """Queue the set to be saved, in place of a waiting one. changed: whether its content is new."""
        if changed:
            self._served_at = self._clock()
            if self._unsaved_since is None:
                self._unsaved_since = self._served_at
        self._newest = (saved, self._served_at)
        self._woken.set()

    async def run(self) -> None:
        """Save queued sets until cancelled."""
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
        # Content that arrived during the write is still unsaved.
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
