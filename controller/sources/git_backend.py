"""A Git repository as a source: on this machine read in place, elsewhere through a mirror."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import asdict, dataclass, field, replace
from posixpath import normpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from controller.api.addresses import Location, parse_location
from controller.runtime.setbacks import Failed, Stalled, stall_on_invalid_text, with_advice
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    AcceptedRevision,
    Fetched,
    LineAuthor,
    Revision,
    TreeLimits,
    poll_ticks,
)
from controller.sources.deadline import Deadline, LimitedTasks, ThreadTasks
from controller.sources.git_commits import Checkout, CommitReader, SignaturePolicy
from controller.sources.git_credentials import Credentials, credentials_in
from controller.sources.git_program import BrokenMirrorError, GitProgram, blame_line
from controller.sources.git_references import (
    Reference,
    References,
    choose,
    choose_among,
    listing_options,
    parse,
)
from controller.sources.git_repository import (
    DamagedRepositoryError,
    UnreadableFormatError,
    find_folders,
    list_references,
    open_repository,
    report_damage,
    uncommitted_files,
)
from controller.sources.mirror import Mirror, MirrorQuota, SourceShare
from controller.sources.submodules import FILE as SUBMODULES_FILE
from controller.sources.submodules import SubmoduleLimits, SubmoduleReader
from evaluator.sync.watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    from controller.runtime.hosts import Hosts


TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class GitBackend:
    """One repository at one reference. Implements `SourceBackend`."""

    location: Location
    reference: Reference
    mirror_root: Path
    """Where mirrors of remotes are kept; shared by all sources, and safe to lose."""
    credentials: Credentials | None = None
    """Preferred to any in the location."""
    limits: TreeLimits = field(default_factory=TreeLimits)
    timeout: float = TIMEOUT
    """Seconds for one step, unless there is a deadline."""
    deadline: Deadline | None = field(default=None, compare=False)
    """For all steps together, where the backend is opened for one request."""
    paths: tuple[str, ...] = ()
    """Files, folders and globs that matter; files that none could match are not written. Empty: all."""
    sparse: tuple[str, ...] = ()
    """Folders that alone are written, and must be there; in place of `paths`. Empty: all."""
    submodules: SubmoduleLimits | None = None
    """The files of submodules are fetched, too, of a remote only; None: they are not."""
    tasks: LimitedTasks | ThreadTasks = field(default_factory=ThreadTasks)
    """Where commits are verified and read."""
    hosts: Hosts | None = None
    """Where remotes may be; None: anywhere."""
    authors: bool = True
    """Whether what is fetched names the commit's author."""
    share: SourceShare | None = field(default=None, compare=False)
    """What is shared with other sources; None: nothing."""
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """What to do, by the reason of a failure."""
    policy: SignaturePolicy | None = None
    """Verifies new revisions; None: they are not verified."""

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys and the policy; empty: nothing need be signed."""
        return "" if self.policy is None else self.policy.epoch

    @property
    def lineage(self) -> str:
        """The repository and the reference; empty: any revision may follow another."""
        return "" if self.policy is None else f"{self.reference} of {self.location.shown}"

    @property
    def shows_every_push(self) -> bool:
        """A tag that was pushed may be no version of the range."""
        return not self.reference.follows_versions

    async def resolve(self) -> Revision:
        """List references and choose; a pinned commit needs no listing. Raises `Setback`."""
        if self.reference.commit is not None:
            return choose({}, None, self.reference)
        with with_advice(self.advice):
            return await choose_among(await self.list_references(), self.reference)

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Fetch and verify `revision`; write its files below `into`, an empty folder. Raises `Setback`."""
        reader = CommitReader(self.tasks, self.policy, self.reference, accepted, self.authors)
        # Where the submodules are is in a file.
        submodules_file = (SUBMODULES_FILE,) if self.sparse and self.submodules is not None else ()
        checkout = Checkout(revision, into, self.limits, (*self.sparse, *submodules_file) or self.paths)
        with with_advice(self.advice):
            async with contextlib.nullcontext() if self.share is None else self.share.turn():
                fetched = await self._read(checkout, reader)
                if self.submodules is not None:
                    skipped = await self._read_submodules(fetched, into, self.submodules)
                    fetched = replace(fetched, skipped=skipped)
        if self.sparse:
            await asyncio.to_thread(self._require_folders, fetched, into)
        return fetched

    async def list_references(self) -> References:
        """What the repository's references point at. Raises `Setback`."""
        if self.location.path is not None:
            try:
                return await asyncio.to_thread(_list_in_place, self.location.path)
            except UnreadableFormatError:
                pass
            except DamagedRepositoryError as error:
                raise self._unreadable(error) from error
        elif self.share is not None:
            return await self.share.references(self._program(), listing_options(self.reference))
        try:
            listing = await self._program().list_references(*listing_options(self.reference))
        except BrokenMirrorError as error:
            raise self._unreadable(error) from error
        return await parse(listing, self.location.shown)

    @property
    def mirror(self) -> Mirror:
        """The copy of a remote."""
        quota = MirrorQuota() if self.share is None else self.share.quota
        return Mirror(self.mirror_root, self._program(), quota, complete=self.policy is not None)

    async def _read(self, checkout: Checkout, reader: CommitReader) -> Fetched:
        if self.location.path is not None:
            try:
                return await reader.read(self.location.path, checkout)
            except UnreadableFormatError:
                pass
            except DamagedRepositoryError as error:
                raise self._unreadable(error, checkout.revision) from error
            except Failed as failed:
                raise Failed(failed.reason, f"{failed.message}{self._incomplete_advice(failed)}") from failed
        try:
            return await self.mirror.read(self.reference, checkout, reader)
        except Failed as failed:
            raise Failed(failed.reason, f"{failed.message}{self._partial_clone_advice()}") from failed

    def _incomplete_advice(self, failed: Failed) -> str:
        """What to do about a commit that a repository on this machine lacks."""
        if failed.reason != "RevisionGone" or self.location.path is None:
            return ""
        if any((folder / "shallow").exists() for folder in find_folders(self.location.path)):
            return "; it is a shallow clone (git clone --depth): complete it with: git fetch --unshallow"
        # A reference points at what is not there.
        return "" if self.reference.commit else self._damage_advice()

    def _damage_advice(self) -> str:
        return f"; the repository is damaged: git -C {self.location.path} fsck says more; clone it again"

    async def _read_submodules(
        self, fetched: Fetched, into: Path, limits: SubmoduleLimits
    ) -> tuple[str, ...]:
        """Write the files of submodules, too; returns what was left out of it all."""
        # Only the commit that names them need be signed, and one commit of each is enough.
        mirror = replace(self.mirror, complete=False)
        reader = SubmoduleReader(into, mirror, CommitReader(self.tasks), self.limits, limits, self.share)
        skipped = await reader.read(self.location, fetched)
        if self.share is not None:
            self.share.keep_only(frozenset({self.mirror.path, *reader.used}))
        return skipped

    def _require_folders(self, fetched: Fetched, into: Path) -> None:
        for folder in map(normpath, self.sparse):
            missing = not (into / folder).is_dir() and folder not in dict(fetched.submodules)
            if missing and not any(name.startswith(f"{folder}/") for name in fetched.skipped):
                message = (
                    f"{self.location.shown}: {fetched.revision} has no folder {folder}; "
                    "correct spec.git.sparseCheckout"
                )
                raise Stalled("FolderNotFound", message)

    def _program(self) -> GitProgram:
        credentials = self.credentials or credentials_in(self.location)
        deadline = self.deadline or Deadline(self.timeout, self.location.shown)
        return GitProgram(self.location, credentials, deadline, hosts=self.hosts)

    def _unreadable(self, error: Exception, revision: Revision | None = None) -> Failed:
        problem = f"{revision} cannot be read" if revision else "its references cannot be read"
        advice = self._partial_clone_advice() or self._damage_advice()
        message = f"{self.location.shown}: {problem}: {error}{advice}"
        return Failed("GitOperationFailed", message)

    def _partial_clone_advice(self) -> str:
        if self.location.path is None or not _is_partial_clone(self.location.path):
            return ""
        return (
            "; the repository is a partial clone (git clone --filter), whose objects are not all here: "
            "clone it without --filter, or complete it with: git fetch --refetch --no-filter"
        )


def _is_partial_clone(path: Path) -> bool:
    for folder in find_folders(path):
        with contextlib.suppress(OSError):
            settings = (folder / "config").read_text(encoding="utf-8", errors="replace").lower()
            if "partialclone" in settings or "promisor" in settings:
                return True
    return False


def _list_in_place(path: Path) -> References:
    with report_damage():
        return References(*list_references(open_repository(path)))


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
        return await asyncio.to_thread(blame_line, self.location.path, self.location, revision, file, line)

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

    watch = FolderWatch(path, folders, _matters)
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
