"""The programs of the test control plane: found, or built once into a cache outside the repository.

`python -m tests.cluster.assets` builds them if need be and prints their folder; with the word `kwok`, that of kwok, which only the tests of a
fleet need. KUBEBUILDER_ASSETS names a folder that has them already, as envtest's does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.go import CACHE, go

KUBERNETES: Final = "1.36.3"
REQUIRED: Final = "FLAGSTAFF_REQUIRE_CLUSTER"
"""Set where a run without a control plane would prove too little: a skip is a failure there."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of ours, whose one program is called by several names."""

    name: str
    folder: Path
    files: tuple[str, ...]
    """What decides about the program."""
    package: str
    programs: tuple[str, ...]
    stamps: tuple[str, ...]
    """Variables that the linker sets: what the program says its version is."""
    told: str

    def cache(self) -> Path:
        """Where the programs of this very module are built to."""
        content = hashlib.sha256()
        for name in self.files:
            content.update((self.folder / name).read_bytes())
        return CACHE / f"{self.name}-{content.hexdigest()[:16]}"


_MAJOR, _MINOR, _ = KUBERNETES.split(".")
_VERSION: Final = "k8s.io/component-base/version"
PLANE: Final = Module(
    "plane",
    Path(__file__).parent / "plane",
    ("go.mod", "go.sum", "main.go"),
    ".",
    ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    (
        f"{_VERSION}.gitVersion=v{KUBERNETES}",
        f"{_VERSION}.gitMajor={_MAJOR}",
        f"{_VERSION}.gitMinor={_MINOR}",
    ),
    "the test control plane: about 7 minutes",
)
KWOK: Final = Module(
    "kwok",
    # Apart from the plane's: other versions of the same libraries, and who tests no fleet need not wait for it.
    Path(__file__).parent / "plane" / "kwok",
    ("go.mod", "go.sum"),
    "sigs.k8s.io/kwok/cmd/kwok",
    ("kwok",),
    (),
    "kwok, the kubelets of a fleet that is not there: about 3 minutes",
)


def find(module: Module = PLANE) -> Path | None:
    """The folder that has every program, or None."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    for folder in ([Path(named)] if named else []) + [module.cache()]:
        if all((folder / name).is_file() for name in module.programs):
            return folder
    return None


def build(module: Module = PLANE) -> Path:
    """Build the one program and link it to its names. Takes minutes the first time."""
    folder = module.cache()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{module.name}.{os.getpid()}"
    stamps = " ".join(f"-X {each}" for each in module.stamps)
    command = [go(), "build", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(unfinished)]
    print(f"==> building {module.told} on two cores, once", file=sys.stderr)
    finished = threading.Event()
    threading.Thread(target=_show_progress, args=(finished,), daemon=True).start()
    try:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
        subprocess.run([*command, module.package], cwd=module.folder, env=environment, check=True)
    finally:
        finished.set()
    unfinished.replace(folder / module.name)
    for name in module.programs:
        if name == module.name:
            continue
        link = folder / f".{name}.{os.getpid()}"
        link.symlink_to(module.name)
        link.replace(folder / name)
    return folder


def _show_progress(finished: threading.Event) -> None:
    started = time.monotonic()
    while not finished.wait(15):
        print(
            f"    still building, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True
        )


def main() -> int:
    """Print the folder. Where they cannot be built, say so; that is an error only where the tests that need them must be run."""
    wanted = KWOK if sys.argv[1:] == [KWOK.name] else PLANE
    try:
        print(find(wanted) or build(wanted))
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"==> CLUSTER TESTS WILL BE SKIPPED: {wanted.name} cannot be had here: {error}",
            file=sys.stderr,
        )
        return 1 if os.environ.get(REQUIRED) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
