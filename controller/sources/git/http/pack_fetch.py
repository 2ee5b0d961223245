"""Fetches one commit without its history by one request: the pack goes straight into a child of git's."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.sources.git.http.connections import FAILURES, SERVICE, Connections
from controller.sources.git.http.packets import NEEDED, PackAnswer, request
from controller.sources.git.programs.isolation import environment
from controller.sources.git.programs.process import run
from controller.sources.git.programs.program import is_crowded
from controller.sources.git.reading.repository import KEPT, open_mirror

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable
    from pathlib import Path

    from aiohttp import StreamReader

    from controller.sources.git.listing.reference import References
    from controller.sources.git.programs.program import GitProgram
    from controller.sources.git.reading.repository import Wanted

_FEW: Final = 100
"""Objects; git unpacks less than these, as a pack for each commit would have to be tidied up soon."""
_MOST_HELD: Final = 100
"""Commits that a server is told of."""


@dataclass(slots=True)
class PackFetch:
    """Fetches what one look has listed."""

    connections: Connections
    _listing: References | None = None

    async def listed(self, listing: Awaitable[References]) -> References:
        """Return the listing of this look. Raises Setback."""
        self._listing = await listing
        return self._listing

    async def fetch(self, program: GitProgram, mirror: Path, wanted: Wanted) -> bool:
        """Whether the mirror has the commit now; if not, git is to be asked. Raises Setback.

        Git's own fetch checks that no object of the commit is missing; after this one, its reader does.
        """
        listing = self._listing
        if listing is None or not listing.capabilities >= NEEDED or not self.connections.reach(program):
            return False
        async with program.deadline.running():
            try:
                return await self._fetched(program, mirror, wanted, listing)
            except FAILURES:
                return False

    async def _fetched(self, program: GitProgram, mirror: Path, wanted: Wanted, listing: References) -> bool:
        # Git's own fetch tidies up.
        if await asyncio.to_thread(is_crowded, mirror):
            return False
        held = await asyncio.to_thread(_held, mirror, wanted.kept)
        offered = listing.tags.get(wanted.name or "", wanted.commit)
        body = request(offered, listing.capabilities, held)
        async with self.connections.answer(program, SERVICE, body) as content:
            if content is None:
                return False
            answer = PackAnswer(program.limits.file_bytes)
            if not await _store(program, mirror, answer, content):
                return False
        return await asyncio.to_thread(_keep, mirror, wanted)


async def _pieces(content: StreamReader, answer: PackAnswer) -> AsyncGenerator[bytes]:
    async for chunk in content.iter_any():
        if piece := answer.feed(chunk):
            yield piece
    answer.close()


async def _joined(first: bytes, others: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for each in others:
        yield each


async def _store(program: GitProgram, mirror: Path, answer: PackAnswer, content: StreamReader) -> bool:
    """Whether the mirror has what the answer brings. Raises FAILURES."""
    async with aclosing(_pieces(content, answer)) as pieces:
        first = await anext(pieces)
        few = answer.objects < _FEW
        command = ("unpack-objects", "-q") if few else ("index-pack", "--stdin", "--fix-thin")
        git = ("git", f"--git-dir={mirror}", *command)
        variables = environment(program.location, None, None)
        given = _joined(first, pieces)
        ended = await run(git, variables, program.limits, program.deadline.left, given)
    return ended.status == 0


def _held(mirror: Path, kept: str) -> list[str]:
    """Return the commits that are whole in the mirror but for their history, that of `kept` first.

    No object is read: a server chose how large it becomes.
    """
    for part in mirror.glob("objects/pack/tmp_*"):
        # Of a fetch that was cut short.
        part.unlink()
    repository, cut = open_mirror(mirror), _cut(mirror)
    names = sorted(repository.listall_references(), key=lambda each: each != kept)
    targets = (str(repository.lookup_reference(each).target) for each in names if each.startswith(KEPT))
    return [each for each in dict.fromkeys(targets) if each in cut][:_MOST_HELD]


def _cut(mirror: Path) -> set[str]:
    file = mirror / "shallow"
    return set(file.read_text().split()) if file.exists() else set()


def _keep(mirror: Path, wanted: Wanted) -> bool:
    """Mark the commit, if it came, and note that its history is cut off, which harms none without one."""
    repository = open_mirror(mirror)
    if wanted.commit not in repository:
        return False
    # Git's lock of this file.
    lock = mirror / "shallow.lock"
    with lock.open("x") as file:
        file.writelines(f"{each}\n" for each in sorted(_cut(mirror) | {wanted.commit}))
    lock.replace(mirror / "shallow")
    repository.references.create(wanted.kept, wanted.commit, force=True)
    return True
