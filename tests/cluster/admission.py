"""`flagstaff admission` as a process, and deploy/components/admission on a plane without Services: the API
server asks a port of this machine.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from evaluator.host.durable import write_file
from tests.cluster.api import Api
from tests.cluster.controllers import FLAGSTAFF, SYSTEM, ControllerProcess, controller
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.replica import Replica, run_replica
from tests.worlds.objects import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane

MANIFEST: Final = ROOT / "deploy/components/admission/admission.yaml"
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS: Final = f"{_GROUP}/mutatingwebhookconfigurations/flagstaff-injection"
VALIDATION: Final = f"{_GROUP}/validatingwebhookconfigurations/flagstaff-validation"
SECRET: Final = "/api/v1/namespaces/flagstaff-system/secrets/flagstaff-admission"  # noqa: S105 - a path
_DRY_RUNS: Final = 8
_PORTS: Final = re.compile(r"listening: admission (\d+), management (\d+)")


class AdmissionProcess(Replica):
    """One replica of admission. The Secret must be filled in before it starts."""

    def __init__(
        self, plane: Plane, folder: Path, *arguments: str, name: str = "admission", via: str | None = None
    ) -> None:
        super().__init__(folder, name)
        self._plane, self._folder = plane, folder
        token = Api(plane).token(SYSTEM, "flagstaff-admission")
        config = plane.config_for(token, f"{name}-{os.getpid()}-{time.monotonic_ns()}", via)
        self.command = [
            FLAGSTAFF, "admission", "--kubeconfig", str(config), "--host", "127.0.0.1",
            "--admission-port", "0", "--management-port", "0", "--namespace", SYSTEM,
            "--admission-cert", str(folder / "tls.crt"), "--admission-key", str(folder / "tls.key"),
            *arguments,
        ]  # fmt: skip
        self.admission = 0

    def mount(self) -> None:
        """What the kubelet does as the Secret changes."""
        for name in ("tls.crt", "tls.key"):
            write_file(self._folder / name, base64.b64decode(secret_data(self._plane)[name]))

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.mount()
        super().start()
        self.admission, self.management = self.read_ports(_PORTS)
        within(lambda: self.ask("/readyz")[0] == 200, self.log_text)


def secret_data(plane: Plane) -> Mapping[str, str]:
    """The Secret's content; empty while there is none."""
    found: Mapping[str, str] = Api(plane).find(SECRET).get("data") or {}
    return found


def _documents() -> list[dict[str, Any]]:
    return [*yaml.load_all(MANIFEST.read_text(encoding="utf-8"), yaml.CSafeLoader)]


def _apply(plane: Plane, documents: list[dict[str, Any]]) -> None:
    plane.kubectl("apply", "-f", "-", given="---\n".join(json.dumps(each) + "\n" for each in documents))


def install_rights(plane: Plane) -> None:
    """Apply the manifest but for its webhooks; returns once the controller has made the certificates."""
    _apply(plane, [each for each in _documents() if "webhooks" not in each])
    within(lambda: bool(authorities(plane)))


def install_webhooks(plane: Plane, port: int) -> None:
    """Apply the webhooks, but for their address; returns once the API server trusts who answers there."""
    documents = [each for each in _documents() if "webhooks" in each]
    for each in documents:
        for webhook in each["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
    _apply(plane, documents)
    within(lambda: authorities(plane) and authorities(plane) == trusted_authorities(plane))


@contextlib.contextmanager
def admission(plane: Plane, folder: Path, *arguments: str) -> Iterator[AdmissionProcess]:
    """Admission, which the API server asks, for as long as the block lasts; a controller must run."""
    install_rights(plane)
    with run_replica(AdmissionProcess(plane, folder, *arguments)) as process:
        install_webhooks(plane, process.admission)
        yield process


@dataclass(frozen=True, slots=True)
class Installation:
    """What runs."""

    controller: ControllerProcess
    proxy: ProxyProcess
    admission: AdmissionProcess


@contextlib.contextmanager
def run_installation(plane: Plane, folder: Path, *words: str) -> Iterator[Installation]:
    """Proxy, controller and admission, the controller leading, for as long as the block lasts; `words` are of
    the controller and of admission.
    """
    if "--direct-sets" in words:
        plane.kubectl(
            "apply", "--server-side", "-f", str(ROOT / "deploy/components/direct-sets/binding.yaml")
        )
    with proxy(plane, folder / "proxy") as delivering:
        words = (*words, "--proxy-address", delivering.target)
        with (
            controller(plane, folder / "controller", *words) as leader,
            admission(plane, folder / "admission", *words) as answering,
        ):
            leader.wait_leads()
            yield Installation(leader, delivering, answering)


def bad_object() -> dict[str, Any]:
    """Near the limit of a size, with each field of its flags misspelt."""
    bad = {"stat": 1, "variant": 2, "defaultVarian": 3, "targetin": 4}
    return configuration("bad", flagSpec={"flags": {f"flag-{number}": bad for number in range(17_000)}})


@contextlib.contextmanager
def dry_runs(space: Namespace, folder: Path, body: dict[str, Any]) -> Iterator[None]:
    """Create the object again and again, eight at a time, for as long as the block lasts."""
    manifest, ended = folder / "dry-run.json", threading.Event()
    manifest.write_text(json.dumps(body), encoding="utf-8")

    def run_again_and_again() -> int:
        runs = 0
        while not ended.is_set():
            space.kubectl("create", "--dry-run=server", "-f", str(manifest), check=False)
            runs += 1
        return runs

    with ThreadPoolExecutor(_DRY_RUNS) as pool:
        runs = [pool.submit(run_again_and_again) for _ in range(_DRY_RUNS)]
        try:
            yield
        finally:
            ended.set()
    assert all(run.result() for run in runs)


def authorities(plane: Plane) -> bytes:
    """Those of the Secret; empty while there are none."""
    return base64.b64decode(secret_data(plane).get("ca.crt", ""))


def trusted_authorities(plane: Plane) -> bytes:
    """Those that the API server trusts for both webhooks; empty while these differ."""
    found: list[dict[str, Any]] = [Api(plane).find(path) for path in (WEBHOOKS, VALIDATION)]
    bundles = {each["webhooks"][0]["clientConfig"].get("caBundle", "") for each in found}
    return base64.b64decode(bundles.pop()) if len(bundles) == 1 else b""
