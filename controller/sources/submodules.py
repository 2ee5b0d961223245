"""The submodules of a commit: of the parent's host alone, at the commits that it records, and bounded."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from posixpath import join, normpath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.addresses import Location, parse_location
from controller.api.parsing import InvalidTextError
from controller.runtime.limited_child import ProcessLimits, run
from controller.runtime.plain_text import one_line
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.backend import Fetched, Revision, TreeLimits
from controller.sources.git_commits import Checkout, CommitReader, skipped_submodule
from controller.sources.git_credentials import LIMIT
from controller.sources.git_program import environment
from controller.sources.git_references import Reference

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.mirror import Mirror, SourceShare

FILE: Final = ".gitmodules"
_LONGEST_FILE: Final = 65_536
_NAMES: Final = r"^submodule\..*\.(path|url)$"
_NO_MATCH: Final = 1
_SECONDS: Final = 5.0
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class SubmoduleLimits:
    """Limits on the submodules of one commit."""

    most: int = 20
    """Submodules, those of submodules counted."""
    deepest: int = 4
    """Submodules within submodules."""


@dataclass(slots=True)
class SubmoduleReader:
    """Writes the submodules of one fetched commit below its files."""

    root: Path
    mirror: Mirror
    """That of the parent, whose credentials are used for all."""
    reader: CommitReader
    limits: TreeLimits
    """Of the commit and all of its submodules together."""
    submodule_limits: SubmoduleLimits
    share: SourceShare | None = None
    used: set[Path] = field(default_factory=set, init=False)
    """The mirrors that were read."""
    _count: int = field(default=0, init=False)

    async def read(self, parent: Location, fetched: Fetched, within: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Write the submodules of `fetched`, which is of `parent` and below the folders `within`. Returns
        what was left out of it and of them, as `Fetched.skipped` has it. Raises Setback, which names the
        submodule.
        """
        depth = "/".join(within)
        read = {skipped_submodule(path) for path, _ in fetched.submodules}
        skipped = [f"{depth}/{entry}".lstrip("/") for entry in fetched.skipped if entry not in read]
        if not fetched.submodules:
            return tuple(skipped)
        if len(within) >= self.submodule_limits.deepest:
            raise Stalled(
                LIMIT,
                f"{_shorten(depth)}: more than {self.submodule_limits.deepest} submodules within each other",
            )
        urls = await _urls(self.root.joinpath(*within) / FILE, parent, depth)
        for path, commit in fetched.submodules:
            self._count += 1
            if self._count > self.submodule_limits.most:
                raise Stalled(LIMIT, f"{parent.shown}: more than {self.submodule_limits.most} submodules")
            inner = (*within, path)
            location = _location(parent, urls.get(path, ""), "/".join(inner))
            skipped += await self.read(location, await self._read_one(location, commit, inner), inner)
        return tuple(skipped)

    async def _read_one(self, location: Location, commit: str, within: tuple[str, ...]) -> Fetched:
        folder = self.root.joinpath(*within)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        mirror = replace(self.mirror, program=replace(self.mirror.program, location=location))
        self.used.add(mirror.path)
        if self.share is not None:
            self.share.add_mirror(mirror.path)
        checkout = Checkout(
            Revision("", f"sha1:{commit}"), folder, await asyncio.to_thread(self._remaining_limits)
        )
        try:
            return await mirror.read(Reference(commit=commit), checkout, self.reader)
        except Setback as setback:
            message = f"submodule {_shorten('/'.join(within))}: {setback.message}"
            raise type(setback)(setback.reason, message, delay=setback.delay) from setback

    def _remaining_limits(self) -> TreeLimits:
        entries = size = 0
        for folder, folders, files in os.walk(self.root):
            entries += len(folders) + len(files)
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
        return replace(
            self.limits,
            entries=max(self.limits.entries - entries, 0),
            total_bytes=max(self.limits.total_bytes - size, 0),
        )


def _location(parent: Location, url: str, path: str) -> Location:
    """Where a submodule is. Raises Stalled for any place but the parent's host, reached as the parent is."""
    title = f"submodule {_shorten(path)}"
    if not url:
        raise Stalled("SubmoduleRefused", f"{title}: {FILE} has no URL for it")
    if url.startswith(("./", "../")):
        parts = urlsplit(parent.url)
        url = f"{parts.scheme}://{parts.netloc}{normpath(join(parts.path, url))}"
    try:
        location = parse_location(url)
    except InvalidTextError as error:
        raise Stalled("SubmoduleRefused", f"{title}: {error}") from None
    if location.path is None and (location.transport, location.server) == (parent.transport, parent.server):
        return location
    host = (
        "this machine" if location.path is not None else f"{location.transport.value}://{location.server[0]}"
    )
    message = (
        f"{title} is on {_shorten(host)}: only those of {parent.origin} are read; "
        f"give it a relative URL in {FILE}, or leave spec.git.recurseSubmodules out"
    )
    raise Stalled("SubmoduleRefused", message)


async def _urls(file: Path, parent: Location, depth: str) -> dict[str, str]:
    """By path. git reads its own format, without what it would include of other files."""
    length = await asyncio.to_thread(lambda: file.stat().st_size if file.is_file() else 0)
    if not length:
        return {}
    title = f"{parent.shown}: {_shorten(f'{depth}/{FILE}'.lstrip('/'))}"
    if length > _LONGEST_FILE:
        raise Stalled(LIMIT, f"{title}: longer than {_LONGEST_FILE} bytes")
    command = ("git", "config", "--no-includes", "-z", "--file", str(file), "--get-regexp", _NAMES)
    try:
        ended = await run(command, environment(parent, None, None), ProcessLimits(), _SECONDS)
    except OSError as error:
        raise Failed("StorageOperationFailed", f"{title}: git could not be started: {error}") from error
    if ended.status not in {0, _NO_MATCH}:
        raise Stalled("SubmoduleRefused", f"{title}: git cannot read it")
    entries: dict[str, dict[str, str]] = {}
    for entry in ended.output.decode("utf-8", "replace").split("\0"):
        key, _, value = entry.partition("\n")
        name, _, kind = key.rpartition(".")
        entries.setdefault(name, {})[kind] = value
    return {fields["path"]: fields["url"] for fields in entries.values() if {"path", "url"} <= fields.keys()}


def _shorten(text: str) -> str:
    """Return a text of a commit as it may be shown."""
    return one_line(text, _LONGEST_TEXT)
