"""The layout of the packages: where a file name leads, and how deep folders are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
REPEATED: Final = {"__init__.py", "reconciler.py", "stage.py", "metrics.py"}
"""The names that stages have in common."""
DEEPEST: Final = 3


def modules(package: str) -> list[Path]:
    return [file.relative_to(ROOT) for file in (ROOT / package).rglob("*.py")]


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_file_name_is_found_once_in_a_package(package: str) -> None:
    names = Counter(file.name for file in modules(package) if file.name not in REPEATED)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_folders_are_at_most_three_deep(package: str) -> None:
    assert [str(file) for file in modules(package) if len(file.parts) - 1 > DEEPEST] == []
