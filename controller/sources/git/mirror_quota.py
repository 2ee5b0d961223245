"""The quota of bytes of all mirrors of one namespace."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from typing import TYPE_CHECKING

from controller.runtime.tenancy.quotas import over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from controller.sources.backend import Revision, TreeLimits


class MirrorQuota:
    """What the mirrors of a namespace may take on the disk, and which revisions were too large."""

    def __init__(
        self, most: Callable[[str], int] = lambda _namespace: 0, removals: Collection[asyncio.Task[None]] = ()
    ) -> None:
        """`most` bytes of a namespace, 0: no limit; `removals` of mirrors are under way."""
        self._most = most
        self._removals = removals
        self._refused: dict[Path, tuple[Revision, int]] = {}
        """The revision for which a mirror was removed, and the bytes that it had."""
        self.exceeded: dict[Path, tuple[Revision, TreeLimits, str]] = {}
        """The revision that exceeded limits, and how: it is not fetched again at every reconcile."""
        self._measuring = threading.Lock()
        """Held while sizes are compared: of two mirrors that exceed the quota together, one may stay."""

    async def admit(self, mirror: Path, revision: Revision) -> None:
        """Before a fetch of `revision`: raises Stalled if it was too large, and there is no more room."""
        refused, size = self._refused.get(mirror, (None, 0))
        if refused == revision and self._most(mirror.parent.name):
            await asyncio.gather(*self._removals, return_exceptions=True)
            await asyncio.to_thread(self._require, mirror, size)

    async def keep(self, mirror: Path, revision: Revision) -> None:
        """Once `revision` was fetched. Removes the mirror and raises Stalled where it outgrew the quota."""
        if self._most(mirror.parent.name):
            await asyncio.to_thread(self._keep, mirror, revision)
        self._refused.pop(mirror, None)

    def forget(self, mirror: Path) -> None:
        """Forget the mirror, which no source uses any more."""
        self.exceeded.pop(mirror, None)
        self._refused.pop(mirror, None)

    def usage(self, root: Path) -> Counter[str]:
        """Bytes of the mirrors below `root` now, by namespace that has a limit. Any thread may ask."""
        sizes: Counter[str] = Counter()
        for mirror in root.glob("*/*.git"):
            if self._most(mirror.parent.name):
                sizes[mirror.parent.name] += _bytes_in(mirror)
        return sizes

    def _keep(self, mirror: Path, revision: Revision) -> None:
        with self._measuring:
            size = _bytes_in(mirror)
            try:
                self._require(mirror, size)
            except Exception:
                self._refused[mirror] = (revision, size)
                shutil.rmtree(mirror, ignore_errors=True)
                raise

    def _require(self, mirror: Path, size: int) -> None:
        """Raises Stalled where it and those beside it are too large."""
        namespace = mirror.parent.name
        size += sum(_bytes_in(other) for other in mirror.parent.glob("*.git") if other != mirror)
        most = self._most(namespace)
        if most and size > most:
            raise over("bytes of mirrors of Git repositories", namespace, size, most, "--quota-mirror-bytes")


def _bytes_in(folder: Path) -> int:
    """What the files below it take on the disk; some may go meanwhile."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return size
