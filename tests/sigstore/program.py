"""Sigstore's client in Go, which signs without a key, built once into a cache outside the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.go import Module, build, find

SIGNER: Final = Module(
    "sigstore-signer",
    Path(__file__).parent / "signer",
    ("go.mod", "go.sum", "main.go"),
    ".",
    ("sigstore-signer",),
    (),
    "Sigstore's client: about 2 minutes",
)


def program() -> Path:
    """Built if need be; without one the test is skipped."""
    try:
        return (find(SIGNER) or build(SIGNER)) / "sigstore-signer"
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NOTHING IS SIGNED WITHOUT A KEY: Sigstore's client cannot be built: {error}")


def main() -> int:
    """Build the program if need be; say so where it cannot be built."""
    try:
        print(find(SIGNER) or build(SIGNER))
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"==> KEYLESS SIGNATURES WILL NOT BE TESTED: their client cannot be built: {error}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
