"""Keeps the last served versions on disk, so that a flag's value at a past instant can be explained."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.host import durable

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.flags.model import FlagSet
    from evaluator.store.snapshot import Snapshot

log = logging.getLogger(__name__)

MOST: Final = 32
"""Most versions that are kept."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of all version files together."""
_NAME: Final = re.compile(r"(\d{15})-([0-9a-f]{64})\.version")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{8,64})")


class InvalidInstantError(ValueError):
    """The text is neither a digest nor a time; the message names the accepted forms."""


@dataclass(frozen=True, slots=True)
class Version:
    """A flag set that was served, identified by its digest."""

    digest: str
    """`sha256:<hex>`."""
    since: float
    """Unix seconds from which it was served."""
    path: Path
    size: int
    """Bytes on disk."""

    def read(self) -> FlagSet:
        """The flag set. Blocks; raises OSError, and ValueError for a damaged file."""
        return decode(durable.read_file(self.path, MAX_BYTES)).flag_set


class History:
    """A folder of versions. `record` and `find` are called on the event loop."""

    def __init__(self, folder: Path, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most, self._most_bytes = most, most_bytes
        self._versions: tuple[Version, ...] = ()
        """The oldest first."""
        self._waiting: deque[Snapshot] = deque(maxlen=most)
        self._woken = asyncio.Event()

    def load(self) -> None:
        """Find the versions of earlier processes. Blocks; raises OSError."""
        if not self._folder.is_dir():
            return
        durable.sweep(self._folder)
        named = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        found = [
            Version(f"sha256:{name[2]}", int(name[1]) / 1000, path, path.stat().st_size)
            for name, path in named
            if name is not None
        ]
        self._versions = tuple(sorted(found, key=lambda each: each.since))

    def find(self, at: str) -> Version | None:
        """Return the newest version with a digest (`sha256:` and at least 8 digits), or the version served at
        a time (RFC 3339). None if there is none. Raises InvalidInstantError.
        """
        if _DIGEST.fullmatch(at):
            found = (each for each in self._versions if each.digest.startswith(at))
        else:
            moment = instant(at)
            found = (each for each in self._versions if each.since <= moment)
        return max(found, key=lambda each: each.since, default=None)

    def record(self, snapshot: Snapshot) -> None:
        """Queue the flag set that is served from now on; `run` writes it."""
        self._waiting.append(snapshot)
        self._woken.set()

    async def run(self) -> None:
        """Write recorded versions until cancelled; log and leave out those that cannot be written."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                snapshot = self._waiting.popleft()
                try:
                    await asyncio.to_thread(self._add, snapshot)
                except (OSError, ValueError) as error:
                    log.warning("%s: the version %s is not kept: %s", self._folder, snapshot.digest, error)

    def _add(self, snapshot: Snapshot) -> None:
        newest = self._versions[-1] if self._versions else None
        if newest is not None and newest.digest == snapshot.digest:
            return
        since = snapshot.served_since
        content = encode(Saved(snapshot.flag_set, datetime.fromtimestamp(since, UTC)))
        if len(content) > self._most_bytes:
            raise ValueError(f"its {len(content)} bytes are more than {self._most_bytes}")
        path = self._folder / f"{int(since * 1000):015d}-{snapshot.digest.removeprefix('sha256:')}.version"
        durable.save(path, content)
        versions = [*self._versions, Version(snapshot.digest, int(since * 1000) / 1000, path, len(content))]
        while len(versions) > self._most or sum(each.size for each in versions) > self._most_bytes:
            versions.pop(0).path.unlink(missing_ok=True)
        self._versions = tuple(versions)


def instant(text: str) -> float:
    """Unix seconds of an RFC 3339 time. Raises InvalidInstantError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInstantError(
            "at must be a digest (sha256:…, at least 8 digits) or a time with its zone, "
            "such as 2026-01-02T03:04:05Z"
        )
    return moment.timestamp()
