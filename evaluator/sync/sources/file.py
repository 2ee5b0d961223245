"""A local file or folder of definitions: replaced by rename, rewritten in place, or a mounted ConfigMap."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.syntax.document import Format, format_of
from evaluator.sync.source import MAX_BYTES, UNCHANGED, Delivery, SourceFault
from evaluator.sync.sources.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from evaluator.sync.source import SourceEvent

POLL: Final = 1.0
"""Seconds between looks, as inotify does not report what other machines write to a shared file system."""
_SETTLE: Final = 0.02
"""Seconds after an event: a writer in place opens, truncates and writes."""
_LOOKS: Final = 2
"""Looks after a change that read again: a change within the clock's grain does not alter the times."""
_STILL: Final = 0.2
"""Seconds without a change before YAML written in place is taken: cut at a line's end it is valid, too."""
_FRESH: Final = 1.0
"""Age in seconds below which a file that is new to us may still be being written."""
_GRAIN: Final = 10_000_000
"""Nanoseconds: the resolution of a file's times. A rename changes the inode's time alone."""
_LONGEST_WRITING: Final = 5.0
"""Seconds after which a file that is still being written is a fault."""
_MAX_FILES: Final = 1_000
_TRIES: Final = 5

_FileMark: TypeAlias = tuple[str, int, int, int, int, int]
"""Name, device, inode, size, times in nanoseconds: of the content's last change, of the inode's."""
Mark: TypeAlias = tuple[_FileMark, ...]
"""Of all files. Another content has, as a rule, another mark."""


class FileSource:
    """Follows one path. Implements `SyncSource`."""

    def __init__(
        self, name: str, identity: str, path: Path, clock: Callable[[], float], *, watch: bool = True
    ) -> None:
        """Without `watch` the path is only looked at, once a second. `clock` is Unix seconds."""
        self.name = name
        self.identity = identity
        self._path = path
        self._clock = clock
        self._watch = watch
        self._mark: Mark | None = None
        self._unsettled: Mark | None = None
        """What was not taken at the last look: it may have been half written."""

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """What is there; a path that is not (any more) is a fault, and waited for."""
        watch = Watch(self._path)
        again, moved = 0, True
        try:
            while True:
                if self._watch and moved:
                    await watch.arm()
                before = self._mark
                event = await self._still(again > 0)
                again = _LOOKS if self._mark != before else max(0, again - 1)
                yield event
                moved = await watch.wait(POLL)
                if moved:
                    again = max(again, 1)
                    await asyncio.sleep(_SETTLE)
                moved = moved or isinstance(event, SourceFault)
        finally:
            watch.close()

    async def _still(self, read: bool) -> SourceEvent:
        """The content once it is not being written any more."""
        for _ in range(round(_LONGEST_WRITING / _STILL)):
            event = await asyncio.to_thread(self._look, read)
            if event is not None:
                return event
            await asyncio.sleep(_STILL)
        return self._changing()

    def _look(self, read: bool) -> SourceEvent | None:
        """None: look again, it may be half written."""
        try:
            mark = self._now()
            if mark == self._mark and not read:
                return UNCHANGED
            settled = self._settled(mark)
        except OSError as error:
            # Whatever comes back is read anew.
            self._mark = None
            return _fault(self.name, error)
        except SourceFault as fault:
            return fault
        if settled is None:
            return None
        self._mark, delivery = settled
        return delivery

    def _settled(self, mark: Mark) -> tuple[Mark, Delivery] | None:
        """What stayed the same while it was read; None where it may be half of what is meant."""
        for _ in range(_TRIES):
            if mark != self._unsettled and self._may_be_half(mark):
                self._unsettled = mark
                return None
            documents = self._read(mark)
            before, mark = mark, self._now()
            if mark == before:
                self._unsettled = None
                return mark, Delivery(documents)
        raise self._changing()

    def _may_be_half(self, mark: Mark) -> bool:
        """Whether YAML was changed that may still be written. Half of JSON is none."""
        known = {each[0]: each for each in self._mark or ()}
        return any(
            self._is_being_written(each, known.get(each[0]))
            for each in mark
            if format_of(each[0] or self._path.name) is Format.YAML
        )

    def _is_being_written(self, seen: _FileMark, held: _FileMark | None) -> bool:
        """Whether the file may be unfinished: a renamed file was whole before, a new one may be half."""
        if held is not None and (seen == held or seen[1:3] == held[1:3]):
            return seen != held
        *_, modified, changed = seen
        renamed = held is not None and changed - modified > _GRAIN
        return not renamed and abs(self._clock() - modified / 1e9) < _FRESH

    def _changing(self) -> SourceFault:
        return SourceFault("Changing", f"{self.name}: it changes too often to be read consistently")

    def _now(self) -> Mark:
        """Raises OSError where nothing is there."""
        status = self._path.stat()
        if not self._path.is_dir():
            return (self._marked("", status),)
        names = sorted(
            name for name in os.listdir(self._path) if format_of(name) and not name.startswith(".")
        )
        if len(names) > _MAX_FILES:
            raise SourceFault("TooLarge", f"{self.name}: its {len(names)} files are more than {_MAX_FILES}")
        return tuple(self._marked(name, (self._path / name).stat()) for name in names)

    def _marked(self, name: str, status: os.stat_result) -> _FileMark:
        """Raises SourceFault for what is not a file."""
        if not stat.S_ISREG(status.st_mode):
            where = f"{self.name}/{name}" if name else self.name
            raise SourceFault("NotAFile", f"{where}: {no_file(status)}")
        return _mark(name, status)

    def _read(self, mark: Mark) -> tuple[tuple[str, bytes], ...]:
        documents = []
        left = MAX_BYTES
        for name, *_ in mark:
            path = self._path / name if name else self._path
            with open(path, "rb", opener=_without_waiting) as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                raise SourceFault("TooLarge", f"{self.name}: it is more than {MAX_BYTES} bytes")
            documents.append((str(path), content))
        return tuple(documents)


def no_file(status: os.stat_result) -> str:
    """What to say of something that is neither a file nor a folder."""
    kind = "a FIFO" if stat.S_ISFIFO(status.st_mode) else "a socket or device"
    return f"it is {kind}, which cannot be followed; use a regular file or a folder"


def _without_waiting(path: str, flags: int) -> int:
    # Opening a FIFO would wait for its writer, and keep the process from ending.
    return os.open(path, flags | os.O_NONBLOCK)


def _mark(name: str, status: os.stat_result) -> _FileMark:
    times = status.st_mtime_ns, status.st_ctime_ns
    return name, status.st_dev, status.st_ino, status.st_size, *times


def _fault(name: str, error: OSError) -> SourceFault:
    if isinstance(error, FileNotFoundError):
        return SourceFault("NotFound", f"{name}: no such file or folder")
    return SourceFault("Unreadable", f"{name}: {error.strerror or type(error).__name__}")
