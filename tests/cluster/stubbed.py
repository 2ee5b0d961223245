"""The controller and the proxy as processes of their own that know nothing but a stub of an API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trustme

from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.replica import Replica

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub_api import StubApi

_CONTROLLER_PORTS: Final = re.compile(r"listening: management (\d+), artifacts (\d+), receiver (\d+)")
_ADMISSION_PORTS: Final = re.compile(r"listening: admission (\d+), management (\d+)")
_PAGE_PORTS: Final = re.compile(r"listening: page (\d+), management (\d+)")
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


class Admission(Replica):
    """`flagstaff admission` that knows nothing but the stub."""

    def __init__(self, folder: Path, stub: StubApi) -> None:
        super().__init__(folder, "admission")
        certificate, key = folder / "admission.crt", folder / "admission.key"
        issued = trustme.CA().issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        self.command = [
            FLAGSTAFF, "admission", "--kubeconfig", str(stub.kubeconfig), "--namespace", "flagstaff-system",
            "--host", "127.0.0.1", "--admission-port", "0", "--management-port", "0",
            "--admission-cert", str(certificate), "--admission-key", str(key),
        ]  # fmt: skip

    def start(self) -> None:
        super().start()
        self.management = self.read_ports(_ADMISSION_PORTS)[1]


class Page(Replica):
    """`flagstaff page` that knows nothing but the stub."""

    def __init__(self, folder: Path, stub: StubApi) -> None:
        super().__init__(folder, "page")
        self.command = [
            FLAGSTAFF, "page", "--kubeconfig", str(stub.kubeconfig), "--host", "127.0.0.1",
            "--page-port", "0", "--management-port", "0",
        ]  # fmt: skip

    def start(self) -> None:
        super().start()
        self.management = self.read_ports(_PAGE_PORTS)[1]
