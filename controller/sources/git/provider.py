"""A Git repository as a source: on this machine read in place, elsewhere through a mirror."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from posixpath import normpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pygit2

from controller.api.parsing.git_url import Location, parse_location
from controller.runtime.reconciling.setbacks import Failed, Stalled, advised, stalling
from controller.sources.git.credentials import Credentials, carried
from controller.sources.git.listing.reference import (
    Reference,
    References,
    choose,
    choose_among,
    narrowed,
    parse,
)
from controller.sources.git.programs.program import BrokenMirrorError, GitProgram
from controller.sources.git.reading.mirror import Mirror
from controller.sources.git.reading.mirror_quota import MirrorQuota
from controller.sources.git.reading.repository import UnreadableFormatError, list_references, open_repository
from controller.sources.git.reading.submodules import FILE as SUBMODULES_FILE
from controller.sources.git.reading.submodules import SubmoduleReader
from controller.sources.git.reading.tree import DAMAGE, read_in_thread, without_author
from controller.sources.git.watch import watched
from controller.sources.looking.deadline import Deadline
from controller.sources.provider import NOTHING_ACCEPTED, Accepted, TreeLimits, polled, with_signer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.git.http.pack_fetch import PackFetch
    from controller.sources.git.reading.tree import TreeReader
    from controller.sources.git.signatures.trust import Trust
    from controller.sources.provider import Fetched, LineAuthor, Revision

TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class GitProvider:
    """One repository at one reference. Implements `LocalProvider`."""

    location: Location
    reference: Reference
    mirror_root: Path
    """Where mirrors of remotes are kept; shared by all sources, and safe to lose."""
    credentials: Credentials | None = None
    """Preferred to any in the location."""
    limits: TreeLimits = field(default_factory=TreeLimits)
    interval: float = 10.0
    """Seconds between looks at a remote; also for a local repository whose watch was silent."""
    timeout: float = TIMEOUT
    """Seconds for one step, unless there is a deadline."""
    deadline: Deadline | None = field(default=None, compare=False)
    """For all steps together, where the provider is opened for one look."""
    paths: tuple[str, ...] = ()
    """Files, folders and globs that matter; files that none could match are not written. Empty: all."""
    sparse: tuple[str, ...] = ()
    """Folders that alone are written, and must be there; in place of `paths`. Empty: all."""
    submodules: bool = False
    """Whether the files of submodules are fetched, too; of a remote only."""
    listed: Callable[[GitProgram, tuple[str, ...]], Awaitable[References]] | None = None
    """Lists a remote's references in place of this provider; others may have asked already."""
    packs: PackFetch | None = field(default=None, compare=False)
    """Fetches what was listed, where it can, in place of git."""
    place: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext
    """Context that is held during a fetch."""
    reader: TreeReader = read_in_thread
    hosts: Hosts | None = None
    """Where remotes may be; None: anywhere."""
    authors: bool = True
    """Whether what is fetched names the commit's author."""
    quota: MirrorQuota = field(default_factory=MirrorQuota, compare=False)
    """As `Mirror.quota`, which outlives a look."""
    uses: Callable[[frozenset[Path], bool], None] = field(default=lambda _used, _alone: None, compare=False)
    """Receives the mirror of each submodule before it is fetched; at the end all that a commit uses."""
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    trust: Trust | None = None
    """Verifies new revisions; None: they are not verified."""

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys and the policy; empty: nothing need be signed."""
        return "" if self.trust is None else self.trust.epoch

    @property
    def lineage(self) -> str:
        """The repository and the reference; empty: any revision may follow another."""
        return "" if self.trust is None else f"{self.reference} of {self.shown}"

    @property
    def shows_every_push(self) -> bool:
        """A tag that was pushed may be no version of the range."""
        ref = self.reference
        return ref.semver is None or bool(ref.commit or ref.name or ref.tag)

    async def resolve(self) -> Revision:
        """List references and choose; a pinned commit needs no look. Raises `Setback`."""
        if self.reference.commit is not None:
            return choose({}, None, self.reference)
        with advised(self.advice):
            return await choose_among(await self._references(), self.reference)

    async def fetch(self, revision: Revision, into: Path, accepted: Accepted = NOTHING_ACCEPTED) -> Fetched:
        """Write the files of `revision` below the empty folder `into`. Raises `Setback`."""
        with advised(self.advice):
            async with self.place():
                fetched = await self._fetched(revision, into, self._reader(accepted))
                if self.submodules:
                    fetched = replace(fetched, skipped=await self._with_submodules(fetched, into))
        if self.sparse:
            await asyncio.to_thread(self._require_folders, fetched, into)
        return fetched

    async def _with_submodules(self, fetched: Fetched, into: Path) -> tuple[str, ...]:
        """Write the files of submodules, too; returns what was left out of it all."""
        used = {self.mirror.path}

        def mirror_of(location: Location) -> Mirror:
            mirror = self._mirror_of(location)
            used.add(mirror.path)
            self.uses(frozenset({mirror.path}), False)
            return mirror

        skipped = await SubmoduleReader(into, mirror_of, self.limits).read(self.location, fetched)
        self.uses(frozenset(used), True)
        return skipped

    def _reader(self, accepted: Accepted) -> TreeReader:
        """Verifies a commit, then reads its files."""

        async def read(
            path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
        ) -> Fetched:
            signer = None
            if self.trust is not None:
                signer = await self.trust.signer(path, self.reference, revision, accepted)
            wanted = (*self.sparse, SUBMODULES_FILE) if self.sparse and self.submodules else self.sparse
            fetched = await self.reader(path, revision, into, limits, wanted or paths)
            shown = fetched if self.authors else without_author(fetched)
            return with_signer(shown, signer, named=self.authors)

        return read

    def _require_folders(self, fetched: Fetched, into: Path) -> None:
        for each in self.sparse:
            folder = normpath(each)
            missing = not (into / folder).is_dir() and folder not in dict(fetched.submodules)
            if missing and not any(name.startswith(f"{folder}/") for name in fetched.skipped):
                message = (
                    f"{self.shown}: {fetched.revision} has no folder {each}; correct spec.git.sparseCheckout"
                )
                raise Stalled("FolderNotFound", message)

    async def _fetched(self, revision: Revision, into: Path, reader: TreeReader) -> Fetched:
        if self.location.path is not None:
            try:
                return await reader(self.location.path, revision, into, self.limits, self.paths)
            except UnreadableFormatError:
                pass
            except DAMAGE as error:
                raise self._unreadable(error, revision) from error
        mirror = replace(self.mirror, reader=reader)
        return await mirror.write(self.reference, revision, into, self.limits, self.paths)

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
        """The part of a FlagSource that stands for it."""
        url = self.address
        reference = {name: each for name, each in asdict(self.reference).items() if each is not None}
        return {
            "git": {"url": url if "://" in url else f"ssh://{url.replace(':', '/', 1)}", "ref": reference}
        }

    def kept_in(self, folder: Path) -> GitProvider:
        """The same with its mirrors in `folder`."""
        return replace(self, mirror_root=folder.absolute() / "mirrors")

    def whole(self) -> GitProvider:
        """The same with all files of the repository."""
        return replace(self, paths=())

    @property
    def mirror(self) -> Mirror:
        """The copy of a remote."""
        own = self._mirror_of(self.location)
        return replace(own, complete=self.trust is not None, packs=self.packs)

    def _mirror_of(self, location: Location) -> Mirror:
        program = replace(self._program(), location=location)
        return Mirror(self.mirror_root, program, self.reader, self.quota)

    async def last_change(self, revision: Revision, file: str, line: int) -> LineAuthor | None:
        """Who changed `line` (from 1) of `file` last; None where there is no history, as in a mirror."""
        if self.location.path is None:
            return None
        # GitPython takes long to load, and a source without problems never needs it.
        module = await asyncio.to_thread(import_module, "controller.sources.git.reading.blame")
        found: LineAuthor | None = await asyncio.to_thread(
            module.blame_line, self.location.path, self.location, revision, file, line
        )
        return found

    def changes(self) -> AsyncIterator[None]:
        """At once, then as a local repository's references change, and every interval."""
        if self.location.path is not None:
            return watched(self.location.path, self.interval)
        return polled(self.interval)

    async def _references(self) -> References:
        if self.location.path is not None:
            try:
                return await asyncio.to_thread(_listed_in_place, self.location.path)
            except UnreadableFormatError:
                pass
            except (pygit2.GitError, KeyError, OSError) as error:
                raise self._unreadable(error) from error
        elif self.listed is not None:
            return await self.listed(self._program(), narrowed(self.reference))
        try:
            listing = await self._program().list_references(*narrowed(self.reference))
        except BrokenMirrorError as error:
            raise self._unreadable(error) from error
        return await parse(listing, self.location.shown)

    def _program(self) -> GitProgram:
        credentials = self.credentials or carried(self.location)
        deadline = self.deadline or Deadline(self.timeout, self.location.shown)
        return GitProgram(self.location, credentials, deadline, hosts=self.hosts)

    def _unreadable(self, error: Exception, revision: Revision | None = None) -> Failed:
        what = f"{revision} cannot be read" if revision else "its references cannot be read"
        why = "an object is missing" if isinstance(error, KeyError) else str(error)
        return Failed("GitOperationFailed", f"{self.location.shown}: {what}: {why}")


def _listed_in_place(path: Path) -> References:
    return References(*list_references(open_repository(path)))


def open_source(
    location: str,
    *,
    reference: str | None = None,
    mirror_root: Path,
    interval: float = 10.0,
    paths: Iterable[str] = (),
    credentials: Credentials | None = None,
) -> GitProvider:
    """A source from what a person wrote; a relative path counts from the working folder. Raises `Stalled`."""
    with stalling():
        place, followed = parse_location(location), Reference.parse(reference)
    if place.path is not None:
        path = place.path.expanduser().absolute()
        place = Location(place.transport, path.as_uri(), place.shown, path=path)
    return GitProvider(
        place,
        followed,
        mirror_root.absolute(),
        credentials=credentials,
        interval=interval,
        paths=tuple(paths),
    )
