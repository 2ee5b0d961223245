"""Opens messages of OpenPGP in a process of their own: one may unpack to a thousand times its size."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from controller.runtime.process import helper

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMAND: Final = f"from controller.runtime.process.helper import main; main({[__name__]!r})"
_LIMITS: Final = helper.TaskLimits(memory_bytes=64 * 1024**2, cpu_seconds=10.0, file_bytes=0)
_SECONDS: Final = 60.0
"""A machine under load may need that long for the CPU time."""


def opened(keys: Sequence[bytes], messages: Sequence[bytes], size: int) -> bytes | None:
    """The first content of `size` bytes that a key opens, or None. Starts a process, and waits for it."""
    request = pickle.dumps((_LIMITS, decrypted, (keys, messages, size)))
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", _COMMAND],
            input=len(request).to_bytes(8, "big") + request,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The library hangs where an error of its own has no memory left for a backtrace.
            env={**os.environ, "MALLOC_ARENA_MAX": "1", "RUST_BACKTRACE": "0", "RUST_LIB_BACKTRACE": "0"},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if len(done.stdout) <= 8:
        # A library in Rust that is refused memory ends its process.
        return None
    kind, value = pickle.loads(done.stdout[8:])  # noqa: S301 - of our own child
    return value if kind == helper.RETURNED else None


def decrypted(keys: Sequence[bytes], messages: Sequence[bytes], size: int) -> bytes | None:
    """What `opened` does, in this process."""
    import pysequoia  # noqa: PLC0415

    decryptors = [pysequoia.Tsk.from_bytes(key).decryptor() for key in keys]
    for message in messages:
        for decryptor in decryptors:
            try:
                content = pysequoia.decrypt(message, decryptor=decryptor).bytes
            except RuntimeError:
                continue
            if content is not None and len(content) == size:
                return content
    return None
