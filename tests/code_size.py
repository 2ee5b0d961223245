"""The size of each package, and how much of it is imports: `python -m tests.code_size` prints the table."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LAYOUT: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}

BUDGET: Final[dict[str, int]] = {
    "controller": 4,
    "controller/api": 4310,
    "controller/app": 2470,
    "controller/artifacts": 650,
    "controller/authoring": 3545,
    "controller/cli": 10090,
    "controller/configurations": 1150,
    "controller/delivery": 3050,
    "controller/events": 3790,
    "controller/flagsets": 4400,
    "controller/importers": 4560,
    "controller/kube": 2370,
    "controller/local": 2700,
    "controller/migration": 850,
    "controller/page": 1230,
    "controller/pods": 4800,
    "controller/proxy": 3340,
    "controller/rollouts": 3565,
    "controller/runtime": 3040,
    "controller/sources": 6150,
    "controller/validation": 600,
    "evaluator": 450,
    "evaluator/flags": 4910,
    "evaluator/host": 730,
    "evaluator/http": 3950,
    "evaluator/node": 600,
    "evaluator/receipts": 250,
    "evaluator/resolving": 910,
    "evaluator/server": 2550,
    "evaluator/settings": 750,
    "evaluator/store": 600,
    "evaluator/sync": 1910,
    "evaluator/targeting": 1240,
    "evaluator/telemetry": 450,
    "evaluator/wire": 650,
}
"""Lines of code that a package may have, without blank lines, comments and docstrings. A commit that raises
a number says why.
"""
MOST_IMPORTS: Final = 0.121
"""The share of lines of imports in the code. An import that does not fit on one line has one name on each."""


class Size(NamedTuple):
    """Counts of a package."""

    modules: int = 0
    lines: int = 0
    code: int = 0
    imports: int = 0

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(*map(sum, zip(self, other, strict=True)))


def code_modules(package: str) -> list[Path]:
    """Its modules, apart from those that are generated."""
    return [file for file in sorted((ROOT / package).rglob("*.py")) if not file.stem.endswith("_pb2")]


def measure(file: Path) -> Size:
    """The counts of one module; one that holds a docstring alone counts as none."""
    text = file.read_text(encoding="utf-8")
    code = _code_lines(text)
    imports, strings = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            strings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code -= strings
    return Size(1 if code else 0, text.count("\n"), len(code), len(imports & code))


def _code_lines(text: str) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.string.strip():
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines


def package_of(file: Path) -> str:
    """`controller/sources` of a module in that folder; `evaluator` of one beside the folders."""
    return file.relative_to(ROOT).parent.as_posix()


def sizes() -> dict[str, Size]:
    """The counts of each package."""
    counts: dict[str, Size] = {}
    for package in ("controller", "evaluator"):
        for file in code_modules(package):
            counts[package_of(file)] = counts.get(package_of(file), Size()) + measure(file)
    return counts


def table() -> str:
    """The packages with their counts and budgets, as text."""
    counts = sizes()
    total = Size()
    rows = ["package                     modules   lines    code  budget  imports"]
    for package, size in counts.items():
        total += size
        rows.append(_row(package, size, BUDGET.get(package, 0)))
    return "\n".join([*rows, _row("all", total, sum(BUDGET.values()))])


def _row(name: str, size: Size, budget: int) -> str:
    share = size.imports / size.code if size.code else 0.0
    return f"{name:27} {size.modules:7} {size.lines:7,} {size.code:7,} {budget:7,} {share:8.1%}"


if __name__ == "__main__":
    print(table())
