"""Evaluators as processes, each of which is a Pod of the API server: there is no kubelet that
would run one.
"""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING, Any

from tests.clients.evaluator import Evaluator
from tests.cluster.api import Api, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.plane import Plane

NODE = "node-1"


class PodProcess:
    """One evaluator and its Pod."""

    def __init__(
        self,
        plane: Plane,
        namespace: str,
        name: str,
        source: dict[str, Any],
        folder: Path,
        *words: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`words` are further options of the evaluator's, `environ` further variables."""
        self.api, self.namespace, self.name = Api(plane), namespace, name
        container = {"name": "evaluator", "image": "flagstaff"}
        made = self.api.ask(
            "POST",
            path_of("pod", namespace),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                # Bound, and started by nobody.
                "spec": {"containers": [container], "nodeName": NODE, "automountServiceAccountToken": False},
            },
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._words = ("--sources", json.dumps([source]), *words)
        self._environ = {
            "POD_NAME": name, "POD_NAMESPACE": namespace, "POD_UID": made["metadata"]["uid"],
            "NODE_NAME": NODE, "TMPDIR": str(folder), **(environ or {}),
        }  # fmt: skip
        self.restart()

    def restart(self) -> None:
        """Start the process, again if it was ended: the container of the same pod."""
        self._ports: dict[str, Any] = {}
        self.evaluator = Evaluator(*self._words, cwd=self._folder, environ=self._environ)

    def port(self, name: str) -> int:
        """Where it listens: grpc, ofrep, management or sync."""
        self._ports = self._ports or self.evaluator.next_event("listening")
        return int(self._ports[name])

    def send(self, number: signal.Signals) -> None:
        """A signal to the process."""
        self.evaluator.process.send_signal(number)

    def delete(self) -> None:
        """The Pod goes at once, as if its kubelet had ended it."""
        path = path_of("pod", self.namespace, self.name)
        self.api.ask("DELETE", path, {"gracePeriodSeconds": 0})


@contextlib.contextmanager
def pods(
    plane: Plane, namespace: str, source: dict[str, Any], folder: Path, *names: str
) -> Iterator[list[PodProcess]]:
    """Evaluators for as long as the block lasts."""
    started: list[PodProcess] = []
    try:
        started.extend(PodProcess(plane, namespace, name, source, folder / name) for name in names)
        yield started
    finally:
        for each in started:
            each.send(signal.SIGCONT)
            each.evaluator.stop(signal.SIGKILL)
