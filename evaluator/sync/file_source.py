"""A local file or folder of definitions: replaced by rename, rewritten in place, or a mounted ConfigMap."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.document import Syntax, format_of
from evaluator.sync.schedule import DEFAULT_TIMING, SourceTiming
from evaluator.sync.source import MAX_BYTES, SUFFIX, UNCHANGED, UNVERIFIED, Delivery, SourceEvent, SourceFault
from evaluator.sync.watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from evaluator.sync.source import ContentVerifier

_SETTLE: Final = 0.02
"""Seconds after an event: a writer in place opens, truncates and writes."""
_REREADS: Final = 2
"""Polls after a change that read again: a change within the clock's resolution does not alter the times."""
_STILL: Final = 0.2
"""Seconds without a change before YAML written in place is read: cut at a line's end it is valid, too."""
_FRESH: Final = 1.0
"""Age in seconds below which a new file may still be incomplete."""
_GRAIN: Final = 10_000_000
"""Resolution of a file's times in nanoseconds. A rename changes only the inode's time."""
_MAX_FILES: Final = 1_000
_TRIES: Final = 5

_FileMark: TypeAlias = tuple[str, int, int, int, int, int]
"""Name, device, inode, size, times in nanoseconds: of the content's last change, of the inode's."""
Mark: TypeAlias = tuple[_FileMark, ...]
"""Marks of all files. A change of content nearly always changes the mark."""


