"""Warm helper processes, for tasks that need much memory or CPU time and for large texts that others wrote.

A task has limits of memory, CPU time and file size. A helper that exceeds one is replaced; nothing else is
affected.

What others wrote is read in a thread where it is little, else in a helper.

Bytes that are few to store may be many to read, and some calls of the interpreter end only with their input,
so that a thread of this process would hold all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from controller.runtime import helper
from controller.runtime.helper import TaskLimits
from controller.runtime.setbacks import Failed, Stalled

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from controller.runtime.limits import Places


T = TypeVar("T")

_MAX_REPLY: Final = 256 * 1024**2
"""Bytes."""
_LONG: Final = 65_536
"""Bytes from which on a reply is read in a thread."""
_NOTHING: Final = pickle.dumps((helper.TaskLimits(), bool, ()))
"""An empty task, which a process answers once its modules are loaded."""
_COMMAND: Final = "from controller.runtime.helper import main; main({!r})"


class LimitExceededError(Exception):
    """A task exceeded one of its limits."""

    def __init__(self, limit: str) -> None:
        """`limit`: `memory` or `CPU time`."""
        super().__init__(limit)
        self.limit = limit


class HelperLostError(Exception):
    """A helper ended during a task, not by CPU or memory limits; the message has the cause."""


@dataclass(frozen=True, slots=True)
class _Process:
    child: asyncio.subprocess.Process
    requests: asyncio.StreamWriter
    replies: asyncio.StreamReader

    async def call(self, request: bytes) -> tuple[str, Any]:
        """Return the reply. Raises IncompleteReadError or ConnectionError if the process ends."""
        self.requests.write(len(request).to_bytes(8, "big") + request)
        await self.requests.drain()
        size = int.from_bytes(await self.replies.readexactly(8), "big")
        if size > _MAX_REPLY:
            raise HelperLostError(f"its reply has {size} bytes, more than {_MAX_REPLY}")
        content = await self.replies.readexactly(size)
        reply = await asyncio.to_thread(_read_reply, content) if size > _LONG else _read_reply(content)
        return str(reply[0]), reply[1]

    async def end(self) -> int:
        """End it; return its exit status, negative: a signal."""
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        return await self.child.wait()


class _Pieces(io.BytesIO):
    """Read and written by calls of Python: between two of them, the thread gives way to the event loop."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(buffer)

    def write(self, content: Any, /) -> int:
        return super().write(content)


def pack(limits: TaskLimits, function: Callable[..., Any], /, *arguments: Any) -> bytes:
    """Return the request for a task. Takes as long as the arguments are large."""
    content = _Pieces()
    pickle.Pickler(content).dump((limits, function, arguments))
    return content.getvalue()


def _read_reply(content: bytes) -> tuple[Any, ...]:
    reply: tuple[Any, ...] = pickle.Unpickler(_Pieces(content)).load()  # noqa: S301 - our own child
    return reply


