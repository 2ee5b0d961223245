"""Opens messages of OpenPGP in a process of their own: one may unpack to a thousand times its size.

`one_process` has a build use one such process for all of its documents, with one limit of CPU time and one
deadline for all of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final

from controller.runtime import helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COMMAND: Final = f"from controller.runtime.helper import main; main({[__name__]!r})"
_MEMORY_BYTES: Final = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class PgpLimits:
    """What the messages of one build may cost together."""

    cpu_seconds: float = 10.0
    """Of all processes, their starts included."""
    seconds: float = 60.0
    """By the clock: a machine under load may need that long for the CPU time."""


@dataclass(slots=True)
class PgpProcess:
    """Opens messages, in a process that is started for the first one, and again if it ends."""

    limits: PgpLimits = PgpLimits()
    started: int = 0
    """How many processes were started."""
    cpu_seconds: float = 0.0
    """CPU time that was used, as far as it is known."""
    _until: float = field(default_factory=lambda: math.inf)
    _child: subprocess.Popen[bytes] | None = None
    _child_seconds: float = 0.0
    """CPU time of the present process, a part of `cpu_seconds`."""

    def open(self, keys: Sequence[bytes], messages: Sequence[bytes], size: int) -> bytes | None:
        """Return the first content of `size` bytes that a key opens; None: there is none, or a limit is
        reached. Waits for the process.
        """
        self._until = min(self._until, time.monotonic() + self.limits.seconds)
        left = self.limits.cpu_seconds - self.cpu_seconds
        rest = self._until - time.monotonic()
        if left <= 0 or rest <= 0:
            return None
        child = self._child or self._start()
        timer = threading.Timer(rest, _kill, (child,))
        timer.start()
        try:
            limits = helper.TaskLimits(memory_bytes=_MEMORY_BYTES, cpu_seconds=left, file_bytes=0)
            kind, value = _call(child, (limits, decrypt_counted, (tuple(keys), messages, size)))
        except (EOFError, OSError):
            # A library in Rust that is refused memory ends its process.
            kind, value = None, None
        finally:
            timer.cancel()
        if kind != helper.RETURNED:
            self.close()
            return None
        content, seconds = value
        self._count(seconds)
        return content  # type: ignore[no-any-return]  # by the signature of `decrypt_counted`

    def close(self) -> None:
        """End the process, if there is one."""
        child, self._child = self._child, None
        if child is None:
            return
        _kill(child)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                _of(pipe).close()
        self._count(usage.ru_utime + usage.ru_stime)
        self._child_seconds = 0.0

    def _start(self) -> subprocess.Popen[bytes]:
        child = self._child = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The library hangs where an error of its own has no memory left for a backtrace.
            env={**os.environ, "MALLOC_ARENA_MAX": "1", "RUST_BACKTRACE": "0", "RUST_LIB_BACKTRACE": "0"},
        )
        self.started += 1
        return child

    def _count(self, seconds: float) -> None:
        """Count the CPU time of the present process, also as that of this one if it has a limit."""
        used = max(0.0, seconds - self._child_seconds)
        before = math.floor(self.cpu_seconds)
        self.cpu_seconds += used
        self._child_seconds += used
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if soft != resource.RLIM_INFINITY:
            less = max(1, soft - (math.floor(self.cpu_seconds) - before))
            resource.setrlimit(resource.RLIMIT_CPU, (less, hard))


def _kill(child: subprocess.Popen[bytes]) -> None:
    # Not `child.kill`, which collects a process that has ended, and with it the CPU time that it used.
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


_SHARED: ContextVar[PgpProcess | None] = ContextVar("the process of a build", default=None)


@contextlib.contextmanager
def one_process(limits: PgpLimits = PgpLimits()) -> Iterator[PgpProcess]:
    """Have all messages that the block opens share one process, which ends with the block."""
    process = PgpProcess(limits)
    token = _SHARED.set(process)
    try:
        yield process
    finally:
        _SHARED.reset(token)
        process.close()


def open_message(keys: Sequence[bytes], messages: Sequence[bytes], size: int) -> bytes | None:
    """Return the first content of `size` bytes that a key opens, or None. Starts a process where no block of
    `one_process` has one, and waits for it.
    """
    shared = _SHARED.get()
    if shared is not None:
        return shared.open(keys, messages, size)
    with one_process() as process:
        return process.open(keys, messages, size)


def decrypt_counted(
    keys: tuple[bytes, ...], messages: Sequence[bytes], size: int
) -> tuple[bytes | None, float]:
    """Do in this process what `open_message` does: (content, CPU seconds of the process so far)."""
    return _decrypt(keys, messages, size), time.process_time()


def _decrypt(keys: tuple[bytes, ...], messages: Sequence[bytes], size: int) -> bytes | None:
    import pysequoia  # noqa: PLC0415

    for message in messages:
        for decryptor in _decryptors(keys):
            try:
                content = pysequoia.decrypt(message, decryptor=decryptor).bytes
            except RuntimeError:
                continue
            if content is not None and len(content) == size:
                return content
    return None


@cache
def _decryptors(keys: tuple[bytes, ...]) -> list[Any]:
    import pysequoia  # noqa: PLC0415

    return [pysequoia.Tsk.from_bytes(key).decryptor() for key in keys]


def _call(child: subprocess.Popen[bytes], request: tuple[Any, ...]) -> tuple[str, Any]:
    """Raises EOFError or OSError if the process ends."""
    content = pickle.dumps(request)
    requests, replies = _of(child.stdin), _of(child.stdout)
    requests.write(len(content).to_bytes(8, "big") + content)
    requests.flush()
    size = int.from_bytes(_read(replies, 8), "big")
    kind, value = pickle.loads(_read(replies, size))  # noqa: S301 - of our own child
    return str(kind), value


def _read(replies: IO[bytes], size: int) -> bytes:
    content = replies.read(size)
    if len(content) < size:
        raise EOFError
    return content


def _of(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("a process was started without pipes")
    return pipe
