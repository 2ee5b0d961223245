"""Bare copies of remotes: fetched by what is new, rebuilt where they are damaged, and bounded for each
namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pygit2

from controller.api.references import HEADS, TAGS
from controller.runtime.setbacks import Failed, Stalled, over_quota
from controller.sources.backend import Fetched, FetchRequest, Revision, TreeLimits, Unverified
from controller.sources.git_credentials import LIMIT, UNADVERTISED
from controller.sources.git_program import BrokenMirrorError, GitProgram
from controller.sources.git_repository import KEPT, DamagedRepositoryError, open_mirror, report_damage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from pathlib import Path

    from controller.api.meta import ObjectKey
    from controller.sources.git_commits import Checkout, CommitReader
    from controller.sources.git_listing import LsRemoteCache
    from controller.sources.git_references import Reference, References


class MirrorQuota:
    """What the mirrors of a namespace may take on the disk, and which revisions were too large."""

    def __init__(self, most: int = 0, removals: Collection[asyncio.Task[None]] = ()) -> None:
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
        if refused == revision and self._most:
            await asyncio.gather(*self._removals, return_exceptions=True)
            await asyncio.to_thread(self._require, mirror, size)

    async def keep(self, mirror: Path, revision: Revision) -> None:
        """Once `revision` was fetched. Removes the mirror and raises Stalled where it outgrew the quota."""
        if self._most:
            await asyncio.to_thread(self._keep, mirror, revision)
        self._refused.pop(mirror, None)

    def forget(self, mirror: Path) -> None:
        """Forget the mirror, which no source uses any more."""
        self.exceeded.pop(mirror, None)
        self._refused.pop(mirror, None)

    def usage(self, root: Path) -> Counter[str]:
        """Bytes of the mirrors below `root` now, by namespace, if there is a limit. Any thread may ask."""
        sizes: Counter[str] = Counter()
        for mirror in root.glob("*/*.git") if self._most else ():
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
        if self._most and size > self._most:
            raise over_quota(
                "bytes of mirrors of Git repositories", namespace, size, self._most, "--quota-mirror-bytes"
            )


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


UNUSED: Final = 7 * 86_400.0
"""Seconds."""
_BUSY: Final = 0.02
"""Seconds until a lock that another holds is tried again."""
_DAMAGE = (BrokenMirrorError, DamagedRepositoryError)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where the copies are kept, and who fetches."""

    root: Path
    program: GitProgram
    quota: MirrorQuota = field(default_factory=MirrorQuota, compare=False)
    """Of all mirrors in `root`."""
    complete: bool = False
    """Whether the history is kept, and the tag that is followed; otherwise one commit is."""

    @property
    def path(self) -> Path:
        """One folder per remote and identity: what one asker may read, another may not."""
        credentials = self.program.credentials
        asker = credentials.identity if credentials is not None else ""
        # A fetch of one commit would cut the history of another's.
        kind = "\0complete" if self.complete else ""
        name = hashlib.sha256(f"{self.program.location.url}\0{asker}{kind}".encode()).hexdigest()
        return self.root / f"{name}.git"

    async def read(self, reference: Reference, checkout: Checkout, reader: CommitReader) -> Fetched:
        """Fetch a commit unless it is here already, and have `reader` read it. A damaged mirror, such as one
        whose fetch was killed, is fetched anew. Raises `Setback`.
        """
        async with self._hold_lock():
            try:
                return await self._fetch_and_read(reference, checkout, reader)
            except _DAMAGE:
                await asyncio.to_thread(self._clear, checkout.into)
            try:
                return await self._fetch_and_read(reference, checkout, reader)
            except _DAMAGE as error:
                message = f"{self.program.location.shown}: {checkout.revision} cannot be read: {error}"
                raise Failed("GitOperationFailed", message) from error

    async def _fetch_and_read(
        self, reference: Reference, checkout: Checkout, reader: CommitReader
    ) -> Fetched:
        revision, limits = checkout.revision, checkout.limits
        known, exceeded, message = self.quota.exceeded.get(self.path, (None, limits, ""))
        # A submodule has more room once the files before it are fewer.
        if known == revision and limits.within(exceeded):
            raise Stalled(LIMIT, message)
        held: bool | None = False
        try:
            await self.quota.admit(self.path, revision)
            held = await asyncio.to_thread(self._holds, revision)
            if not held:
                await self._grow(reference, revision, new=held is None)
            if self.complete and (tag := reference.full_name(revision) or "").startswith(TAGS):
                # It may be another object now, though it marks the same commit.
                await self.program.fetch(self.path, f"+{tag}:{tag}", depth=None, whole=True)
            return await reader.read(self.path, checkout)
        except Stalled as setback:
            if setback.reason == LIMIT and not isinstance(setback, Unverified):
                if held:
                    # libgit2 reads some truncated objects for ever.
                    raise BrokenMirrorError(setback.message) from setback
                # What is too large to be read is not kept, or many such sources would fill the disk.
                await asyncio.to_thread(shutil.rmtree, self.path, ignore_errors=True)
                self.quota.exceeded[self.path] = (revision, limits, setback.message)
            raise

    async def _grow(self, reference: Reference, revision: Revision, *, new: bool) -> None:
        """Fetch, as far as the quota lets the mirror be kept."""
        await self._fetch(reference, revision)
        try:
            await self.quota.keep(self.path, revision)
        except Stalled:
            if new:
                raise
        else:
            return
        # It may have outgrown the quota by what nothing refers to any more.
        await asyncio.to_thread(self._holds, revision)
        await self._fetch(reference, revision)
        await self.quota.keep(self.path, revision)

    def _holds(self, revision: Revision) -> bool | None:
        """None: it is new."""
        with report_damage():
            if not self.path.exists():
                pygit2.init_repository(str(self.path), bare=True)
                return None
            return revision.digest.removeprefix("sha1:") in open_mirror(self.path)

    async def _fetch(self, reference: Reference, revision: Revision) -> None:
        # One kept reference per reference that is followed, so that what two sources follow does not replace
        # each other.
        oid = revision.digest.removeprefix("sha1:")
        kept = KEPT + hashlib.sha256(str(reference).encode()).hexdigest()[:16]
        depth = None if self.complete else 1
        try:
            await self.program.fetch(self.path, f"+{oid}:{kept}", depth=depth, whole=self.complete)
        except Failed as refused:
            if refused.reason != UNADVERTISED:
                raise
        else:
            return
        # A server that gives out no bare ids: take what the name points at now, or for a pinned commit, all
        # there is.
        if (name := reference.full_name(revision)) is not None and reference.commit is None:
            await self.program.fetch(self.path, f"+{name}:{kept}", depth=depth, whole=self.complete)
        else:
            everything = (f"+{HEADS}*:refs/all/heads/*", f"+{TAGS}*:refs/all/tags/*")
            await self.program.fetch(self.path, *everything, depth=None, whole=self.complete)

    @contextlib.asynccontextmanager
    async def _hold_lock(self) -> AsyncIterator[None]:
        """One at a time per mirror, across tasks and processes; the lock goes when its holder dies."""
        lock = await self._take_lock()
        try:
            yield
        finally:
            os.close(lock)

    async def _take_lock(self) -> int:
        try:
            async with self.program.deadline.limit():
                while (lock := await self._try_lock()) is None:  # noqa: ASYNC110 - others' processes
                    await asyncio.sleep(_BUSY)
        except Failed as overdue:
            if overdue.reason != "Timeout":
                raise
            raise Failed(
                "Timeout", f"{self.program.location.shown}: another fetch still uses its mirror"
            ) from overdue
        return lock

    async def _try_lock(self) -> int | None:
        """As `_lock`, in a thread. A lock that is taken after the caller was cancelled is released."""
        trying = asyncio.get_running_loop().run_in_executor(None, self._lock)
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            trying.add_done_callback(_close_lock)
            raise

    def _lock(self) -> int | None:
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            return take_lock(_lock_of(self.path))
        except OSError as error:
            message = f"the mirror's folder cannot be used: {error.strerror}: {error.filename}"
            raise Failed("StorageOperationFailed", message) from error

    def _clear(self, into: Path) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        for entry in into.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def remove_mirror(path: Path) -> None:
    """Remove a mirror that no source uses any more, unless it is in use after all. Blocks; never fails."""
    with contextlib.suppress(OSError):
        lock = take_lock(_lock_of(path))
        if lock is not None:
            try:
                shutil.rmtree(path, ignore_errors=True)
                _lock_of(path).unlink(missing_ok=True)
            finally:
                os.close(lock)


