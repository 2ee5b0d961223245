"""Sends a file as a response: read in threads, piece by piece, and never held whole."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from evaluator.http.messages import ByteStream

PIECE: Final = 65_536
"""Bytes; besides one that waits, a transport holds as many."""


@dataclass(frozen=True, slots=True)
class Part:
    """What of a file is to be sent."""

    file: Path
    start: int
    length: int
    """Bytes, at least one."""
    digest: str = ""
    """`sha256:…` that a file sent whole must have; its last piece is not sent otherwise. Empty: any."""


class Sending:
    """One part into one body. All but the reading happens on the loop."""

    def __init__(self, part: Part, pool: Executor, ended: Callable[[bool], None]) -> None:
        """`ended` is called once: False if the file was not what it should be, or could not be read."""
        self._part = part
        self._pool = pool
        self._ended: Callable[[bool], None] | None = ended
        self._left = part.length
        self._hash = hashlib.sha256()
        self._source: BinaryIO | None = None
        self._reading: asyncio.Future[bytes] | None = None
        self._piece = b""
        """Read, and not sent yet."""

    def begin(self, body: ByteStream) -> None:
        """Send until all is sent, or the client is gone."""
        self._body = body
        body.on_writable = self._go_on
        body.on_closed = self._close
        self._go_on()

    def _go_on(self) -> None:
        if self._piece and self._body.writable:
            piece, self._piece = self._piece, b""
            self._body.send(piece)
        if not self._piece and self._reading is None and self._body.writable:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(self._pool, self._read)
            self._reading.add_done_callback(self._read_on)

    def _read(self) -> bytes:
        """The next piece. Raises OSError; ValueError where the file is short, or not what it should be."""
        if self._source is None:
            self._source = self._part.file.open("rb")
            self._source.seek(self._part.start)
        wanted = min(PIECE, self._left)
        piece = self._source.read(wanted)
        if len(piece) < wanted:
            raise ValueError("it ends too early")
        if self._part.digest:
            self._hash.update(piece)
            last = wanted == self._left
            if last and f"sha256:{self._hash.hexdigest()}" != self._part.digest:
                raise ValueError("it has another digest")
        return piece

    def _read_on(self, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        if self._body.closed or reading.cancelled():
            self._close()
        elif reading.exception() is not None:
            self._body.break_off()
            self._close(well=False)
        else:
            self._piece = reading.result()
            self._left -= len(self._piece)
            if self._left == 0:
                self._body.finish(self._piece)
                self._close()
            else:
                self._go_on()

    def _close(self, *, well: bool = True) -> None:
        if self._reading is not None:
            # The thread has the file; once it is done, this is called again.
            return
        if self._source is not None:
            self._source.close()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(well)
