"""The controller and the proxy as processes of their own that know nothing but a stub of an API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.replica import Replica

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub_api import StubApi

_CONTROLLER_PORTS: Final = re.compile(r"listening: management (\d+), artifacts (\d+), receiver (\d+)")
_PROXY_PORTS: Final = re.compile(r"listening: sync (\d+), management (\d+)")


class Controller(Replica):
    """`flagstaff controller` that knows nothing but the stub."""

    def __init__(self, folder: Path, stub: StubApi, *arguments: str) -> None:
        super().__init__(folder, "controller")
        self.command = [
            FLAGSTAFF, "controller", "--kubeconfig", str(stub.kubeconfig), "--namespace", "flagstaff-system",
            "--storage-path", str(folder / "data"), "--host", "127.0.0.1", "--artifact-port", "0",
            "--receiver-port", "0", "--management-port", "0", *arguments,
        ]  # fmt: skip

    def start(self) -> None:
        super().start()
        self.management = self.read_ports(_CONTROLLER_PORTS)[0]


class Proxy(Replica):
    """`flagstaff proxy` that knows nothing but the stub."""

    def __init__(self, folder: Path, stub: StubApi, *arguments: str) -> None:
        super().__init__(folder, "proxy")
        self.command = [
            FLAGSTAFF, "proxy", "--kubeconfig", str(stub.kubeconfig), "--namespace", "flagstaff-system",
            "--host", "127.0.0.1", "--sync-port", "0", "--management-port", "0", "--drain-delay", "0",
            *arguments,
        ]  # fmt: skip
        self.sync = 0

    def start(self) -> None:
        super().start()
        self.sync, self.management = self.read_ports(_PROXY_PORTS)
