"""The Git repository of a command line, which is followed without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing.git_url import Location, parse_location
from controller.runtime.reconciling.setbacks import stall_on_invalid_text
from controller.sources.backend import poll_ticks
from controller.sources.git.git_backend import GitBackend
from controller.sources.git.repository import find_folders, uncommitted_files
from controller.sources.git_cli.git_references import Reference
from evaluator.sync.sources.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from controller.sources.backend import LineAuthor, Revision

_AWAY: Final = 0.5
"""Seconds between polls for a repository that is not there."""
_WATCHED_FILES: Final = frozenset({"HEAD", "packed-refs"})
_random = secrets.SystemRandom()


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
    def display_name(self) -> str:
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

    def with_folder(self, folder: Path) -> LocalGitBackend:
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

    async def uncommitted_files(self, revision: Revision) -> Sequence[str]:
        """The files on disk that differ from the branch `revision`, if that is checked out."""
        if self.location.path is None:
            return ()
        return await asyncio.to_thread(uncommitted_files, self.location.path, revision)

    def changes(self) -> AsyncIterator[None]:
        """At once, then as a local repository's references change, and every interval."""
        if self.location.path is not None:
            return reference_changes(self.location.path, self.interval)
        return poll_ticks(self.interval)


def open_source(
    location: str,
    *,
    reference: str | None = None,
    mirror_root: Path,
    interval: float = 10.0,
    paths: Iterable[str] = (),
) -> LocalGitBackend:
    """A source from what a person wrote; a relative path counts from the working folder. Raises `Stalled`."""
    with stall_on_invalid_text():
        place, followed = parse_location(location), Reference.parse(reference)
    if place.path is not None:
        path = place.path.expanduser().absolute()
        place = Location(place.transport, path.as_uri(), place.shown, path=path)
    return LocalGitBackend(place, followed, mirror_root.absolute(), interval=interval, paths=tuple(paths))


async def reference_changes(path: Path, interval: float) -> AsyncIterator[None]:
    """At once, after each change of the references at `path`, be it there or not, and every interval."""
    watched: tuple[Path, ...] = ()

    def folders(path: Path) -> tuple[Path, ...]:
        nonlocal watched
        watched = find_folders(path)
        return watched

    watch = Watch(path, folders, _matters)
    with contextlib.closing(watch):
        while True:
            # Armed again before each poll: folders of branches come and go, and what changes later is seen.
            await watch.arm()
            yield
            if watched:
                await watch.wait(interval * _random.uniform(0.9, 1.1))
            else:
                await _wait_for_repository(path, interval)


async def _wait_for_repository(path: Path, interval: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(interval):
            await asyncio.sleep(min(_AWAY, interval))
            while not await asyncio.to_thread(find_folders, path):  # noqa: ASYNC110 - nothing reports it
                await asyncio.sleep(min(_AWAY, interval))


def _matters(folder: Path, name: str) -> bool:
    """Whether a change of `name` may change references: in a repository below a folder `refs`, any may."""
    if name.endswith(".lock"):
        return False
    return name in _WATCHED_FILES or "refs" in folder.parts or "reftable" in folder.parts
