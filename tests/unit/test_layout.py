"""The layout of the packages: where a file name leads, how deep folders are, which modules import which."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

ROOT: Final = Path(__file__).parents[2]
REPEATED: Final = {"__init__.py", "reconciler.py", "stage.py", "metrics.py"}
"""The names that stages have in common."""
DEEPEST: Final = 3
CONSTANT: Final = re.compile(r"(?:^|\.)_?[A-Z][A-Z0-9_]+$")
LONGEST: Final = 300
"""Lines of a module."""


def modules(package: str) -> list[Path]:
    return [file.relative_to(ROOT) for file in (ROOT / package).rglob("*.py")]


def module_name(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def imported_modules(file: Path, known: Collection[str]) -> set[str]:
    """Names of the imported modules, also of those for type checkers alone."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            members = (f"{node.module}.{alias.name}" for alias in node.names)
            names |= {member if member in known else str(node.module) for member in members}
    return names & set(known)


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_file_name_is_found_once_in_a_package(package: str) -> None:
    names = Counter(file.name for file in modules(package) if file.name not in REPEATED)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_folders_are_at_most_three_deep(package: str) -> None:
    assert [str(file) for file in modules(package) if len(file.parts) - 1 > DEEPEST] == []


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_modules_have_at_most_300_lines(package: str) -> None:
    lengths = {str(file): (ROOT / file).read_bytes().count(b"\n") for file in modules(package)}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST} == {}


def test_modules_do_not_import_one_another_in_a_circle() -> None:
    files = {module_name(file): file for package in ("controller", "evaluator") for file in modules(package)}
    imports = {name: imported_modules(file, files) - {name} for name, file in files.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def patched_constants(file: Path) -> list[str]:
    """Where `monkeypatch.setattr` names a constant: such a test knows how the value is kept."""
    calls = (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call))
    patches = (call for call in calls if ast.unparse(call.func).endswith("monkeypatch.setattr"))
    names = (
        (patch.lineno, arg.value) for patch in patches for arg in patch.args if isinstance(arg, ast.Constant)
    )
    return [f"{file.relative_to(ROOT)}:{line}" for line, name in names if CONSTANT.search(str(name))]


def test_tests_patch_no_constants() -> None:
    assert [place for file in (ROOT / "tests").rglob("*.py") for place in patched_constants(file)] == []