class Helpers:
    """Helper processes, started on demand and kept: one for each task at a time, so that whoever gives tasks
    bounds the processes by Places. Belongs to one event loop.
    """

    def __init__(self, modules: Sequence[str] = (), *, without: re.Pattern[str] | None = None) -> None:
        """`modules` are imported by each process at its start; a variable of the environment whose name is
        `without` is not given to it.
        """
        self._modules = tuple(modules)
        self._without = without
        self._idle: list[_Process] = []
        self._starting: list[asyncio.Task[_Process]] = []
        """Process starts whose caller no longer waits."""
        self._all: set[_Process] = set()
        self.started = 0
        """Processes that were started so far."""

    async def run(self, limits: TaskLimits, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return or raise the result of `function` of a module, which must be picklable.

        The process is killed if the caller is cancelled, unless it is still starting. Raises
        LimitExceededError, HelperLostError.
        """
        reply: T = await self.send(await asyncio.to_thread(pack, limits, function, *arguments))
        return reply

    async def send(self, request: bytes) -> Any:
        """See `run`; `request`: of `pack`."""
        process = self._idle.pop() if self._idle else await self._take_process()
        kind, value = await self._call(process, request)
        if kind == helper.RETURNED:
            return value
        if kind == helper.LIMIT:
            raise LimitExceededError(str(value))
        raise value

    @property
    def idle(self) -> int:
        """How many processes wait for a task."""
        return len(self._idle)

    async def close(self) -> None:
        """End all processes."""
        for starting in self._starting:
            starting.cancel()
        # What one of them has begun ends with it, and not in a loop that is closed.
        await asyncio.gather(*self._starting, return_exceptions=True)
        self._starting.clear()
        await asyncio.gather(*(helper.end() for helper in tuple(self._all)))
        self._all.clear()
        self._idle.clear()

    async def _call(self, process: _Process, request: bytes) -> tuple[str, Any]:
        reusable = False
        try:
            kind, value = await process.call(request)
            reusable = kind != helper.LIMIT
        except (asyncio.IncompleteReadError, ConnectionError):
            return helper.RAISED, _lost_helper(await process.child.wait())
        finally:
            if reusable:
                self._idle.append(process)
            else:
                self._all.discard(process)
                await process.end()
        return kind, value

    async def _take_process(self) -> _Process:
        """Return a process with loaded modules. If the caller stops waiting, it is kept for the next one."""
        starting = self._starting.pop() if self._starting else asyncio.create_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._starting.append(starting)
            raise

    async def _start(self) -> _Process:
        without = self._without
        given = {name: text for name, text in os.environ.items() if not (without and without.fullmatch(name))}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _COMMAND.format(self._modules)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**given, "MALLOC_ARENA_MAX": "1"},
        )
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("a helper was started without pipes")
        process = _Process(child, child.stdin, child.stdout)
        self._all.add(process)
        self.started += 1
        try:
            await process.call(_NOTHING)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._all.discard(process)
            raise _lost_helper(await child.wait()) from None
        return process


def _lost_helper(status: int) -> Exception:
    if status == -signal.SIGXCPU:
        return LimitExceededError(helper.CPU_TIME)
    if status in {-signal.SIGKILL, -signal.SIGABRT}:
        # Only the kernel kills a helper whose caller still waits, and a library in Rust that is refused
        # memory ends its process.
        return LimitExceededError(helper.MEMORY)
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return HelperLostError(f"a helper process ended with {how}")


HELPERS: Final = 2
SMALL: Final = 64 * 1024
"""Most bytes that are read in a thread: whatever is in them takes some tenths of a second."""
_LIMITS: Final = TaskLimits(cpu_seconds=30.0)
_SECONDS: Final = 120.0
"""By the clock: a machine under load may need that long for the CPU time."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is done, for whom, as messages say it."""

    namespace: str
    name: str
    """Such as `building main@sha1:abc`."""
    remedy: str
    """What to do where it takes too much."""


class ForeignTasks(Protocol):
    """Runs functions of modules on what others wrote."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """Return or raise what the function does. `large`: its arguments are more than they take to store.
        Raises Stalled (LimitExceeded), Failed.
        """


@dataclass(frozen=True, slots=True)
class ThreadedTasks:
    """Runs all in threads of this process: of definitions that are trusted, which may take any time."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """See ForeignTasks."""
        del task, large
        return await asyncio.to_thread(function, *arguments)


TRUSTED: Final = ThreadedTasks()


@dataclass(frozen=True, slots=True)
class HelperTasks:
    """Runs what is large in helpers."""

    helpers: Helpers
    places: Places
    """Limits the helpers: one namespace is given half of them."""
    limits: TaskLimits = _LIMITS
    small: int = SMALL
    seconds: float = _SECONDS
    """The deadline of a task, from the time when it has a helper."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """See ForeignTasks."""
        request = await asyncio.to_thread(pack, self.limits, function, *arguments)
        if not large and len(request) <= self.small:
            return await asyncio.to_thread(function, *arguments)
        try:
            async with self.places.place(task.namespace), asyncio.timeout(self.seconds):
                return await self.helpers.send(request)  # type: ignore[no-any-return]  # by the function
        except TimeoutError:
            message = f"{task.name} took longer than {self.seconds:g} seconds; {task.remedy}"
            raise Failed("ReadTimedOut", message) from None
        except LimitExceededError as error:
            allowed = self.limits.describe_limit(error.limit)
            message = f"{task.name} needs more {error.limit} than it may use ({allowed}); {task.remedy}"
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed("ReadFailed", f"{task.name} failed: {error}") from error
