"""Nodes that are objects alone: kube-scheduler binds Pods to them, and kwok says of those what a kubelet
would.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tests.cluster.api import Api
from tests.cluster.assets import KWOK
from tests.cluster.plane import start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

NODES: Final = 5
STAGES: Final = KWOK.folder / "stages.yaml"
ANYWHERE: Final = [{"operator": "Exists"}]
"""Tolerations of a Pod that is to run here: nobody takes the taint off a new Node."""


@contextlib.contextmanager
def kubelets(plane: Plane, kwok: Path) -> Iterator[None]:
    """Nodes, for as long as the block lasts; `kwok` is the folder that has it."""
    api = Api(plane)
    for number in range(NODES):
        name = f"node-{number}"
        api.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    config = ["--kubeconfig", str(plane.kubeconfig)]
    speed = ["--kube-api-qps", "200", "--kube-api-burst", "400"]
    scheduler = [str(plane.assets / "kube-scheduler"), "--leader-elect=false", "--secure-port", "0", *speed]
    nodes = [str(kwok / "kwok"), "--manage-all-nodes=true", "--config", str(STAGES)]
    with contextlib.ExitStack() as stack:
        for command in (scheduler, nodes):
            stack.callback(_end, _start(plane, [*command, *config]))
        yield


def _start(plane: Plane, command: list[str]) -> subprocess.Popen[bytes]:
    name = command[0].rpartition("/")[2]
    with (plane.folder / f"{name}.log").open("ab") as log:
        return start(command, log)


def _end(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait(20)
