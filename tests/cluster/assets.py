"""The programs of the test control plane: found, or built once into a cache outside the repository.

`python -m tests.cluster.assets` builds them if need be and prints their folder; with the word `kwok`, that of
kwok, which only the tests of a fleet need. KUBEBUILDER_ASSETS names a folder that has them already, as
envtest's does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.go import Module, build
from tests.go import find as find_built

KUBERNETES: Final = "1.36.3"
REQUIRED: Final = "FLAGSTAFF_REQUIRE_CLUSTER"
"""Set where a run without a control plane would prove too little: a skip is a failure there."""


_MAJOR, _MINOR, _ = KUBERNETES.split(".")
_VERSION: Final = "k8s.io/component-base/version"
PLANE: Final = Module(
    "plane",
    Path(__file__).parent / "plane",
    "the test control plane: about 7 minutes",
    programs=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    stamps=(
        f"{_VERSION}.gitVersion=v{KUBERNETES}",
        f"{_VERSION}.gitMajor={_MAJOR}",
        f"{_VERSION}.gitMinor={_MINOR}",
    ),
)
KWOK: Final = Module(
    "kwok",
    # Apart from the plane's: other versions of the same libraries, and who tests no fleet need not wait for
    # it.
    Path(__file__).parent / "plane" / "kwok",
    "kwok, the kubelets of a fleet that is not there: about 3 minutes",
    package="sigs.k8s.io/kwok/cmd/kwok",
)


def find(module: Module = PLANE) -> Path | None:
    """The folder that has every program of the module, or None. KUBEBUILDER_ASSETS comes first."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return (find_built(module, Path(named)) if named else None) or find_built(module)


def main() -> int:
    """Print the folder. Where they cannot be built, say so; that is an error only where the tests that need
    them must be run.
    """
    wanted = KWOK if sys.argv[1:] == [KWOK.name] else PLANE
    try:
        print(find(wanted) or build(wanted))
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"==> CLUSTER TESTS WILL BE SKIPPED: {wanted.name} cannot be had here: {error}", file=sys.stderr
        )
        return 1 if os.environ.get(REQUIRED) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
