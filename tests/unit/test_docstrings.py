"""What docstrings promise to raise exists."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("controller", "evaluator")
MODULES: Final = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TREES: Final = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
CLASSES: Final = {
    node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
}
CAUGHT: Final = {
    name.attr
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ExceptHandler) and node.type is not None
    for name in ast.walk(node.type)
    if isinstance(name, ast.Attribute)
}
"""Classes of libraries that some module catches, such as `grpc.aio.AioRpcError`."""
REASONS: Final = re.compile(r" \([^)]*\)|`")
RAISES: Final = re.compile(r"\bRaises ((?:[A-Z]\w*(?:,? or |,? and |, |; )?)+)")


def raised_names(docstring: str) -> Iterator[str]:
    """Yield the names after `Raises`: `Raises A`, `Raises A, B`, `Raises A (Reason) or B`."""
    for match in RAISES.finditer(REASONS.sub("", " ".join(docstring.split()))):
        yield from re.findall(r"[A-Z]\w*", match[1])


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def bound_names(tree: ast.Module) -> set[str]:
    """Return the names that a module imports or assigns."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assigned = [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return {alias.asname or alias.name for node in imports for alias in node.names} | set(assigned)


@pytest.mark.parametrize(
    ("docstring", "names"),
    [
        ("Raises ValueError.", ["ValueError"]),
        ("It waits. Raises Stalled, Failed.", ["Stalled", "Failed"]),
        ("Raises Waiting if it is gone, Stalled (Denied) if not.", ["Waiting"]),
        ("Raises `Gone` or Stalled (Denied).", ["Gone", "Stalled"]),
        ("Never raises.", []),
    ],
)
def test_names_of_what_is_raised_are_found(docstring: str, names: list[str]) -> None:
    assert list(raised_names(docstring)) == names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_docstring_names_only_classes_that_there_are(path: Path) -> None:
    tree = TREES[path]
    known = CLASSES | CAUGHT | set(dir(builtins)) | bound_names(tree)
    assert {name for docstring in docstrings(tree) for name in raised_names(docstring)} <= known
