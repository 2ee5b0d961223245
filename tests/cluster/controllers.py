"""`flagstaff controller` as a process of its own, with the rights of its service account."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.plane import start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

FLAGSTAFF: Final = str(Path(sys.executable).parent / "flagstaff")
SYSTEM: Final = "flagstaff-system"
PATIENCE: Final = 30.0
_PORTS: Final = re.compile(r"listening: management (\d+), artifacts (\d+), receiver (\d+)")


class ControllerProcess:
    """One replica. Its log is in `log`."""

    def __init__(
        self, plane: Plane, folder: Path, *arguments: str, name: str = "controller"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        token = plane.kubectl(
            "create", "token", "flagstaff-controller", "-n", SYSTEM, "--duration", "24h"
        ).strip()
        self.command = [
            FLAGSTAFF, "controller", "--kubeconfig", str(plane.config_for(token, f"{name}-{os.getpid()}")),
            "--storage-path", str(folder / "data"), "--host", "127.0.0.1", "--artifact-port", "0",
            "--receiver-port", "0", "--management-port", "0", "--namespace", SYSTEM, "--identity", name, *arguments,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.management = self.artifacts = self.receiver = 0

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self.process = start(self.command, log)
        self.management, self.artifacts, self.receiver = map(int, self._listening())

    def _listening(self) -> tuple[str, ...]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = _PORTS.search(self.said())
            if found:
                return found.groups()
            if self.process is None or self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the controller does not listen: {self.said()[-3000:]}")

    def said(self) -> str:
        """All that it logged."""
        return self.log.read_text(errors="replace")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def controller(
    plane: Plane, folder: Path, *arguments: str, name: str = "controller"
) -> Iterator[ControllerProcess]:
    """A controller for as long as the block lasts."""
    process = ControllerProcess(plane, folder, *arguments, name=name)
    process.start()
    try:
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.end(signal.SIGKILL)
