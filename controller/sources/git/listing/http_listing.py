"""References over HTTP, listed in this process: one request, at a fraction of git's CPU time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from controller.sources.git.http.connections import FAILURES, LISTING, SERVICE, Connections
from controller.sources.git.http.packets import take_lines
from controller.sources.git.listing.names import HEADS, TAGS
from controller.sources.git.listing.reference import References, commits_of, tags_of

if TYPE_CHECKING:
    from controller.sources.git.programs.program import GitProgram

_MAX_BYTES: Final = 1024 * 1024
"""Of an answer. Larger remotes are asked by git, which has the server leave out what is not followed."""
_LONG: Final = 64 * 1024
"""Bytes; more than these are parsed in a thread."""


class HttpListing:
    """Asks remotes. Belongs to one event loop."""

    def __init__(self, connections: Connections | None = None) -> None:
        """`connections`: None for some of its own."""
        self.connections = connections or Connections()
        self._large: set[str] = set()
        """URLs of remotes whose answer was too long."""

    async def references(self, program: GitProgram, *, narrowed: bool) -> References | None:
        """The remote's references, if `narrowed` its branches and tags; None: ask git. Raises Setback."""
        if not self.connections.reach(program) or program.location.url in self._large:
            return None
        async with program.deadline.running():
            try:
                content = await self._get(program)
            except FAILURES:
                return None
        if content is None:
            return None
        try:
            if len(content) < _LONG:
                return parse_advertisement(content, narrowed=narrowed)
            return await asyncio.to_thread(parse_advertisement, content, narrowed=narrowed)
        except ValueError:
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self.connections.close()

    async def _get(self, program: GitProgram) -> bytes | None:
        async with self.connections.answer(program, LISTING) as answer:
            if answer is None:
                return None
            content = bytearray()
            async for chunk in answer.iter_any():
                content += chunk
                if len(content) > _MAX_BYTES:
                    self._large.add(program.location.url)
                    return None
            return bytes(content)


def parse_advertisement(content: bytes, *, narrowed: bool) -> References:
    """What `info/refs` answers (gitprotocol-http, protocol 0). Raises ValueError."""
    listed: list[tuple[str, str]] = []
    capabilities: list[str] = []
    left = bytearray(content)
    lines = take_lines(left)
    if next(lines, b"") != f"# service={SERVICE}\n".encode() or next(lines, b"") is not None:
        raise ValueError("the response is not that of a Git server")
    for number, line in enumerate(each for each in lines if each is not None):
        said, _, offered = line.rstrip(b"\n").partition(b"\0")
        value, _, name = said.decode("utf-8", "replace").partition(" ")
        if number == 0:
            capabilities = offered.decode("utf-8", "replace").split()
        # An empty repository has `capabilities^{}` in place of a reference.
        if name != "capabilities^{}" and (not narrowed or name.startswith((HEADS, TAGS))):
            listed.append((value, name))
    if left or not content.endswith(b"0000"):
        raise ValueError("the response is truncated")
    return References(commits_of(listed), _head(capabilities), tags_of(listed), frozenset(capabilities))


def _head(capabilities: list[str]) -> str | None:
    found = (each.removeprefix("symref=HEAD:") for each in capabilities if each.startswith("symref=HEAD:"))
    return next(found, None)
