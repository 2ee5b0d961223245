"""Flux's source-controller: found, or built once into a cache outside the repository, and run beside a control
plane.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.patience import within
from tests.cluster.plane import free_ports
from tests.cluster.replica import Replica, started
from tests.go import Module, build, find, source_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

PACKAGE: Final = "github.com/fluxcd/source-controller"
FLUX: Final = Module(
    "source-controller",
    Path(__file__).parent / "server",
    ("go.mod", "go.sum"),
    PACKAGE,
    ("source-controller",),
    (),
    "Flux's source-controller: some minutes",
)
VARIABLE: Final = "SOURCE_CONTROLLER_BINARY"
_RECONCILERS: Final = 5
"""Each says when it works."""


def program() -> Path | None:
    """Where a source-controller is: as the variable or PATH says, or built. None, with what is missing printed,
    where it cannot be had.
    """
    named = os.environ.get(VARIABLE) or shutil.which("source-controller")
    if named:
        return Path(named)
    try:
        # The kinds that it serves come from the same module.
        source_folder(FLUX, required())
        return (find(FLUX) or build(FLUX)) / FLUX.name
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"no source-controller: {VARIABLE} is not set, and it cannot be built: {error}", file=sys.stderr
        )
        return None


def required() -> str:
    """The module with its version, as the lock has it."""
    text = (FLUX.folder / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(PACKAGE)} (v\S+)", text)
    assert found is not None, "go.mod requires no source-controller"
    return f"{PACKAGE}@{found[1]}"


def install(plane: Plane) -> None:
    """Flux's kinds of sources."""
    kinds = str(source_folder(FLUX, required()) / "config/crd/bases")
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
        within(lambda: self.said().count("Starting workers") >= _RECONCILERS, self.said)


@contextlib.contextmanager
def source_controller(plane: Plane, folder: Path, binary: Path) -> Iterator[FluxProcess]:
    """A source-controller for as long as the block lasts."""
    with started(FluxProcess(plane, folder, binary)) as process:
        process.wait_works()
        yield process
