"""A Git repository as a source: on this machine read in place, elsewhere through a mirror."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pygit2

from controller.runtime.setbacks import Failed
from controller.sources.location import Credentials, Location, parse_location
from controller.sources.mirror import Mirror
from controller.sources.program import BrokenMirrorError, GitProgram
from controller.sources.programs import Programs
from controller.sources.reference import Reference, choose
from controller.sources.repository import (
    UnreadableFormatError,
    list_references,
    open_repository,
    parse_listing,
)
from controller.sources.tree import DAMAGE, TreeLimits, write_commit
from controller.sources.watch import polled, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from controller.sources.listings import References
    from controller.sources.source import Commit, Revision
    from controller.sources.threads import Runner


@dataclass(frozen=True, slots=True)
class GitSource:
    """One repository at one reference. Implements `Source`; what blocks runs in threads."""

    location: Location
    reference: Reference
    mirror_root: Path
    """Where mirrors of remotes are kept; shared by all sources, and safe to lose."""
    credentials: Credentials | None = None
    """Preferred to any in the location."""
    limits: TreeLimits = field(default_factory=TreeLimits)
    interval: float = 10.0
    """Seconds between looks at a remote; also for a local repository whose watch was silent."""
    timeout: float = 60.0
    """Seconds for one run of git."""
    paths: tuple[str, ...] = ()
    """Files, folders and globs that matter; files that none could match are not written. Empty: all."""
    listed: Callable[[GitProgram, tuple[str, ...]], Awaitable[References]] | None = None
    """Who lists a remote's references in place of its own run of git; others may have asked already."""
    run: Runner = asyncio.to_thread
    """The threads that wait for git."""
    programs: Programs = field(default_factory=Programs, compare=False, repr=False)
    """What runs of git; once they are ended, nothing is read from a remote any more."""

    async def resolve(self) -> Revision:
        """List references and choose; a pinned commit needs no look. Raises `Setback`."""
        if self.reference.commit is not None:
            return choose({}, None, self.reference)
        if self.listed is not None and self.location.path is None:
            refs, head = await self.listed(self._program(), self._narrowed())
            return choose(refs, head, self.reference)
        return await self.run(self._resolve)

    async def fetch(self, revision: Revision, into: Path) -> Commit:
        """Write the files of `revision` below the empty folder `into`. Raises `Setback`."""
        return await self.run(partial(self._fetch, revision, into))

    @property
    def mirror(self) -> Mirror:
        """The copy of a remote."""
        return Mirror(self.mirror_root, self._program())

    def changes(self) -> AsyncIterator[None]:
        """At once, then as a local repository's references change, and every interval."""
        if self.location.path is not None:
            return watched(self.location.path, self.interval)
        return polled(self.interval)

    def _resolve(self) -> Revision:
        refs, head = self._references()
        return choose(refs, head, self.reference)

    def _references(self) -> References:
        if self.location.path is not None:
            try:
                return list_references(open_repository(self.location.path))
            except UnreadableFormatError:
                pass
            except (pygit2.GitError, KeyError, OSError) as error:
                raise self._unreadable(error) from error
        try:
            listing = self._program().list_references(*self._narrowed())
        except BrokenMirrorError as error:
            raise self._unreadable(error) from error
        return parse_listing(listing)

    def _narrowed(self) -> tuple[str, ...]:
        """A forge lists a reference for every pull request ever made; they are asked for only by name."""
        followed = self.reference
        if followed.name is not None or (followed == Reference()):
            return ()
        return ("--heads", "--tags")

    def _fetch(self, revision: Revision, into: Path) -> Commit:
        if self.location.path is not None:
            try:
                repository = open_repository(self.location.path)
                return write_commit(repository, revision, into, self.limits, self.paths)
            except UnreadableFormatError:
                pass
            except DAMAGE as error:
                raise self._unreadable(error, revision) from error
        return self.mirror.write(self.reference, revision, into, self.limits, self.paths)

    def _program(self) -> GitProgram:
        credentials = self.credentials or self.location.credentials
        return GitProgram(self.location, credentials, self.timeout, self.programs)

    def _unreadable(self, error: Exception, revision: Revision | None = None) -> Failed:
        what = f"{revision} cannot be read" if revision else "its references cannot be read"
        why = "an object is missing" if isinstance(error, KeyError) else str(error)
        return Failed("GitOperationFailed", f"{self.location.shown}: {what}: {why}")


def open_source(
    location: str,
    *,
    reference: str | None = None,
    mirror_root: Path,
    interval: float = 10.0,
    paths: Iterable[str] = (),
    credentials: Credentials | None = None,
) -> GitSource:
    """A source from what a person wrote; a relative path counts from the working folder. Raises `Stalled`."""
    place = parse_location(location)
    if place.path is not None:
        path = place.path.expanduser().absolute()
        place = Location(place.transport, path.as_uri(), place.shown, path=path)
    return GitSource(
        place,
        Reference.parse(reference),
        mirror_root.absolute(),
        credentials=credentials,
        interval=interval,
        paths=tuple(paths),
    )
