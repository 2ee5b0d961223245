"""Watches folders by inotify, and finds those in which a change to a path is visible."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from inotify_simple import INotify

log = logging.getLogger(__name__)

_LINKS: Final = 40
"""Most symlinks in a path; the kernel's bound."""


def places(path: Path) -> tuple[Path, ...]:
    """Return the existing folders in which the path, or the target of a symlink in it, may be replaced."""
    folders: dict[Path, None] = {}
    # Not resolve(): it would follow the very links that are watched.
    pending = [Path(os.path.abspath(path))]
    for _ in range(_LINKS):
        if not pending:
            break
        target = pending.pop()
        if link := _first_link(target):
            folders[_nearest_folder(link.parent)] = None
            rest = target.relative_to(link)
            with contextlib.suppress(OSError):
                pending.append(Path(os.path.abspath(link.parent / os.readlink(link))) / rest)
            continue
        folders[target if target.is_dir() else _nearest_folder(target.parent)] = None
        if target.is_dir():
            folders[_nearest_folder(target.parent)] = None
    return tuple(folders)


def _first_link(path: Path) -> Path | None:
    for step in (*reversed(path.parents), path):
        if step.is_symlink():
            return step
    return None


def _nearest_folder(folder: Path) -> Path:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _matches_all(folder: Path, name: str) -> bool:
    del folder, name
    return True


class FolderWatch:
    """Wakes the waiting task when what matters in the watched folders changes."""

    def __init__(
        self,
        path: Path,
        folders: Callable[[Path], Iterable[Path]] = places,
        matters: Callable[[Path, str], bool] = _matches_all,
    ) -> None:
        """`folders` returns those to watch for `path`, and may block. `matters` says whether the change of a
        name in one of them counts; the end of a folder itself always does.
        """
        self._path = path
        self._folders = folders
        self._matters = matters
        self._notify: INotify | None = None
        self._watched: dict[int, Path] = {}
        self._woken = asyncio.Event()
        self._refused = self._closed = False
        self._opening = threading.Lock()

    @property
    def watching(self) -> bool:
        """Return whether the system is asked to watch."""
        return self._notify is not None

    async def arm(self) -> None:
        """Watch the present folders alone. If the system refuses, `wait` ends only by its timeout."""
        try:
            await asyncio.to_thread(self._arm)
        except (OSError, ImportError) as error:
            if not self._refused:
                log.warning("%s: cannot be watched, so it is read at every interval: %s", self._path, error)
            self._refused = True
            return
        if self._notify is not None:
            asyncio.get_running_loop().add_reader(self._notify.fileno(), self._ready)

    async def wait(self, seconds: float) -> bool:
        """Return whether something changed within `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        changed = self._woken.is_set()
        self._woken.clear()
        return changed

    def close(self) -> None:
        """Stop watching, for good."""
        # The caller of `arm` may have been cancelled while its thread continues.
        with self._opening:
            self._closed = True
            notify, self._notify = self._notify, None
        if notify is not None:
            asyncio.get_running_loop().remove_reader(notify.fileno())
            notify.close()

    def _arm(self) -> None:
        # Imported here: only evaluators with a file source need ctypes and this module.
        from inotify_simple import INotify, flags  # noqa: PLC0415

        folders = tuple(self._folders(self._path))
        with self._opening:
            if self._closed:
                return
            notify = self._notify = self._notify or INotify(nonblocking=True)
        mask = (
            flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.CLOSE_WRITE | flags.DELETE
            | flags.ATTRIB | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
        )  # fmt: skip
        # A folder's watch is its inode's: added again, it is the same unless the folder was replaced.
        now: dict[int, Path] = {}
        for folder in folders:
            # A folder may go before it is watched.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                now[notify.add_watch(folder, mask)] = folder
        for gone in self._watched.keys() - now.keys():
            with contextlib.suppress(OSError):
                notify.rm_watch(gone)
        self._watched = now

    def _ready(self) -> None:
        if self._notify is None:
            return
        for event in self._notify.read(timeout=0):
            folder = self._watched.get(event.wd)
            if folder is None or not event.name or self._matters(folder, event.name):
                self._woken.set()
