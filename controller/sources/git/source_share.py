"""What the sources of one controller share: listings of remotes, turns to run git, and mirrors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.sources.git.mirror import remove_mirror, remove_unused, sweep_mirrors
from controller.sources.git.mirror_quota import MirrorQuota

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from pathlib import Path

    from controller.api.objects.meta import ObjectKey
    from controller.sources.backend import FetchRequest
    from controller.sources.git_cli.git_program import GitProgram
    from controller.sources.git_cli.git_references import References
    from controller.sources.git_cli.ls_remote_cache import LsRemoteCache


class MirrorsInUse:
    """The mirrors below one folder, by source, those of submodules among them. Belongs to one event loop."""

    def __init__(self, root: Path, most: Callable[[str], int] = lambda _namespace: 0) -> None:
        """`most`: bytes that the mirrors of a namespace may take; 0: no limit."""
        self.root = root
        self._by_source: dict[ObjectKey, frozenset[Path]] = {}
        self._removals: set[asyncio.Task[None]] = set()
        self.quota = MirrorQuota(most, self._removals)

    def open(self, key: ObjectKey, mirror: Path | None, *, submodules: bool) -> None:
        """Note a source's own mirror, None for none. With `submodules` what it used beside it stays."""
        if not (submodules and mirror in self._by_source.get(key, ())):
            self.replace(key, frozenset() if mirror is None else frozenset({mirror}))

    def add(self, key: ObjectKey, mirror: Path) -> None:
        """Note one more mirror, unless the source went meanwhile."""
        if before := self._by_source.get(key):
            self._by_source[key] = before | {mirror}

    def keep_only(self, key: ObjectKey, mirrors: frozenset[Path]) -> None:
        """Note all that the source uses, unless it went meanwhile."""
        if key in self._by_source:
            self.replace(key, mirrors)

    def replace(self, key: ObjectKey, mirrors: frozenset[Path]) -> None:
        """Note all that the source uses. Starts to remove what it alone used before."""
        before = self._by_source.pop(key, frozenset())
        if mirrors:
            self._by_source[key] = mirrors
        for mirror in before - self._all():
            self.quota.forget(mirror)
            # Credentials that are renewed every hour would leave a mirror every hour.
            removal = asyncio.create_task(asyncio.to_thread(remove_mirror, mirror))
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def sweep(self, now: datetime) -> None:
        """Remove mirrors that no source used for a week."""
        await asyncio.to_thread(sweep_mirrors, self.root, self._all(), now.timestamp())

    async def make_room(self) -> bool:
        """Remove all mirrors that no source uses, however short a time."""
        return await asyncio.to_thread(remove_unused, self.root, self._all())

    def _all(self) -> frozenset[Path]:
        return frozenset().union(*self._by_source.values())


@dataclass(frozen=True, slots=True)
class SourceShare:
    """What is shared, for one request of one source."""

    listings: LsRemoteCache
    mirrors: MirrorsInUse
    request: FetchRequest

    async def references(self, program: GitProgram, options: tuple[str, ...]) -> References:
        """The references of a remote, which another source may have asked for already. Raises Setback."""
        key = self.request.key
        return await self.listings.references(program, options, self.request.freshness, key.namespace)

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the places in which git runs, once it is the namespace's turn."""
        return self.listings.places.place(self.request.key.namespace)

    @property
    def quota(self) -> MirrorQuota:
        """The bytes of the namespace's mirrors."""
        return self.mirrors.quota

    def add_mirror(self, mirror: Path) -> None:
        """Note a mirror that the source uses beside those known."""
        self.mirrors.add(self.request.key, mirror)

    def keep_only(self, mirrors: frozenset[Path]) -> None:
        """Note all mirrors that the source uses."""
        self.mirrors.keep_only(self.request.key, mirrors)
