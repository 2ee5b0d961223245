"""`flagstaff controller` as a process of its own, with the rights of its service account."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.plane import start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

FLAGSTAFF: Final = str(Path(sys.executable).parent / "flagstaff")
SYSTEM: Final = "flagstaff-system"
PATIENCE: Final = 60.0
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
            "--receiver-port", "0", "--management-port", "0", "--namespace", SYSTEM, "--identity", name,
            "--artifact-hosts", ".svc,.svc.cluster.local,127.0.0.1", *arguments,
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

    def ask(self, path: str) -> str:
        """What the management port answers, whatever its status is."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.management}{path}") as answer:
                found: bytes = answer.read()
        except urllib.error.HTTPError as error:
            found = error.read()
        return found.decode()

    @property
    def leads(self) -> bool:
        """Whether this replica works."""
        return bool(json.loads(self.ask("/readyz"))["leader"])

    def wait_leads(self) -> None:
        """Until this replica works."""
        until = time.monotonic() + PATIENCE
        while not self.leads:
            assert time.monotonic() < until, self.said()[-3000:]
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


class KopfProcess(ControllerProcess):
    """The same under `kopf run`, which takes its settings from the environment."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        super().__init__(plane, folder, name="kopf")
        config = self.command[self.command.index("--kubeconfig") + 1]
        settings = {
            "KUBECONFIG": config, "FLAGSTAFF_KUBECONFIG": config, "FLAGSTAFF_STORAGE_PATH": str(folder / "data"),
            "FLAGSTAFF_HOST": "127.0.0.1", "FLAGSTAFF_ARTIFACT_PORT": "0", "FLAGSTAFF_RECEIVER_PORT": "0",
            "FLAGSTAFF_MANAGEMENT_PORT": "0", "FLAGSTAFF_NAMESPACE": SYSTEM, "POD_NAME": "",
        }  # fmt: skip
        named = [f"{name}={value}" for name, value in settings.items()]
        kopf = str(Path(FLAGSTAFF).with_name("kopf"))
        self.command = ["env", *named, kopf, "run", "-A", "-m", "controller.cli.operator"]


@contextlib.contextmanager
def controller(
    plane: Plane, folder: Path, *arguments: str, name: str = "controller"
) -> Iterator[ControllerProcess]:
    """A controller for as long as the block lasts."""
    with started(ControllerProcess(plane, folder, *arguments, name=name)) as process:
        yield process


@contextlib.contextmanager
def started(process: ControllerProcess) -> Iterator[ControllerProcess]:
    """`process` for as long as the block lasts."""
    process.start()
    try:
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.end(signal.SIGKILL)
