"""`flagstaff proxy` as a process of its own, with the rights of its service account; and what is asked of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.controllers import FLAGSTAFF, PATIENCE, SYSTEM
from tests.cluster.plane import start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.cluster.plane import Plane

_PORTS: Final = re.compile(r"listening: sync (\d+), management (\d+)")


class ProxyProcess:
    """One replica. Its log is in `log`."""

    def __init__(self, plane: Plane, folder: Path, *arguments: str, name: str = "proxy") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        token = plane.kubectl(
            "create", "token", "flagstaff-proxy", "-n", SYSTEM, "--duration", "24h"
        ).strip()
        config = plane.config_for(token, f"{name}-{os.getpid()}-{time.monotonic_ns()}")
        self.command = [
            FLAGSTAFF, "proxy", "--kubeconfig", str(config), "--host", "127.0.0.1", "--sync-port", "0",
            "--management-port", "0", "--namespace", SYSTEM, "--identity", name, "--drain-delay", "0", *arguments,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.sync = self.management = 0

    @property
    def target(self) -> str:
        """What clients dial."""
        return f"127.0.0.1:{self.sync}"

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self.process = start(self.command, log)
        found = within(lambda: _PORTS.search(self.said()) or self.ended(), self.said)
        assert isinstance(found, re.Match), f"the proxy does not listen: {self.said()[-3000:]}"
        self.sync, self.management = map(int, found.groups())
        within(lambda: self.readyz()[0] == 200, self.said)

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is None or self.process.poll() is not None

    def said(self) -> str:
        """All that it logged."""
        return self.log.read_text(errors="replace")

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """The status and the page."""
        status, text = self.ask("/readyz")
        return status, json.loads(text or "{}")

    def metric(self, line: str) -> float:
        """The value of one series; 0 where there is none."""
        _, text = self.ask("/metrics")
        for each in text.splitlines():
            if each.startswith(f"{line} "):
                return float(each.rpartition(" ")[2])
        return 0.0

    def ask(self, path: str) -> tuple[int, str]:
        """The management port's answer; status 0 where there is none."""
        try:
            url = f"http://127.0.0.1:{self.management}{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def within(found: Callable[[], Any], told: Callable[[], object] = lambda: "") -> Any:
    """What `found` returns once that is true; fails when patience ends."""
    until = time.monotonic() + PATIENCE
    while not (last := found()):
        assert time.monotonic() < until, f"not within {PATIENCE} s: {last} {told()}"
        time.sleep(0.02)
    return last


@contextlib.contextmanager
def proxy(
    plane: Plane, folder: Path, *arguments: str, name: str = "proxy"
) -> Iterator[ProxyProcess]:
    """A proxy for as long as the block lasts."""
    process = ProxyProcess(plane, folder, *arguments, name=name)
    process.start()
    try:
        yield process
    finally:
        if not process.ended():
            process.end(signal.SIGKILL)


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
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(items))
