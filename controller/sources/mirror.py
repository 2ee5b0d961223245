"""A bare copy of one remote as one identity sees it: fetched incrementally, thrown away and rebuilt when damaged."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pygit2
from pygit2.enums import RepositoryOpenFlag

from controller.runtime.setbacks import Failed
from controller.sources.program import UNADVERTISED, BrokenMirrorError, GitProgram
from controller.sources.reference import HEADS, TAGS, Reference
from controller.sources.tree import DAMAGE, TreeLimits, write_commit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from controller.sources.source import Commit, Revision

UNUSED: Final = 7 * 86_400.0
"""Seconds."""
_DAMAGE = (BrokenMirrorError, *DAMAGE)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where the copies are kept, and who fetches. Calls block: run them in a thread."""

    root: Path
    program: GitProgram

    @property
    def path(self) -> Path:
        """One folder per remote and identity: what one asker may read, another may not."""
        credentials = self.program.credentials
        asker = credentials.identity if credentials is not None else ""
        name = hashlib.sha256(f"{self.program.location.url}\0{asker}".encode()).hexdigest()
        return self.root / f"{name}.git"

    def write(
        self,
        reference: Reference,
        revision: Revision,
        into: Path,
        limits: TreeLimits,
        paths: tuple[str, ...],
    ) -> Commit:
        """Fetch `revision` unless it is here already, and write its files below `into`. Raises `Setback`."""
        with self._alone():
            try:
                return self._written(reference, revision, into, limits, paths)
            except _DAMAGE:
                self._clear(into)
            try:
                return self._written(reference, revision, into, limits, paths)
            except _DAMAGE as error:
                message = f"{self.program.location.shown}: {revision} cannot be read: {error}"
                raise Failed("GitOperationFailed", message) from error

    def _written(
        self,
        reference: Reference,
        revision: Revision,
        into: Path,
        limits: TreeLimits,
        paths: tuple[str, ...],
    ) -> Commit:
        repository = self._opened()
        oid = revision.digest.removeprefix("sha1:")
        if oid not in repository:
            self._fetch(reference, revision, oid)
            repository = self._opened()
        return write_commit(repository, revision, into, limits, paths)

    def _opened(self) -> pygit2.Repository:
        if not self.path.exists():
            return pygit2.init_repository(str(self.path), bare=True)
        flags = RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE
        return pygit2.Repository(str(self.path), flags)

    def _fetch(self, reference: Reference, revision: Revision, oid: str) -> None:
        # One kept reference per reference that is followed, so that what two sources follow does not replace each other.
        kept = "refs/kept/" + hashlib.sha256(str(reference).encode()).hexdigest()[:16]
        try:
            self.program.fetch(self.path, f"+{oid}:{kept}")
        except Failed as refused:
            if refused.reason != UNADVERTISED:
                raise
        else:
            return
        # A server that gives out no bare ids: take what the name points at now, or for a pinned commit, all there is.
        if (name := reference.full_name(revision)) is not None and reference.commit is None:
            self.program.fetch(self.path, f"+{name}:{kept}")
        else:
            everything = (f"+{HEADS}*:refs/all/heads/*", f"+{TAGS}*:refs/all/tags/*")
            self.program.fetch(self.path, *everything, depth=None)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time per mirror, across threads and processes; the lock goes when its holder dies."""
        deadline = time.monotonic() + self.program.timeout
        while (lock := self._lock()) is None:
            if time.monotonic() > deadline:
                message = f"{self.program.location.shown}: its mirror is busy"
                raise Failed("Timeout", message)
            time.sleep(0.02)
        try:
            yield
        finally:
            os.close(lock)

    def _lock(self) -> int | None:
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _taken(_lock_of(self.path))
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
        lock = _taken(_lock_of(path))
        if lock is not None:
            try:
                shutil.rmtree(path, ignore_errors=True)
                _lock_of(path).unlink(missing_ok=True)
            finally:
                os.close(lock)


def sweep_mirrors(root: Path, used: Collection[Path], now: float) -> None:
    """Stamp the mirrors in `used`, and remove those that were so for the last time `UNUSED` seconds before `now`, in seconds since 1970.

    A source that cannot be opened for a while, as its Secret is missing, thus finds its mirror again. Blocks; never fails.
    """
    for path in root.glob("*.git"):
        with contextlib.suppress(OSError):
            if path in used:
                os.utime(path, (now, now))
            elif now - path.stat().st_mtime > UNUSED:
                remove_mirror(path)


def _lock_of(mirror: Path) -> Path:
    return mirror.with_suffix(".lock")


def _taken(path: Path) -> int | None:
    """The lock's descriptor, or None where another holds it. Raises OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever removed the mirror removed the lock with it: then this one locks nobody out.
        if os.fstat(lock).st_ino == os.stat(path).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
