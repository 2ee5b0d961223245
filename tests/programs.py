"""Programs that tests start."""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""In front of a command: what we start ends with us, even when we are killed."""
_PATIENCE: Final = 1200
"""Looks at its log, 20 a second."""


@contextlib.contextmanager
def run_server(
    command: Sequence[str | Path], log: Path, announcement: re.Pattern[str], **environment: str
) -> Iterator[int]:
    """The port of a server, which `announcement` finds in what it writes to `log`."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*DIES_WITH_US, *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment or None,
        )
    try:
        yield _port(process, log, announcement)
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path, announcement: re.Pattern[str]) -> int:
    for _ in range(_PATIENCE):
        if found := announcement.search(log.read_text(encoding="utf-8")):
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"it does not start: {log.read_text(encoding='utf-8')}")
