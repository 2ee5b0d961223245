"""`flagstaff proxy` as a process of its own, with the rights of its service account; and what is
asked of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.api import Api
from tests.cluster.controllers import FLAGSTAFF, SYSTEM
from tests.cluster.patience import within
from tests.cluster.replica import Replica, run_replica

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.plane import Plane

_PORTS: Final = re.compile(r"listening: sync (\d+), management (\d+)")


class ProxyProcess(Replica):
    """One replica of the proxy."""

    def __init__(
        self, plane: Plane, folder: Path, *arguments: str, name: str = "proxy", via: str | None = None
    ) -> None:
        super().__init__(folder, name)
        token = Api(plane).token(SYSTEM, "flagstaff-proxy")
        config = plane.config_for(token, f"{name}-{os.getpid()}-{time.monotonic_ns()}", via)
        self.command = [
            FLAGSTAFF, "proxy", "--kubeconfig", str(config), "--host", "127.0.0.1", "--sync-port", "0",
            "--management-port", "0", "--namespace", SYSTEM, "--identity", name, "--drain-delay", "0",
            *arguments,
        ]  # fmt: skip
        self.sync = 0

    @property
    def target(self) -> str:
        """What clients dial."""
        return f"127.0.0.1:{self.sync}"

    def start(self) -> None:
        """Start, and wait until it is ready."""
        super().start()
        self.sync, self.management = self.read_ports(_PORTS)
        within(lambda: self.readyz()[0] == 200, self.log_text)

    def start_again(self) -> None:
        """Start on the port that it had."""
        self.command[self.command.index("--sync-port") + 1] = str(self.sync)
        self.start()

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """The status and the page."""
        status, text = self.ask("/readyz")
        return status, json.loads(text or "{}")

    def metric(self, line: str) -> float:
        """The value of one series; 0 where there is none."""
        for each in self.metrics().splitlines():
            if each.startswith(f"{line} "):
                return float(each.rpartition(" ")[2])
        return 0.0


@contextlib.contextmanager
def proxy(
    plane: Plane, folder: Path, *arguments: str, name: str = "proxy", via: str | None = None
) -> Iterator[ProxyProcess]:
    """A proxy for as long as the block lasts."""
    with run_replica(ProxyProcess(plane, folder, *arguments, name=name, via=via)) as process:
        yield process


def flags(value: str, **more: Mapping[str, Any]) -> dict[str, Any]:
    """A document with one flag that says `value`."""
    flag = {"state": "ENABLED", "variants": {"on": value, "off": ""}, "defaultVariant": "on"}
    return {"flags": {"hello": flag, **more}}


def manifest(
    namespace: str, name: str, document: Mapping[str, Any], kind: str = "FeatureFlagConfiguration"
) -> dict[str, Any]:
    """An object that holds the document."""
    return {
        "apiVersion": "core.openfeature.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"flagSpec": dict(document)},
    }


def apply(plane: Plane, *manifests: Mapping[str, Any]) -> None:
    """Write objects as their user."""
    for each in manifests:
        Api(plane).apply(each["metadata"]["namespace"], dict(each), manager="kubectl")
