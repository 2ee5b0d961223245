"""Lists every text that users may see, to be read as a stranger would: `python -m tests.messages
[FOLDER]...`.

Each literal of at least two words that is not a docstring counts: messages of errors, problems and
conditions, events, log lines, help texts, and what is printed. A line gives place, the call that the text is
an argument of, and the text with `{…}` for what is filled in.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDERS = ("controller", "evaluator")
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:.]? +[A-Za-z{`\"'(-]")


def main(folders: Sequence[str]) -> int:
    """Print them all."""
    for folder in folders:
        for file in sorted(Path(folder).rglob("*.py")):
            if not file.stem.endswith("_pb2"):
                for line, call, text in messages(file.read_text(encoding="utf-8")):
                    print(f"{file}:{line}: {call}: {text}")  # noqa: T201 - what it is for
    return 0


def messages(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, enclosing call, text) of each message in the module `source`."""
    yield from _below(ast.parse(source), "-")


def _below(node: ast.AST, call: str) -> Iterator[tuple[int, str, str]]:
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = _text(node)
        if _PROSE.search(text):
            yield node.lineno, call, " ".join(text.split())
        return
    if isinstance(node, ast.Call):
        call = ast.unparse(node.func)
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring and child is not getattr(node, "annotation", None):
            yield from _below(child, call)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_text(part) if isinstance(part, ast.Constant) else "{…}" for part in node.values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or FOLDERS))
