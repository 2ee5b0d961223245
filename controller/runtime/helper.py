"""The main loop of a helper process: one task after the other, each within its limits."""

from __future__ import annotations

import copyreg
import gc
import importlib
import math
import os
import pickle
import resource
import signal
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RETURNED: Final = "returned"
RAISED: Final = "raised"
LIMIT: Final = "limit"
MEMORY: Final = "memory"
CPU_TIME: Final = "CPU time"


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _reduce_mapping(mapping: MappingProxyType[Any, Any]) -> tuple[Any, tuple[dict[Any, Any]]]:
    return _read_only, (dict(mapping),)


# Registers this type with pickle, here because both ends of the pipe load this module.
copyreg.pickle(MappingProxyType, _reduce_mapping)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The resource limits of one task."""

    memory_bytes: int = 384 * 1024**2
    """Bytes of address space, in addition to that of the idle process."""
    cpu_seconds: float = 60.0
    file_bytes: int = 256 * 1024**2
    """Most bytes of any file that it writes."""

    def describe_limit(self, limit: str) -> str:
        """Return the limit of MEMORY or CPU_TIME, for people."""
        return f"{self.memory_bytes} bytes" if limit == MEMORY else f"{self.cpu_seconds:g} seconds"


def main(modules: Sequence[str]) -> None:
    """Answer requests on standard input until that ends. What tasks print goes to standard error."""
    # Objects of modules stay: garbage collection while they load is a seventh of the start.
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    gc.enable()
    # The process ends with its parent's pipe, not with a terminal's interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(0, "rb") as requests, os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        while size := requests.read(8):
            kind = _answer(requests.read(int.from_bytes(size, "big")), replies)
            if kind == LIMIT:
                return


def _answer(request: bytes, replies: BinaryIO) -> str:
    limits, function, arguments = pickle.loads(request)  # noqa: S301 - of our parent
    _limit(limits)
    try:
        reply: tuple[str, Any] = (RETURNED, function(*arguments))
        content = pickle.dumps(reply)
    except MemoryError:
        reply, content = (LIMIT, MEMORY), pickle.dumps((LIMIT, MEMORY))
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller receives it
        reply = _error_reply(error)
        content = pickle.dumps(reply)
    resource.setrlimit(resource.RLIMIT_AS, _soft_limit(resource.RLIMIT_AS, resource.RLIM_INFINITY))
    replies.write(len(content).to_bytes(8, "big") + content)
    replies.flush()
    return reply[0]


def _limit(limits: TaskLimits) -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + limits.cpu_seconds)
    for resource_limit, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
    ):
        resource.setrlimit(resource_limit, _soft_limit(resource_limit, most))


def _soft_limit(resource_limit: int, most: int) -> tuple[int, int]:
    hard = resource.getrlimit(resource_limit)[1]
    return (most if hard == resource.RLIM_INFINITY else min(most, hard)), hard


def _error_reply(error: Exception) -> tuple[str, Any]:
    """Return the error as a reply that another process can unpickle."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of our own
    except Exception:  # noqa: BLE001 - whatever it says
        return RAISED, RuntimeError(f"{type(error).__name__}: {error}")
    return RAISED, error
