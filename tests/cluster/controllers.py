"""`flagstaff controller` as a process of its own, with the rights of its service account."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.api import Api
from tests.cluster.patience import within
from tests.cluster.replica import Replica, run_replica

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

FLAGSTAFF: Final = str(Path(sys.executable).parent / "flagstaff")
SYSTEM: Final = "flagstaff-system"
_PORTS: Final = re.compile(r"listening: management (\d+), artifacts (\d+), receiver (\d+)")


class ControllerProcess(Replica):
    """One replica of the controller."""

    def __init__(
        self, plane: Plane, folder: Path, *arguments: str, name: str = "controller", via: str | None = None
    ) -> None:
        super().__init__(folder, name)
        token = Api(plane).token(SYSTEM, "flagstaff-controller")
        config = plane.config_for(token, f"{name}-{os.getpid()}", via)
        self.command = [
            FLAGSTAFF, "controller", "--kubeconfig", str(config),
            "--storage-path", str(folder / "data"), "--host", "127.0.0.1", "--artifact-port", "0",
            "--receiver-port", "0", "--management-port", "0",
            "--namespace", SYSTEM, "--identity", name,
            "--artifact-hosts", ".svc,.svc.cluster.local,127.0.0.1",
            "--denied-artifact-hosts", "169.254.0.0/16",
            "--denied-source-hosts", "169.254.0.0/16", "--denied-kubeconfig-hosts", "169.254.0.0/16",
            "--rollout-hosts", "127.0.0.1", "--denied-rollout-hosts", "169.254.0.0/16", *arguments,
        ]  # fmt: skip
        self.artifacts = self.receiver = 0

    def start(self) -> None:
        """Start, and wait until it listens."""
        super().start()
        self.management, self.artifacts, self.receiver = self.read_ports(_PORTS)

    @property
    def leads(self) -> bool:
        """Whether this replica works."""
        return bool(json.loads(self.ask("/readyz")[1])["leader"])

    def wait_leads(self) -> None:
        """Until this replica works."""
        within(lambda: self.leads, self.log_text)


class KopfProcess(ControllerProcess):
    """The same under `kopf run`, which takes its settings from the environment."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        super().__init__(plane, folder, name="kopf")
        config = self.command[self.command.index("--kubeconfig") + 1]
        settings = {
            "KUBECONFIG": config, "FLAGSTAFF_KUBECONFIG": config, "FLAGSTAFF_NAMESPACE": SYSTEM,
            "FLAGSTAFF_STORAGE_PATH": str(folder / "data"), "FLAGSTAFF_HOST": "127.0.0.1",
            "FLAGSTAFF_ARTIFACT_PORT": "0", "FLAGSTAFF_RECEIVER_PORT": "0",
            "FLAGSTAFF_MANAGEMENT_PORT": "0",
            "FLAGSTAFF_DENIED_SOURCE_HOSTS": "169.254.0.0/16", "POD_NAME": "",
        }  # fmt: skip
        named = [f"{name}={value}" for name, value in settings.items()]
        kopf = str(Path(FLAGSTAFF).with_name("kopf"))
        self.command = ["env", *named, kopf, "run", "-A", "-m", "controller.cli.operator"]


@contextlib.contextmanager
def controller(
    plane: Plane, folder: Path, *arguments: str, name: str = "controller", via: str | None = None
) -> Iterator[ControllerProcess]:
    """A controller for as long as the block lasts."""
    with run_replica(ControllerProcess(plane, folder, *arguments, name=name, via=via)) as process:
        yield process
