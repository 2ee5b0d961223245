"""A child process with limits of memory, CPU time and file size, in a process group that ends with its
caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_COMPLAINT: Final = 4096
"""Bytes of standard error that are kept; the last ones, since the cause comes last."""
NOT_FOUND: Final = 127
"""The exit status where the program is not installed."""
_LIMITED: Final = (
    'ulimit -v "$1" && ulimit -St "$2" && ulimit -Ht "$(($2 + 1))" && ulimit -f "$3" && shift 3 && exec "$@"'
)
"""A shell sets the limits: in a `preexec_fn` they would cost a copy of our page tables for each child. The
hard limit of CPU time is the later one: where both are the same the kernel kills, and no signal names the
cause.
"""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one child, and each child of its own, may use."""

    memory_bytes: int = 512 * 1024**2
    """Of address space."""
    file_bytes: int = 256 * 1024**2
    """Of any file that it writes."""
    output_bytes: int = 16 * 1024**2
    """Of standard output."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    status: int
    """Its exit status; negative: the signal that ended it."""
    output: bytes
    complaint: str
    """The last lines of standard error; a line that was cut is left out, as it could show half of a secret.
    """


class TooMuchOutputError(Exception):
    """The child was ended since it wrote more than `output_bytes`."""


async def run(
    program: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits, seconds: float
) -> Ended:
    """Run `program` in the root folder until it ends. It is killed, with its children, if the caller is
    cancelled.

    `seconds` limits CPU time, for a child that outlives us. Raises TooMuchOutputError; OSError if the child
    cannot be started.
    """
    ceilings = (limits.memory_bytes // 1024, math.ceil(seconds) + 1, limits.file_bytes // 512)
    child = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _LIMITED, "limited", *map(str, ceilings), *program),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=environment,
        start_new_session=True,
    )
    if child.stdout is None or child.stderr is None:
        raise RuntimeError("a child was started without pipes")
    try:
        output, complaint = await asyncio.gather(
            _read(child.stdout, limits.output_bytes), _read_end(child.stderr)
        )
        status = await child.wait()
    finally:
        if child.returncode is None:
            # Its group: git's transport runs in children, and ssh in theirs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
    return Ended(status, output, complaint)


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    found = bytearray()
    while chunk := await stream.read(65_536):
        found += chunk
        if len(found) > most:
            raise TooMuchOutputError
    return bytes(found)


async def _read_end(stream: asyncio.StreamReader) -> str:
    found, cut = b"", False
    while chunk := await stream.read(65_536):
        found += chunk
        cut = cut or len(found) > MAX_COMPLAINT
        found = found[-MAX_COMPLAINT:]
    if cut:
        found = found.partition(b"\n")[2]
    return found.decode("utf-8", "replace")
