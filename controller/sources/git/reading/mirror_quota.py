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

    from controller.sources.provider import Revision


class MirrorQuota:
    """Measures the folder that the mirrors of a namespace are in, once something was fetched."""

    def __init__(
        self,
        most: Callable[[str], int] = lambda _namespace: 0,
        removals: Collection[asyncio.Task[None]] = (),
    ) -> None:
        """`most` bytes of a namespace, 0: no limit; `removals` of mirrors are under way."""
        self._most = most
        self._removals = removals
        self._refused: dict[Path, tuple[Revision, int]] = {}
        """The revision for which a mirror was removed, and the bytes that it had."""
        self._sizes: dict[Path, int] = {}
        """Bytes of the mirrors, as they were measured last."""
        self._forgotten: set[Path] = set()
        """Mirrors that may be on the disk for a moment yet."""
        self._measuring = threading.Lock()
        """Of two that outgrow the quota together, one may stay."""
        self._recording = threading.Lock()
        """Held for moments, as the event loop waits for it."""

    async def admit(self, mirror: Path, revision: Revision) -> None:
        """Before `revision` is fetched. Raises Stalled where it was too large before, and there is no more
        room now.
        """
        with self._recording:
            self._forgotten.discard(mirror)
        refused, size = self._refused.get(mirror, (None, 0))
        if refused == revision and self._most(mirror.parent.name):
            await asyncio.gather(*self._removals, return_exceptions=True)
            await asyncio.to_thread(self._admit, mirror, size)

    async def keep(self, mirror: Path, revision: Revision) -> None:
        """Once `revision` was fetched. Removes the mirror and raises Stalled where it outgrew the quota."""
        if self._most(mirror.parent.name):
            await asyncio.to_thread(self._keep, mirror, revision)
        self._refused.pop(mirror, None)

    def forget(self, mirror: Path) -> None:
        """No source uses it any more."""
        self._refused.pop(mirror, None)
        with self._recording:
            self._sizes.pop(mirror, None)
            if self._most(mirror.parent.name):
                self._forgotten.add(mirror)

    def used(self) -> Counter[str]:
        """Bytes by namespace, of those that have a limit. Any thread may ask."""
        found: Counter[str] = Counter()
        for mirror, size in tuple(self._sizes.items()):
            found[mirror.parent.name] += size
        return found

    def _admit(self, mirror: Path, size: int) -> None:
        with self._measuring:
            others = _sizes_in(mirror.parent)
            others.pop(mirror, None)
            self._record(mirror.parent, others)
            self._require(mirror.parent.name, size + sum(others.values()))

    def _keep(self, mirror: Path, revision: Revision) -> None:
        with self._measuring:
            sizes = _sizes_in(mirror.parent)
            try:
                self._require(mirror.parent.name, sum(sizes.values()))
            except Exception:
                self._refused[mirror] = (revision, sizes.pop(mirror, 0))
                shutil.rmtree(mirror, ignore_errors=True)
                raise
            finally:
                self._record(mirror.parent, sizes)

    def _record(self, folder: Path, sizes: dict[Path, int]) -> None:
        """`sizes` are of all mirrors in `folder`; those that were forgotten meanwhile stay so."""
        with self._recording:
            elsewhere = {each: has for each, has in self._sizes.items() if each.parent != folder}
            self._forgotten = {each for each in self._forgotten if each.parent != folder or each in sizes}
            self._sizes = elsewhere | {each: sizes[each] for each in sizes.keys() - self._forgotten}

    def _require(self, namespace: str, size: int) -> None:
        """Raises Stalled where its mirrors are too large."""
        most = self._most(namespace)
        if most and size > most:
            raise over("bytes of mirrors of Git repositories", namespace, size, most, "--quota-mirror-bytes")


def _sizes_in(folder: Path) -> dict[Path, int]:
    return {each: _bytes_in(each) for each in folder.glob("*.git")}


def _bytes_in(folder: Path) -> int:
    """What the files below it take on the disk; some may go meanwhile."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return found
