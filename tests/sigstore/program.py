"""Sigstore's client in Go, which signs without a key, built once into a cache outside the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.go import Module, prepare
from tests.go import program as built

SIGNER: Final = Module(
    "sigstore-signer", Path(__file__).parent / "signer", "Sigstore's client: about 2 minutes"
)


def program() -> Path:
    """Built if need be; without one the test is skipped."""
    return built(SIGNER, "NOTHING IS SIGNED WITHOUT A KEY: Sigstore's client cannot be built")


if __name__ == "__main__":
    sys.exit(prepare(SIGNER, "KEYLESS SIGNATURES WILL NOT BE TESTED: their client cannot be built"))
