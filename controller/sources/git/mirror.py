"""A bare copy of one remote as one identity sees it: fetched by what is new, and rebuilt when damaged."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pygit2

from controller.api.parsing.reference_names import HEADS, TAGS
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.backend import Unverified
from controller.sources.git.mirror_quota import MirrorQuota
from controller.sources.git.repository import KEPT, DamagedRepositoryError, open_mirror, report_damage
from controller.sources.git_cli.git_complaints import LIMIT, UNADVERTISED
from controller.sources.git_cli.git_program import BrokenMirrorError, GitProgram

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from controller.sources.backend import Fetched, Revision
    from controller.sources.git.commit_reader import CommitReader
    from controller.sources.git.commit_tree import Checkout
    from controller.sources.git_cli.git_references import Reference

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
