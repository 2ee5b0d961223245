"""`flagstaff evaluator start` as a process of its own, as those run it who run flagd today."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")
PATIENCE = 20.0
FREE_PORTS = [f"--{name}port=0" for name in ("", "management-", "sync-", "ofrep-")]
LOOPBACK = ["--host", "127.0.0.1"]
LEADING = (*LOOPBACK, *FREE_PORTS, "--log-format=json")


class Evaluator:
    """A running evaluator; its log, of JSON lines, is read as it comes."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        environ: dict[str, str] | None = None,
        leading: Sequence[str] = LEADING,
    ) -> None:
        plain = {name: text for name, text in os.environ.items() if "FLAG" not in name}
        self.process = subprocess.Popen(
            [*DIES_WITH_US, FLAGSTAFF, "evaluator", "start", *leading, *words],
            cwd=cwd,
            env=plain | {"HOME": str(cwd)} | (environ or {}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[dict[str, Any]] = []
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            # Only what ends the start is said in plain words.
            event = json.loads(line) if line.startswith("{") else {"message": line.strip()}
            self.log.append(event)
            self._events.put(event)

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that `wanted` accepts."""
        while True:
            try:
                event = self._events.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no such event: {self.log}") from None
            if wanted(event):
                return event

    def said(self, message: str) -> dict[str, Any]:
        """The next event with this in its message."""
        return self.wait(lambda event: message in event["message"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


@contextlib.contextmanager
def evaluator(
    *words: str,
    cwd: Path,
    environ: dict[str, str] | None = None,
    leading: Sequence[str] = LEADING,
) -> Iterator[Evaluator]:
    """An evaluator on free ports of loopback, unless `leading` says otherwise, stopped at the end."""
    running = Evaluator(*words, cwd=cwd, environ=environ, leading=leading)
    try:
        yield running
    finally:
        running.stop()
