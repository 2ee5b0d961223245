"""Removes files of deleted sources from the disk."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api import flagsource
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable
    from datetime import datetime

    from controller.api.objects.meta import ObjectKey
    from controller.runtime.objects.cache import Cache

log = logging.getLogger(__name__)

SWEEP: Final = 3600.0
"""Seconds between two sweeps of what backends keep."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removes the files that deleted sources left on the disk."""

    cache: Cache
    keep: Callable[[Iterable[ObjectKey]], None]
    """Removes the artifacts of all but these sources. Blocks. Raises Setback."""
    sweeps: Collection[Callable[[datetime], Awaitable[None]]]
    """Each removes one backend's unused files, such as mirrors of repositories."""
    now: Callable[[], datetime]
    sweep_after: float = SWEEP

    async def remove_artifacts(self) -> None:
        """Remove artifacts of sources that were deleted while no controller ran."""
        sources = [source.key for source in self.cache.of_kind(flagsource.KIND)]
        try:
            await asyncio.to_thread(self.keep, sources)
        except Setback as setback:
            log.warning("old artifacts were not removed: %s", setback.message)

    async def sweep(self) -> None:
        """Wait, then sweep: by then every source that can be opened was, and it is known what each uses."""
        await asyncio.sleep(self.sweep_after)
        for sweep in self.sweeps:
            await sweep(self.now())
