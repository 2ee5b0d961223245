"""A child process with limits of memory, CPU time and file size, which ends with its caller."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, TYPE_CHECKING, Any, Final

from evaluator.host.threads import FairThreads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

MAX_COMPLAINT: Final = 4096
"""Bytes of standard error that are kept; the last ones, since the cause comes last."""
NOT_FOUND: Final = 127
"""The exit status where the program is not installed."""
_GONE_SECONDS: Final = 5.0
"""Seconds until a process group that was killed must have ended."""
_THREADS: Final = FairThreads(32, resource="programs")
"""For starts and ends, so that neither waits for whatever else is done in threads."""
_LIMITED: Final = (
    'ulimit -v "$1" && ulimit -St "$2" && ulimit -Ht "$(($2 + 1))" && ulimit -f "$3" && shift 3 && exec "$@"'
)
"""A shell sets the limits: in a `preexec_fn` they would cost a copy of our page tables for each child. The
hard limit of CPU time is the later one: where both are the same the kernel kills, and no signal names the
cause.
"""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one child, and of each child of its own."""

    memory_bytes: int = 512 * 1024**2
    """Most bytes of address space."""
    file_bytes: int = 256 * 1024**2
    """Most bytes of each file that it writes."""
    output_bytes: int = 16 * 1024**2
    """Most bytes of standard output."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended."""

    status: int
    """Its exit status; negative: the signal that ended it."""
    output: bytes
    complaint: str
    """The last lines of standard error, whole ones alone: a cut one could show half of a secret."""


class TooMuchOutputError(Exception):
    """The child was ended since it wrote more than `output_bytes`."""


async def run(
    program: Sequence[str],
    environment: Mapping[str, str],
    limits: ProcessLimits,
    seconds: float,
    threads: ThreadPoolExecutor = _THREADS,
) -> ChildResult:
    """Run `program` in the root folder until it ends. It is killed, with its children, if the caller is
    cancelled.

    `seconds` limits CPU time, for a child that outlives us. `threads` start it and wait for its end. Raises
    TooMuchOutputError; OSError if the child cannot be started.
    """
    child = await _start(_shell_of(program, limits, seconds), environment, threads)
    try:
        output, complaint = await _outputs(child, limits.output_bytes)
        return ChildResult(await asyncio.wrap_future(threads.submit(child.wait)), output, complaint)
    finally:
        # Cancelled early, one of them has no reader that closes it.
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
        if child.returncode is None:
            _kill(child)
            await _wait_for_end(child.wait, threads)


def run_blocking(
    program: Sequence[str],
    environment: Mapping[str, str],
    limits: ProcessLimits,
    seconds: float,
    given: bytes,
) -> ChildResult:
    """Run `program` with `given` on its standard input until it ends, for threads and helpers. Raises OSError
    if it cannot be started, TimeoutError if it takes longer than `seconds`.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - our own command, and no shell reads its arguments
            _shell_of(program, limits, seconds), input=given, capture_output=True, cwd="/", env=environment,
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{program[0]} did not end within {seconds:g} seconds") from None
    complaint = ended.stderr[-MAX_COMPLAINT:].decode("utf-8", "replace")
    return ChildResult(ended.returncode, ended.stdout[: limits.output_bytes], complaint)


def _shell_of(program: Sequence[str], limits: ProcessLimits, seconds: float) -> tuple[str, ...]:
    """Return the command of a shell that sets the limits and becomes `program`."""
    ceilings = (limits.memory_bytes // 1024, math.ceil(seconds) + 1, limits.file_bytes // 512)
    return ("/bin/sh", "-c", _LIMITED, "limited", *map(str, ceilings), *program)


async def _start(
    command: Sequence[str], environment: Mapping[str, str], threads: ThreadPoolExecutor
) -> Popen[bytes]:
    """Started in a thread: the loop's own way copies our page tables, and held the loop for 80 ms."""

    def start() -> Popen[bytes]:
        return Popen(  # noqa: S603 - our own command, and no shell reads its arguments
            command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd="/", env=environment, start_new_session=True
        )  # fmt: skip

    starting = threads.submit(start)
    try:
        return await asyncio.wrap_future(starting)
    except asyncio.CancelledError:
        if not starting.cancel():
            await _wait_for_end(partial(_end, starting), threads)
        raise


def _end(starting: Future[Popen[bytes]]) -> None:
    with contextlib.suppress(OSError):
        child = starting.result()
        _kill(child)
        child.communicate()


async def _wait_for_end(ending: Callable[[], object], threads: ThreadPoolExecutor) -> None:
    """Wait until `ending` is done. It continues in its thread after a timeout or a cancellation."""
    await asyncio.wait([asyncio.wrap_future(threads.submit(ending))], timeout=_GONE_SECONDS)


def _kill(child: Popen[bytes]) -> None:
    # Its group: git's transport runs in children, and ssh in theirs.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


async def _outputs(child: Popen[bytes], most: int) -> tuple[bytes, str]:
    """Return all of standard output, and the end of standard error."""
    async with _reader(child.stdout) as said, _reader(child.stderr) as complained:
        output = asyncio.create_task(_read(said, most))
        complaint = asyncio.create_task(_read_end(complained))
        try:
            return await asyncio.gather(output, complaint)
        except BaseException:
            _kill(child)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GONE_SECONDS):
                    await _cancel(output, complaint)
                    # All of its group have gone once no process holds these open.
                    await asyncio.gather(_discard(said), _discard(complained))
            raise


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass


@contextlib.asynccontextmanager
async def _reader(pipe: IO[bytes] | None) -> AsyncIterator[asyncio.StreamReader]:
    """Open a reader of a child's pipe, and close the pipe at the block's end."""
    reader, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
    try:
        yield reader
    finally:
        transport.close()


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    output = bytearray()
    while chunk := await stream.read(65_536):
        output += chunk
        if len(output) > most:
            raise TooMuchOutputError
    return bytes(output)


async def _read_end(stream: asyncio.StreamReader) -> str:
    complaint, cut = b"", False
    while chunk := await stream.read(65_536):
        complaint += chunk
        cut = cut or len(complaint) > MAX_COMPLAINT
        complaint = complaint[-MAX_COMPLAINT:]
    if cut:
        complaint = complaint.partition(b"\n")[2]
    return complaint.decode("utf-8", "replace")
