"""Follows all sources at once, independently: a fault of one never affects another."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

from evaluator.store.exchange import SnapshotSwapper
from evaluator.sync.follower import Follower
from evaluator.sync.lastgood import LastGood, LastGoodWriter
from evaluator.sync.schedule import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.host.gc_policy import GcPolicy
    from evaluator.store.store import Store
    from evaluator.sync.lastgood import StateFolder
    from evaluator.sync.source import SyncSource

log = logging.getLogger(__name__)

_random: Final = secrets.SystemRandom().random


class Followers:
    """Applies the deliveries of sources to a store that has the same source names."""

    def __init__(
        self,
        sources: Sequence[SyncSource],
        store: Store,
        *,
        clock: Callable[[], float],
        folder: StateFolder | None = None,
        random: Callable[[], float] = _random,
        gc_policy: GcPolicy | None = None,
    ) -> None:
        """clock: Unix seconds. folder: where last good sets are kept; None: nowhere."""
        exchange = SnapshotSwapper(store, clock, gc_policy)
        self._folder = folder
        self.keepers: list[LastGoodWriter] = []
        """The keepers that save, in the order of the sources; none without a state folder."""
        self._followers: list[Follower] = []
        for source in sources:
            keeper = None
            if self._folder is not None:
                last_good = LastGood(self._folder.path, source.identity)
                self._folder.followed.append(last_good)
                keeper = LastGoodWriter(last_good, source.name, Backoff(random), folder=self._folder)
                self.keepers.append(keeper)
            follower = Follower(source, exchange, clock=clock, backoff=Backoff(random), keeper=keeper)
            self._followers.append(follower)

    async def restore(self) -> None:
        """Serve the last good sets on disk, stale until their sources answer. Call it before `run`."""
        for follower in self._followers:
            await follower.restore()

    async def run(self) -> None:
        """Follow every source until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follower in self._followers:
                tasks.create_task(follower.run())
            for keeper in self.keepers:
                tasks.create_task(keeper.run())
            tasks.create_task(self._tidy())

    async def _tidy(self) -> None:
        """Remove the last good sets of sources that are no longer followed."""
        folder = self._folder
        if folder is None:
            return
        try:
            removed = await asyncio.to_thread(folder.sweep)
        except OSError as error:
            log.warning("%s: files of earlier sources cannot be removed: %s", folder.path, error.strerror)
            return
        if removed:
            log.info("%s: removed %d files of sources that are no longer configured", folder.path, removed)
