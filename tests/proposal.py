"""The manifest of the first design discussion (June 2022): it must apply as printed and be served.

Read from where the public conformance cases are, or from the folder that FEATURE_FLAG_PROPOSAL names; it is
not ours to copy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(
    os.environ.get("FEATURE_FLAG_PROPOSAL")
    or Path(__file__).parents[2] / "shared" / "conformance" / "proposal"
)
MANIFEST: Final = FOLDER / "featureflagconfiguration-sample.yaml"


def manifest() -> str:
    """Its text. Skips the test where it is not there."""
    if not MANIFEST.is_file():
        pytest.skip(f"no {MANIFEST.name} in {FOLDER}: set FEATURE_FLAG_PROPOSAL")
    return MANIFEST.read_text(encoding="utf-8")
