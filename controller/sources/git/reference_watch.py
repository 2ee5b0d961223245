"""When to poll again: as a local repository's references change, and every interval in any case."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaluator.sync.sources.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_AWAY: Final = 0.5
"""Seconds between polls for a repository that is not there."""
_WATCHED_FILES: Final = frozenset({"HEAD", "packed-refs"})
_random = secrets.SystemRandom()


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


def find_folders(path: Path) -> tuple[Path, ...]:
    """The folders in which references of the repository at `path` change; empty without one. Blocks."""
    try:
        own = _git_folder(path)
        shared = own
        if (common := own / "commondir").is_file():
            shared = (own / common.read_text(encoding="utf-8").strip()).resolve()
        if not (own / "HEAD").exists():
            return ()
    except (OSError, UnicodeDecodeError):
        return ()
    # `HEAD` and `packed-refs` are in a linked work tree's own folder and in the one that all share.
    folders = dict.fromkeys((own, shared))
    for top in (shared / "refs", shared / "reftable"):
        folders |= dict.fromkeys(Path(folder) for folder, _, _ in os.walk(top))
    return tuple(folders)


def _matters(folder: Path, name: str) -> bool:
    """Whether a change of `name` may change references: in a repository below a folder `refs`, any may."""
    if name.endswith(".lock"):
        return False
    return name in _WATCHED_FILES or "refs" in folder.parts or "reftable" in folder.parts


def _git_folder(path: Path) -> Path:
    inside = path / ".git"
    if inside.is_file():
        # A linked work tree's or submodule's: `gitdir: <path>`.
        text = inside.read_text(encoding="utf-8").strip()
        return (path / text.removeprefix("gitdir:").strip()).resolve()
    return (inside if inside.is_dir() else path).resolve()
