"""The programs of the test control plane: found, or built once into a cache outside the repository.

`python -m tests.cluster.assets` builds them if need be and prints their folder. KUBEBUILDER_ASSETS names a folder that has them
already, as envtest's does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.go import CACHE, go

MODULE: Final = Path(__file__).parent / "plane"
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
KUBERNETES: Final = "1.36.3"


def cache() -> Path:
    """Where the programs of this very module are built to."""
    content = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        content.update((MODULE / name).read_bytes())
    return CACHE / f"plane-{content.hexdigest()[:16]}"


def find() -> Path | None:
    """The folder that has every program, or None."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    for folder in ([Path(named)] if named else []) + [cache()]:
        if all((folder / name).is_file() for name in PROGRAMS):
            return folder
    return None


def build() -> Path:
    """Build the one program and link it to its names. Takes minutes the first time."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    version = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES.split(".")
    stamps = f"-X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    unfinished = folder / f".plane.{os.getpid()}"
    command = [go(), "build", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(unfinished)]
    print(
        "==> building the test control plane: about 7 minutes on two cores, once", file=sys.stderr
    )
    finished = threading.Event()
    threading.Thread(target=_show_progress, args=(finished,), daemon=True).start()
    try:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
        subprocess.run([*command, "."], cwd=MODULE, env=environment, check=True)
    finally:
        finished.set()
    unfinished.replace(folder / "plane")
    for name in PROGRAMS:
        link = folder / f".{name}.{os.getpid()}"
        link.symlink_to("plane")
        link.replace(folder / name)
    return folder


def _show_progress(finished: threading.Event) -> None:
    started = time.monotonic()
    while not finished.wait(15):
        print(
            f"    still building, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True
        )


if __name__ == "__main__":
    print(find() or build())
