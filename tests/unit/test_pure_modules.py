"""A module that calls itself pure is held to it: the import contract names it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = "the pure core does no I/O and reads no clock"


def listed_modules() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return set(next(each["source_modules"] for each in contracts if each["name"] == CONTRACT))


def pure_modules() -> set[str]:
    paths = (path for package in ("controller", "evaluator") for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if re.search(r"\bpure\b|\bno I/O\b", _docstring(path), re.IGNORECASE)
    }


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_the_contract_names_every_module_that_calls_itself_pure() -> None:
    names = listed_modules()
    missing = {
        module
        for module in pure_modules()
        if not any(module == name or module.startswith(f"{name}.") for name in names)
    }
    assert not missing, f"add to `{CONTRACT}` in pyproject.toml: {sorted(missing)}"