def sweep_mirrors(root: Path, used: Collection[Path], now: float) -> None:
    """Stamp the mirrors in `used`; remove others `UNUSED` seconds after their stamp. Blocks; never fails."""
    for path in root.glob("*/*.git"):
        with contextlib.suppress(OSError):
            if path in used:
                os.utime(path, (now, now))
            elif now - path.stat().st_mtime > UNUSED:
                remove_mirror(path)


def remove_unused(root: Path, used: Collection[Path]) -> bool:
    """Remove the mirrors that are not in `used`; return whether there were any. Blocks; never fails."""
    unused = [path for path in root.glob("*/*.git") if path not in used]
    for path in unused:
        remove_mirror(path)
    return bool(unused)


def _lock_of(mirror: Path) -> Path:
    return mirror.with_suffix(".lock")


def _close_lock(trying: asyncio.Future[int | None]) -> None:
    """Close the lock that the task took, if it took one."""
    if not trying.cancelled() and trying.exception() is None and (lock := trying.result()) is not None:
        os.close(lock)


def take_lock(path: Path) -> int | None:
    """The lock's descriptor, or None where another holds it. Raises OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A process that removed the mirror removed the lock file too: then this lock protects nothing.
        if os.fstat(lock).st_ino == os.stat(path).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


class MirrorsInUse:
    """The mirrors below one folder, by source, those of submodules among them. Belongs to one event loop."""

    def __init__(self, root: Path, most: int = 0) -> None:
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
