"""`flagstaff evaluator start` as a process of its own, as those run it who run flagd today."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients.event_log import PATIENCE, EventLog
from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")
FREE_PORTS = [f"--{name}port=0" for name in ("", "management-", "sync-", "ofrep-")]
LOOPBACK = ["--host", "127.0.0.1"]
LEADING = (*LOOPBACK, *FREE_PORTS, "--log-format=json")


class Evaluator:
    """A running evaluator; its log, of JSON lines, is read as it comes."""

    def __init__(
        self, *words: str, cwd: Path, environ: dict[str, str] | None = None, leading: Sequence[str] = LEADING
    ) -> None:
        plain = {name: text for name, text in os.environ.items() if "FLAG" not in name}
        self.process = subprocess.Popen(
            [*DIES_WITH_US, FLAGSTAFF, "evaluator", "start", *leading, *words],
            cwd=cwd,
            env=plain | {"HOME": str(cwd)} | (environ or {}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self._events = EventLog(self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self.process.stderr or ():
            # Only what ends the start is said in plain words.
            yield json.loads(line) if line.startswith("{") else {"message": line.strip()}

    @property
    def log(self) -> list[dict[str, Any]]:
        """All that it has said so far."""
        return self._events.all

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that `wanted` accepts."""
        return self._events.wait(wanted, lambda: self.log)

    def next_event(self, message: str) -> dict[str, Any]:
        """The next event with this in its message."""
        return self.wait(lambda event: message in event["message"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._events.close()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


@contextlib.contextmanager
def evaluator(
    *words: str, cwd: Path, environ: dict[str, str] | None = None, leading: Sequence[str] = LEADING
) -> Iterator[Evaluator]:
    """An evaluator on free ports of loopback, unless `leading` says otherwise, stopped at the end."""
    running = Evaluator(*words, cwd=cwd, environ=environ, leading=leading)
    try:
        yield running
    finally:
        running.stop()
