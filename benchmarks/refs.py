"""How fast `flagstaff refs` searches a large checkout for thousands of flags, beside grep.

    python -m benchmarks.refs [FLAGS]

The checkout is Kubernetes' source, of which the control plane of the tests is built. grep looks for the same
keys between quotes, and tells neither constants nor calls without a flag.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

from benchmarks.results import keep, median
from controller.local.code_search import CodeSearch, SearchOptions, search
from tests.cluster.assets import PLANE
from tests.go import source_folder

if TYPE_CHECKING:
    from pathlib import Path

TITLE: Final = "references of code to flags, beside grep"
ROUNDS: Final = 3
FLAGS: Final = (100, 10_000)
REAL: Final = ("kubernetes.io/hostname", "default-scheduler", "NodeReady")
"""Texts that the checkout has."""


def main() -> None:
    """Print a row for each number of flags."""
    folder = source_folder(PLANE, "k8s.io/kubernetes")
    counts = [int(word) for word in sys.argv[1:]] or FLAGS
    keep(TITLE, [_row(folder, count) for count in counts])


def _row(folder: Path, count: int) -> dict[str, object]:
    keys = [*REAL, *(f"team-{number % 97}-flag-{number}" for number in range(count - len(REAL)))]
    ours, theirs, found = [], [], CodeSearch()
    for _ in range(ROUNDS):
        begun = time.monotonic()
        found = search(folder, keys, SearchOptions())
        ours.append(time.monotonic() - begun)
        begun = time.monotonic()
        _grep(folder, keys)
        theirs.append(time.monotonic() - begun)
    return {
        "flags": count,
        "files": found.files,
        "references": sum(map(len, found.references.values())),
        "files/s": round(found.files / median(ours)),
        "times grep": round(median(ours) / median(theirs), 2),
    }


def _grep(folder: Path, keys: list[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as patterns:
        patterns.writelines(f"{quote}{key}{quote}\n" for key in keys for quote in "\"'`")
        patterns.flush()
        command = ["grep", "-rnIF", "-f", patterns.name, str(folder)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
