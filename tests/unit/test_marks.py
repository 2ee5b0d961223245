"""Marks of ours: labels by which objects are known to be ours. Whoever writes an object may write them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
MARKS: Final = frozenset({"LABEL", "DIRECT_SET"})
"""The constants that name them: `flagstaff.dev/flagset`, `…/rollout` and `…/direct-set`."""
PROOFS: Final = {
    "controller/api/flagset.py proven_writer": "the owner reference, or the field manager of the FlagSet",
    "controller/api/flagset.py writer_key": "it is only shown",
    "controller/cli/objects/export_manifests.py _is_written": "it only leaves the object out of a list",
    "controller/cli/objects/object_rows.py _source": "it is only shown",
    "controller/cli/objects/object_tree.py _parent": "it is only shown",
    "controller/cli/objects/trace.py _trace": "it is only shown",
    "controller/configurations/remote_shards.py sweep": "it only keeps the object from removal",
    "controller/pods/direct_sets/name_check.py is_set_of": "the owner reference, or the field manager",
    "controller/pods/direct_sets/name_check.py _other_maker": "it only names who has a name already",
    "controller/pods/direct_sets/set_writer.py run": "`is_set_of` judges each before it is touched",
    "controller/pods/direct_sets/set_writer.py _delete": "`is_set_of` has judged it",
    "controller/proxy/catalog.py _without_spec": "it is only kept for `proven_writer`",
}
"""What proves each mark where it is read, by module and function."""


def readers() -> Iterator[str]:
    """Each module and function that reads a mark of an object's labels."""
    for file in sorted((ROOT / "controller").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                map(reads, ast.walk(function))
            ):
                yield f"{file.relative_to(ROOT).as_posix()} {function.name}"


def reads(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=labels, attr="get"), args=[mark, *_]):
            return is_labels(labels) and is_mark(mark)
        case ast.Subscript(value=labels, slice=mark):
            return is_labels(labels) and is_mark(mark)
        case ast.Compare(left=left, comparators=[right]):
            return (is_mark(left) and is_labels(right)) or (is_mark(right) and isinstance(left, ast.Name))
    return False


def is_labels(node: ast.AST) -> bool:
    return "labels" in ast.unparse(node)


def is_mark(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in MARKS
    return False


def test_each_mark_is_proven_where_it_is_read() -> None:
    assert set(readers()) == PROOFS.keys()
