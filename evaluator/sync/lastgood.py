"""The last good flag set of each source on disk, for the start that finds the source gone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import stat
from typing import TYPE_CHECKING, Final

from evaluator import durable
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from evaluator.sync.retry import Backoff

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
        """What was saved last; None where nothing was, or it is damaged (set aside then, and logged). Raises
        OSError.
        """
        return durable.load(self.path, MAX_BYTES, decode)

    def save(self, saved: Saved) -> None:
        """Replace what is on disk. Raises OSError with the old in place, ValueError for a set that is too
        large.
        """
        durable.save(self.path, encode(saved))


def sweep(folder: Path, followed: Collection[LastGood], now: float) -> int:
    """Remove what sources left that are not among those, and have not been for long; how many files. `now` is
    Unix seconds.

    Raises OSError.
    """
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

    def __init__(self, last_good: LastGood, source: str, backoff: Backoff) -> None:
        self._last_good = last_good
        self._source = source
        self._backoff = backoff
        self._newest: Saved | None = None
        self._woken = asyncio.Event()

    def load(self) -> Saved | None:
        """What the last process left, as LastGood.load."""
        return self._last_good.load()

    def keep(self, saved: Saved) -> None:
        """Save this as soon as the disk takes it, instead of any that is still waiting."""
        self._newest = saved
        self._woken.set()

    async def run(self) -> None:
        """Save what is kept, until cancelled."""
        told: str | None = None
        while True:
            await self._woken.wait()
            self._woken.clear()
            saved = self._newest
            if saved is None:
                continue
            try:
                await asyncio.to_thread(self._last_good.save, saved)
            except OSError as error:
                told = self._tell(error.strerror or type(error).__name__, told)
                self._woken.set()
                await asyncio.sleep(self._backoff.pause())
                continue
            except ValueError as error:
                told = self._tell(str(error), told)
            else:
                if told is not None:
                    log.info("%s: its last good flag set is saved again", self._source)
                told = None
                self._backoff.reset()
            if self._newest is saved:
                self._newest = None

    def _tell(self, cause: str, told: str | None) -> str:
        if cause != told:
            log.warning(
                "%s: its last good flag set cannot be saved in %s: %s",
                self._source,
                self._last_good.path,
                cause,
            )
        return cause
