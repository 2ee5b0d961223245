"""For people, the one state of a flag set is read, and no status by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[4] / "controller"
STATUSES = {"ConfigurationStatus", "FeatureFlagStatus", "FlagOverrideStatus"}
"""Models of statuses that are in one module with a spec; the others are in a contract of imports."""
FOR_PEOPLE = (
    "cli/*.py", "page/*.py", "app/cluster_*.py", "app/page_process.py",
    "local/flag_commits.py", "local/local_page.py",
)  # fmt: skip
ALLOWED = {"cli/override.py"}
"""What lists FlagOverrides, which are no flag sets."""


@pytest.mark.parametrize("files", FOR_PEOPLE)
def test_what_people_read_imports_no_status(files: str) -> None:
    found = [
        f"{file.relative_to(PACKAGE)}: {alias.name}"
        for file in PACKAGE.glob(files)
        if str(file.relative_to(PACKAGE)) not in ALLOWED
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in STATUSES
    ]
    assert found == []
