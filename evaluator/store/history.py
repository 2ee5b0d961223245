"""The last served versions on disk, and the recent rollouts of flags.

Recent rollouts are kept so that a late event counts for the arm that its user had.

Only definitions are kept, a bounded number of them, and in memory: no evaluation context.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.host import durable
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evaluator.flags.model import FlagSet
    from evaluator.resolving.compiled_flag import RolloutFlag
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store


log = logging.getLogger(__name__)

MOST: Final = 32
"""Most versions that are kept."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of all version files together, and never more than a quarter of what the volume could give."""
_SHARE: Final = 4
_MOST_WAITING: Final = 4
"""Most versions that wait to be written: each takes the memory of a flag set."""
RECOUNT_SECONDS: Final = 30.0
"""Seconds between two checks whether the volume has become smaller."""
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
    """A folder of versions. They take no room that last good sets need: none is written while one of those
    is `hold`, and a full volume `evict`s them. `record`, `find`, `hold` and `release` are called on the event
    loop.
    """

    def __init__(
        self,
        folder: Path,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        recount_seconds: float = RECOUNT_SECONDS,
    ) -> None:
        self._folder = folder
        self._recount_seconds = recount_seconds
        self._held: set[str] = set()
        self._changing = threading.Lock()
        self._left_out = ""
        """Why the last version was left out."""
        self._most, self._most_bytes = most, most_bytes
        self._versions: tuple[Version, ...] = ()
        """The oldest first."""
        self._waiting: deque[Snapshot] = deque(maxlen=_MOST_WAITING)
        self._woken = asyncio.Event()

    def load(self) -> None:
        """Find the versions of earlier processes. Blocks; raises OSError."""
        if not self._folder.is_dir():
            return
        durable.sweep(self._folder)
        named = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        versions = [
            Version(f"sha256:{name[2]}", int(name[1]) / 1000, path, path.stat().st_size)
            for name, path in named
            if name is not None
        ]
        self._versions = tuple(sorted(versions, key=lambda version: version.since))

    def find(self, at: str) -> Version | None:
        """Return the newest version with a digest (`sha256:` and at least 8 digits), or the version served at
        a time (RFC 3339). None if there is none. Raises InvalidInstantError.
        """
        if _DIGEST.fullmatch(at):
            candidates = (version for version in self._versions if version.digest.startswith(at))
        else:
            moment = instant(at)
            candidates = (version for version in self._versions if version.since <= moment)
        return max(candidates, key=lambda version: version.since, default=None)

    def record(self, snapshot: Snapshot) -> None:
        """Queue the flag set that is served from now on; `run` writes it."""
        self._waiting.append(snapshot)
        self._woken.set()

    def hold(self, source: str) -> None:
        """Write no version until the last good set of this source is saved."""
        self._held.add(source)

    def release(self, source: str) -> None:
        """The last good set of this source is saved."""
        self._held.discard(source)
        if not self._held:
            self._woken.set()

    def evict(self, size: int) -> bool:
        """Remove the oldest versions, of at least so many bytes if there are any; return whether there were.
        Blocks.
        """
        with self._changing:
            freed, before = 0, len(self._versions)
            while self._versions and freed < size:
                freed += self._versions[0].size
                self._remove_oldest()
            return len(self._versions) < before

    async def run(self) -> None:
        """Write recorded versions until cancelled; log and leave out those that cannot be written."""
        while True:
            try:
                async with asyncio.timeout(self._recount_seconds):
                    await self._woken.wait()
            except TimeoutError:
                await asyncio.to_thread(self._fit, 0)
            self._woken.clear()
            while self._waiting and not self._held:
                snapshot = self._waiting.popleft()
                try:
                    await asyncio.to_thread(self._add, snapshot)
                except (OSError, ValueError) as error:
                    self._leave_out(snapshot, str(error))
                else:
                    self._left_out = ""

    def _leave_out(self, snapshot: Snapshot, cause: str) -> None:
        level = logging.DEBUG if cause == self._left_out else logging.WARNING
        self._left_out = cause
        log.log(level, "%s: the version %s is not kept: %s", self._folder, snapshot.digest, cause)

    def _add(self, snapshot: Snapshot) -> None:
        newest = self._versions[-1] if self._versions else None
        if newest is not None and newest.digest == snapshot.digest:
            return
        since = snapshot.served_since
        content = encode(Saved(snapshot.flag_set, datetime.fromtimestamp(since, UTC)))
        durable.make_folder(self._folder)
        if not self._fit(len(content)):
            raise ValueError("it would take more than a quarter of the room that the volume has left")
        path = self._folder / f"{int(since * 1000):015d}-{snapshot.digest.removeprefix('sha256:')}.version"
        durable.write_file(path, content)
        added = Version(snapshot.digest, int(since * 1000) / 1000, path, len(content))
        with self._changing:
            self._versions = (*self._versions, added)

    def _fit(self, size: int) -> bool:
        """Remove the oldest versions until another of so many bytes may be added; return whether it may."""
        with self._changing:
            while self._versions and not self._fits(size):
                self._remove_oldest()
            return self._fits(size)

    def _fits(self, size: int) -> bool:
        kept = sum(version.size for version in self._versions)
        try:
            most = min(self._most_bytes, (durable.free_bytes(self._folder) + kept) // _SHARE)
        except OSError:
            most = self._most_bytes
        return kept + size <= most and len(self._versions) + (size > 0) <= self._most

    def _remove_oldest(self) -> None:
        oldest, *later = self._versions
        self._versions = tuple(later)
        with contextlib.suppress(OSError):
            oldest.path.unlink(missing_ok=True)


def instant(text: str) -> float:
    """Unix seconds of an RFC 3339 time. Raises InvalidInstantError."""
    moment = parse_time(text)
    if moment is None:
        raise InvalidInstantError(
            "at must be a digest (sha256:…, at least 8 digits) or a time with its zone, "
            "such as 2026-01-02T03:04:05Z"
        )
    return moment.timestamp()


KEPT_SECONDS: Final = 3600.0
"""Seconds for which a flag that was served is kept."""
LATE_SECONDS: Final = 300.0
"""Seconds after the end of a rollout in which an event without a time counts for its last step."""
MOST_STATES: Final = 8
"""Most definitions that are kept of a flag."""
MOST_FLAGS: Final = 1_000
"""Most flags of which earlier definitions are kept."""


@dataclass(slots=True)
class _Served:
    """A flag in a rollout, and when it was served; Unix seconds."""

    flag: RolloutFlag
    since: float
    until: float | None = None


class RolloutHistory:
    """The flags in rollouts that a store has served lately."""

    def __init__(self, store: Store) -> None:
        self._served: dict[str, deque[_Served]] = {}
        self.close: Callable[[], None] = store.subscribe(self._record)

    def keys(self, snapshot: Snapshot) -> list[str]:
        """Return the keys of a snapshot's flags that are in a rollout, or were in one lately."""
        current, flags = snapshot.compiled.in_rollouts, snapshot.flag_set.flags
        return [*current, *(key for key in self._served if key not in current and key in flags)]

    def flag_at(
        self, snapshot: Snapshot, key: str, moment: float | None, *, now: float
    ) -> RolloutFlag | None:
        """Return a flag as it was in its rollout at a moment, Unix seconds; None if it was in none, or that
        is not known any more. Without a moment: as in `snapshot`, or as in a rollout that ended a moment ago.
        """
        current = snapshot.compiled.in_rollouts.get(key)
        if current is not None and (moment is None or moment >= snapshot.served_since):
            return current
        moment = now if moment is None else moment
        for state in reversed(self._served.get(key, ())):
            if state.since <= moment:
                in_time = state.until is None or moment < state.until + LATE_SECONDS
                return state.flag if in_time else None
        return None

    def revisions(self, key: str) -> set[str]:
        """Return the digests of the candidates that are kept of a flag."""
        return {state.flag.revision for state in self._served.get(key, ())}

    def _record(self, snapshot: Snapshot) -> None:
        now, current = snapshot.served_since, snapshot.compiled.in_rollouts
        for key, states in list(self._served.items()):
            newest, flag = states[-1], current.get(key)
            if newest.until is None and (flag is None or flag.flag != newest.flag.flag):
                newest.until = now
            while states and states[0].until is not None and states[0].until < now - KEPT_SECONDS:
                states.popleft()
            if not states:
                del self._served[key]
        for key, flag in current.items():
            if key not in self._served and len(self._served) >= MOST_FLAGS:
                continue
            states = self._served.setdefault(key, deque(maxlen=MOST_STATES))
            if not states or states[-1].until is not None:
                states.append(_Served(flag, now))
