"""Flux's source-controller, where there is one, beside a control plane."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.patience import within
from tests.cluster.plane import free_ports
from tests.cluster.replica import Replica, run_replica

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

BINARY: Final = "SOURCE_CONTROLLER_BINARY"
KINDS: Final = "SOURCE_CONTROLLER_CRDS"
_RECONCILERS: Final = 5
"""Each says when it works."""


def program() -> Path | None:
    """Where a source-controller is, if BINARY or PATH says so; if not, that is printed."""
    named = os.environ.get(BINARY) or shutil.which("source-controller")
    if named and os.environ.get(KINDS):
        return Path(named)
    print(
        f"nothing to compare with: {BINARY} or PATH must name a source-controller, and {KINDS} the folder "
        "config/crd/bases of its version"
    )
    return None


def install(plane: Plane) -> None:
    """Flux's kinds of sources."""
    kinds = os.environ[KINDS]
    plane.kubectl("apply", "--server-side", "-f", kinds)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", kinds)


class FluxProcess(Replica):
    """One source-controller, with its defaults but for ports, its folder, and nobody to elect."""

    def __init__(self, plane: Plane, folder: Path, binary: Path) -> None:
        super().__init__(folder, "source-controller")
        metrics, health, artifacts = (f"127.0.0.1:{port}" for port in free_ports(3))
        data = folder / "data"
        data.mkdir()
        self.command = [
            "env", f"KUBECONFIG={plane.kubeconfig}", f"TUF_ROOT={folder / 'sigstore'}", str(binary),
            "--enable-leader-election=false", "--metrics-addr", metrics, "--health-addr", health,
            "--storage-path", str(data), "--storage-addr", artifacts, "--storage-adv-addr", artifacts,
        ]  # fmt: skip

    def wait_works(self) -> None:
        """Until every reconciler works."""
        within(lambda: self.log_text().count("Starting workers") >= _RECONCILERS, self.log_text)


@contextlib.contextmanager
def source_controller(plane: Plane, folder: Path, binary: Path) -> Iterator[FluxProcess]:
    """A source-controller for as long as the block lasts."""
    with run_replica(FluxProcess(plane, folder, binary)) as process:
        process.wait_works()
        yield process
