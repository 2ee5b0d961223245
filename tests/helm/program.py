"""Helm, a Go module, built once into a cache outside the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.go import Module, prepare
from tests.go import program as built

HELM: Final = Module(
    "helm", Path(__file__).parent / "module", "Helm: about 3 minutes", package="helm.sh/helm/v4/cmd/helm"
)


def program() -> Path:
    """Built if need be; without one the test is skipped."""
    return built(HELM, "NO CHART IS RENDERED: Helm cannot be built")


if __name__ == "__main__":
    sys.exit(prepare(HELM, "THE CHART WILL NOT BE TESTED: Helm cannot be built"))
