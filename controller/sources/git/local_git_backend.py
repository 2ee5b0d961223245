"""The Git repository of a command line, which is followed without a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from controller.api.parsing.git_url import Location, parse_location
from controller.runtime.reconciling.setbacks import stalling
from controller.sources.backend import polled
from controller.sources.git.git_backend import GitBackend
from controller.sources.git.git_references import Reference
from controller.sources.git.reference_watch import reference_changes
from controller.sources.git.repository import uncommitted_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from controller.sources.backend import LineAuthor, Revision


@dataclass(frozen=True, slots=True)
class LocalGitBackend(GitBackend):
    """One repository at one reference. Implements `LocalBackend`."""

    interval: float = 10.0
    """Seconds between two requests to a remote; also for a local repository whose watch was silent."""

    @property
    def address(self) -> str:
        """The URL without its query, which may hold a token."""
        return self.location.url.partition("?")[0]

    @property
    def shown(self) -> str:
        """The repository without a name, password or token."""
        return self.location.shown

    @property
    def spec(self) -> dict[str, Any]:
        """The part of a FlagSource that describes it."""
        url = self.address
        reference = {kind: value for kind, value in asdict(self.reference).items() if value is not None}
        return {
            "git": {"url": url if "://" in url else f"ssh://{url.replace(':', '/', 1)}", "ref": reference}
        }

    def kept_in(self, folder: Path) -> LocalGitBackend:
        """The same with its mirrors in `folder`."""
        return replace(self, mirror_root=folder.absolute() / "mirrors")

    def whole(self) -> LocalGitBackend:
        """The same with all files of the repository."""
        return replace(self, paths=())

    async def last_change(self, revision: Revision, file: str, line: int) -> LineAuthor | None:
        """Who changed `line` (from 1) of `file` last; None where there is no history, as in a mirror."""
        if self.location.path is None:
            return None
        # GitPython takes long to load, and a source without problems never needs it.
        module = await asyncio.to_thread(import_module, "controller.sources.git.blame")
        author: LineAuthor | None = await asyncio.to_thread(
            module.blame_line, self.location.path, self.location, revision, file, line
        )
        return author

    async def uncommitted(self, revision: Revision) -> Sequence[str]:
        """The files on disk that differ from the branch `revision`, if that is checked out."""
        if self.location.path is None:
            return ()
        return await asyncio.to_thread(uncommitted_files, self.location.path, revision)

    def changes(self) -> AsyncIterator[None]:
        """At once, then as a local repository's references change, and every interval."""
        if self.location.path is not None:
            return reference_changes(self.location.path, self.interval)
        return polled(self.interval)


def open_source(
    location: str,
    *,
    reference: str | None = None,
    mirror_root: Path,
    interval: float = 10.0,
    paths: Iterable[str] = (),
) -> LocalGitBackend:
    """A source from what a person wrote; a relative path counts from the working folder. Raises `Stalled`."""
    with stalling():
        place, followed = parse_location(location), Reference.parse(reference)
    if place.path is not None:
        path = place.path.expanduser().absolute()
        place = Location(place.transport, path.as_uri(), place.shown, path=path)
    return LocalGitBackend(place, followed, mirror_root.absolute(), interval=interval, paths=tuple(paths))
