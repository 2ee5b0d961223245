"""Saves the last good flag set of each source on disk, for a start while the source is unavailable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import stat
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.host import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from evaluator.store.history import History
    from evaluator.sync.schedule import RetryPauses

log = logging.getLogger(__name__)


KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds that the file of a source that is no longer followed is kept, in case it is followed again."""
_OURS: Final = re.compile(r"\.?([0-9a-f]{32}\.flags)(\..*)?")
"""Names of a source's file, of a damaged one, of its spare, and of the remains of a killed write."""
ROOM_SECONDS: Final = 1.0
"""Seconds between two checks whether a full volume has room again."""


class LastGood:
    """The file of one source; its folder is created at the first write."""

    def __init__(self, folder: Path, identity: str) -> None:
        """identity: the source's, the same at each start."""
        name = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.flags"

    def load(self) -> Saved | None:
        """Return the saved set; None if missing or damaged (set aside and logged). Raises OSError."""
        return durable.load(self.path, MAX_BYTES, decode)

    def save(self, saved: Saved, make_room: Callable[[int], bool] | None = None) -> None:
        """Replace the file. On a full volume, `make_room` of so many bytes is called until it returns False.
        Raises OSError with the old content in place, ValueError for too large a set.
        """
        content = encode(saved)
        while True:
            try:
                durable.save_in_spare(self.path, content)
            except OSError as error:
                if error.errno not in durable.FULL or make_room is None or not make_room(len(content)):
                    raise
            else:
                return


def sweep(
    folder: Path, followed: Collection[LastGood], now: float, *, kept_seconds: float = KEPT_SECONDS
) -> int:
    """Remove files of sources not `followed` that are older than `kept_seconds`; return their number. With
    no seconds, remove damaged files as well. now: Unix seconds. Raises OSError.
    """
    kept, removed = {last_good.path.name for last_good in followed}, 0
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _OURS.fullmatch(path.name)
        damaged = not kept_seconds and path.suffix == durable.DAMAGED
        if named is None or (named[1] in kept and not damaged):
            continue
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and now - status.st_mtime >= kept_seconds:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


class StateFolder:
    """The folder of all last good sets, and what else is in it that may go for them."""

    def __init__(self, path: Path, history: History | None, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        self.path = path
        self.history = history
        self.followed: list[LastGood] = []
        self._clock = clock

    def make_room(self, size: int) -> bool:
        """Remove the oldest versions of history, of about so many bytes; once none is left, damaged files
        and those of sources that are no longer followed. Return whether there was anything. Blocks.
        """
        if self.history is not None and self.history.evict(size):
            return True
        with suppress(OSError):
            return sweep(self.path, self.followed, self._clock(), kept_seconds=0.0) > 0
        return False

    def sweep(self) -> int:
        """See `sweep`. Raises OSError."""
        return sweep(self.path, self.followed, self._clock())

    def free_bytes(self) -> int:
        """Return how many bytes may be written to the volume; 0 if that is unknown."""
        with suppress(OSError):
            return durable.free_bytes(self.path)
        return 0


class LastGoodWriter:
    """Saves the newest flag set of a source, and tries again until it is written."""

    def __init__(
        self,
        last_good: LastGood,
        source: str,
        backoff: RetryPauses,
        clock: Callable[[], float] = monotonic,
        *,
        folder: StateFolder | None = None,
    ) -> None:
        """clock: monotonic seconds. folder: where to make room on a full volume."""
        self.source = source
        self.last_good = last_good
        self.failures = 0
        """Number of tries that failed."""
        self.fault = ""
        """Why the newest content is not saved; empty: it is, or the first try has not ended."""
        self._folder = folder
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
        if changed and self._folder is not None and self._folder.history is not None:
            self._folder.history.hold(self.source)
        if changed:
            self._served_at = self._clock()
            if self._unsaved_since is None:
                self._unsaved_since = self._served_at
        self._newest = (saved, self._served_at)
        self._woken.set()

    async def run(self) -> None:
        """Save queued sets until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            newest = self._newest
            if newest is None:
                continue
            saved, served_at = newest
            try:
                await asyncio.to_thread(self.last_good.save, saved, self._make_room)
            except OSError as error:
                self._note_failure(error.strerror or type(error).__name__)
                self._woken.set()
                await self._pause(full=error.errno in durable.FULL)
                continue
            except ValueError as error:
                self._note_failure(str(error))
                self._release()
            else:
                self._note_saved(served_at)
            if self._newest is newest:
                self._newest = None

    def _make_room(self, size: int) -> bool:
        return self._folder is not None and self._folder.make_room(size)

    async def _pause(self, *, full: bool) -> None:
        """Wait until the next try: at the latest when the pause is over, or as soon as a full volume has more
        room.
        """
        left, folder = self._backoff.pause(), self._folder
        if not full or folder is None:
            await asyncio.sleep(left)
            return
        free = folder.free_bytes()
        while left > 0 and folder.free_bytes() <= free:
            await asyncio.sleep(min(left, ROOM_SECONDS))
            left -= ROOM_SECONDS

    def _note_saved(self, served_at: float | None) -> None:
        if self.fault:
            log.info("%s: its last good flag set is saved again", self.source)
        self.fault = ""
        self._backoff.reset()
        if self._unsaved_since is not None:
            self.last_save_seconds = self._clock() - self._unsaved_since
        # Content that arrived during the write is still unsaved.
        self._unsaved_since = None if self._served_at == served_at else self._served_at
        if self._unsaved_since is None:
            self._release()

    def _release(self) -> None:
        if self._folder is not None and self._folder.history is not None:
            self._folder.history.release(self.source)

    def _note_failure(self, cause: str) -> None:
        self.failures += 1
        if cause != self.fault:
            log.warning(
                "%s: its last good flag set cannot be saved in %s: %s",
                self.source,
                self.last_good.path,
                cause,
            )
        self.fault = cause
