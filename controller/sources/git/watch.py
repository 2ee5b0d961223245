"""When to look again: as a local repository's references change, and every interval in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchfiles import Change, awatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

_AWAY = 0.5
"""Seconds between looks for a repository that is not there."""
_WATCHED_FILES = {"HEAD", "packed-refs"}
_random = secrets.SystemRandom()


async def watched(path: Path, interval: float) -> AsyncIterator[None]:
    """At once, 50 ms after a change of the references at `path`, be it there or not, and every interval."""
    while True:
        places = await asyncio.to_thread(find_places, path)
        if places is None:
            yield
            await _back(path, interval)
            continue
        async with _armed(places) as woken:
            # Whatever changed before the watch began is looked at now.
            yield
            while await asyncio.to_thread(find_places, path) == places:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval * _random.uniform(0.9, 1.1)):
                        await woken.wait()
                woken.clear()
                yield


async def _back(path: Path, interval: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(interval):
            await asyncio.sleep(min(_AWAY, interval))
            while await asyncio.to_thread(find_places, path) is None:  # noqa: ASYNC110 - nothing reports it
                await asyncio.sleep(min(_AWAY, interval))


@dataclass(frozen=True, slots=True)
class ReferencePaths:
    """Where a repository's references change; two that are equal are the same folders still."""

    shallow: tuple[Path, ...]
    """Where `HEAD` and `packed-refs` are: of a linked work tree, two."""
    deep: tuple[Path, ...]
    """`refs`, and `reftable` where there is one."""
    inodes: tuple[tuple[int, int], ...]


def find_places(path: Path) -> ReferencePaths | None:
    """None where there is no repository. Blocks."""
    try:
        own = _git_folder(path)
        shared = own
        if (common := own / "commondir").is_file():
            shared = (own / common.read_text(encoding="utf-8").strip()).resolve()
        shallow = (own,) if shared == own else (own, shared)
        deep = [shared / "refs"]
        if (reftable := shared / "reftable").is_dir():
            deep.append(reftable)
        if not (own / "HEAD").exists():
            return None
        stats = [place.stat() for place in (*shallow, *deep)]
    except (OSError, UnicodeDecodeError):
        return None
    return ReferencePaths(shallow, tuple(deep), tuple((stat.st_dev, stat.st_ino) for stat in stats))


def _git_folder(path: Path) -> Path:
    inside = path / ".git"
    if inside.is_file():
        # A linked work tree's or submodule's: `gitdir: <path>`.
        text = inside.read_text(encoding="utf-8").strip()
        return (path / text.removeprefix("gitdir:").strip()).resolve()
    return (inside if inside.is_dir() else path).resolve()


@contextlib.asynccontextmanager
async def _armed(places: ReferencePaths) -> AsyncIterator[asyncio.Event]:
    woken = asyncio.Event()
    tasks = [
        asyncio.create_task(_wake(woken, places.shallow, recursive=False)),
        asyncio.create_task(_wake(woken, places.deep, recursive=True)),
    ]
    # Each arms its watch before it first waits.
    await asyncio.sleep(0)
    try:
        yield woken
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wake(woken: asyncio.Event, places: tuple[Path, ...], *, recursive: bool) -> None:
    def matters(_: Change, name: str) -> bool:
        file = Path(name).name
        return not file.endswith(".lock") and (recursive or file in _WATCHED_FILES)

    try:
        # watchfiles would gather changes for 1.6 seconds; one commit writes its reference once.
        changes = awatch(*places, watch_filter=matters, debounce=30, step=10, recursive=recursive)
        async with contextlib.aclosing(changes):
            async for _ in changes:
                woken.set()
    except (OSError, RuntimeError) as error:
        # Gone again, or the system has no more watches to give: the interval still holds.
        log.warning("%s cannot be watched, so it is read at every interval: %s", places[0], error)
