"""What the sources of one controller share: listings of remotes, turns to run git, and mirrors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from controller.sources.backend import FetchRequest
    from controller.sources.git.git_program import GitProgram
    from controller.sources.git.git_references import References
    from controller.sources.git.ls_remote_cache import LsRemoteCache
    from controller.sources.git.mirror_quota import MirrorQuota
    from controller.sources.git.mirrors_in_use import MirrorsInUse


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