class FileSource:
    """Follows one path. Implements `SyncSource`."""

    def __init__(
        self,
        name: str,
        identity: str,
        path: Path,
        clock: Callable[[], float],
        *,
        watch: bool = True,
        timing: SourceTiming = DEFAULT_TIMING,
    ) -> None:
        """watch: without it the path is only polled, once a second. clock: Unix seconds."""
        self.name = name
        self.identity = identity
        self._path = path
        self._clock = clock
        self._watch = watch
        self._timing = timing
        self.verifier: ContentVerifier | None = None
        """Judges each file by the signature beside it; None: everything is believed."""
        self._unverified: Mark | None = None
        """The mark that was not verified at the last look: its signature may come a moment later."""
        self._mark: Mark | None = None
        self._unsettled: Mark | None = None
        """The mark that was not read at the last poll: the file may have been incomplete."""

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the content at each change; yield a fault while the path is missing."""
        watch = FolderWatch(self._path)
        again, moved = 0, True
        try:
            while True:
                if self._watch and moved:
                    await watch.arm()
                before = self._mark
                event = await self._still(again > 0)
                again = _REREADS if self._mark != before else max(0, again - 1)
                yield event
                moved = await watch.wait(self._timing.poll)
                if moved:
                    again = max(again, 1)
                    await asyncio.sleep(_SETTLE)
                moved = moved or isinstance(event, SourceFault)
        finally:
            watch.close()

    async def _still(self, read: bool) -> SourceEvent:
        """Return the event of the content once the file no longer changes."""
        for _ in range(round(self._timing.longest_writing / _STILL)):
            event = await asyncio.to_thread(self.read_now, read)
            if event is not None:
                return event
            await asyncio.sleep(_STILL)
        return self._change_fault()

    def read_now(self, read: bool) -> SourceEvent | None:
        """Return the event of the present content; None if it may be incomplete. read: even if its mark is
        the same. Blocks.
        """
        mark: Mark | None = None
        try:
            mark = self._now()
            if mark == self._mark and not read:
                return UNCHANGED
            settled = self._read_settled(mark)
        except OSError as error:
            # Forget the mark, so that the file is read again when it returns.
            self._mark = None
            return _fault(self.name, error)
        except SourceFault as fault:
            if fault.reason == UNVERIFIED and mark != self._unverified:
                self._unverified = mark
                return None
            return fault
        if settled is None:
            return None
        self._mark, delivery = settled
        return delivery

    def _read_settled(self, mark: Mark) -> tuple[Mark, Delivery] | None:
        """Return (mark, content) that did not change during the read; None if it may be incomplete."""
        for _ in range(_TRIES):
            if mark != self._unsettled and self._may_be_half(mark):
                self._unsettled = mark
                return None
            documents, signatures = self._read(mark)
            before, mark = mark, self._now()
            if mark == before:
                self._unsettled = None
                if self.verifier is not None:
                    for name, content in documents:
                        self.verifier.require(name, content, signatures.get(name, b""))
                return mark, Delivery(documents)
        raise self._change_fault()

    def _may_be_half(self, mark: Mark) -> bool:
        """Return whether changed YAML may still be incomplete. Incomplete JSON is never valid."""
        known = {file_mark[0]: file_mark for file_mark in self._mark or ()}
        return any(
            self._is_being_written(file_mark, known.get(file_mark[0]))
            for file_mark in mark
            if format_of(file_mark[0] or self._path.name) is Syntax.YAML
        )

    def _is_being_written(self, seen: _FileMark, held: _FileMark | None) -> bool:
        """Return whether the file may be incomplete: a renamed file is complete, a new one may not be."""
        if held is not None and (seen == held or seen[1:3] == held[1:3]):
            return seen != held
        *_, modified, changed = seen
        renamed = held is not None and changed - modified > _GRAIN
        return not renamed and abs(self._clock() - modified / 1e9) < _FRESH

    def _change_fault(self) -> SourceFault:
        return SourceFault("Changing", f"{self.name}: it changes too often to be read consistently")

    def _now(self) -> Mark:
        """Return the mark of the path. Raises OSError if nothing is there."""
        status = self._path.stat()
        if not self._path.is_dir():
            return (self._mark_of_file("", status), *self._marks_of_signatures([""]))
        names = sorted(
            name for name in os.listdir(self._path) if format_of(name) and not name.startswith(".")
        )
        if len(names) > _MAX_FILES:
            raise SourceFault("TooLarge", f"{self.name}: its {len(names)} files are more than {_MAX_FILES}")
        marks = tuple(self._mark_of_file(name, (self._path / name).stat()) for name in names)
        return (*marks, *self._marks_of_signatures(names))

    def _marks_of_signatures(self, names: Iterable[str]) -> Iterator[_FileMark]:
        """Yield the marks of the signatures that are there, each with the name of its file and SUFFIX."""
        for name in names if self.verifier is not None else ():
            with contextlib.suppress(FileNotFoundError):
                yield self._mark_of_file(f"{name}{SUFFIX}", Path(f"{self._place(name)}{SUFFIX}").stat())

    def _place(self, name: str) -> Path:
        return self._path / name if name else self._path

    def _mark_of_file(self, name: str, status: os.stat_result) -> _FileMark:
        """Return the mark of a file. Raises SourceFault for anything else."""
        if not stat.S_ISREG(status.st_mode):
            where = f"{self.name}/{name}" if name else self.name
            raise SourceFault("NotAFile", f"{where}: {no_file(status)}")
        return _mark(name, status)

    def _read(self, mark: Mark) -> tuple[tuple[tuple[str, bytes], ...], dict[str, bytes]]:
        """Return (name, content) of each file, and the signatures by the names of their files."""
        documents, signatures = [], {}
        left = MAX_BYTES
        for name, *_ in mark:
            signed = name.removesuffix(SUFFIX)
            path = str(self._place(signed))
            with open(f"{path}{name[len(signed) :]}", "rb", opener=_open_nonblocking) as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                raise SourceFault("TooLarge", f"{self.name}: it is more than {MAX_BYTES} bytes")
            if signed == name:
                documents.append((path, content))
            else:
                signatures[path] = content
        return tuple(documents), signatures


def no_file(status: os.stat_result) -> str:
    """Return the fault of a path that is neither a file nor a folder."""
    kind = "a FIFO" if stat.S_ISFIFO(status.st_mode) else "a socket or device"
    return f"it is {kind}, which cannot be followed; use a regular file or a folder"


def _open_nonblocking(path: str, flags: int) -> int:
    # Opening a FIFO would block until there is a writer, and keep the process from ending.
    return os.open(path, flags | os.O_NONBLOCK)


def _mark(name: str, status: os.stat_result) -> _FileMark:
    times = status.st_mtime_ns, status.st_ctime_ns
    return name, status.st_dev, status.st_ino, status.st_size, *times


def _fault(name: str, error: OSError) -> SourceFault:
    if isinstance(error, FileNotFoundError):
        return SourceFault("NotFound", f"{name}: no such file or folder")
    return SourceFault("Unreadable", f"{name}: {error.strerror or type(error).__name__}")
