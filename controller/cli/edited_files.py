"""The files that are edited in an editor: which make one flag set, what is wrong with them, and what a schema
says of each.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.flag_test_files import is_test_file
from controller.authoring.policies import POLICY_FOLDER, is_policy_file
from controller.authoring.writing_help import Written
from controller.cli.lint import LintedSet, LintInputs, lint_layers, reader_of
from controller.cli.printing import reason
from controller.flagsets.layers import SUFFIXES, read_own_policies, read_tests
from controller.flagsets.segments import is_segment_file
from controller.local.worktree import read_working_tree
from controller.runtime.setbacks import Setback
from evaluator.flags.model import FlagSet
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controller.authoring.cursor import Spot

_NOTHING: Final = LintedSet((), FlagSet({}), (), [])


@dataclass(frozen=True, slots=True)
class EditedSet:
    """Which files are edited together."""

    root: Path
    """The folder that is open in the editor."""
    layers: tuple[str, ...]
    """Below it, base first; none for policies alone."""
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """What a check of these files found."""

    problems: Sequence[Problem]
    """Their files are below the root."""
    texts: Mapping[str, bytes]
    """What was read, by file."""
    written: Written
    complete: bool
    """Whether every file could be read: of others, what was read before tells more."""


def is_checked(file: str) -> bool:
    """Whether a file may be part of a flag set, by its name."""
    hidden = posixpath.basename(file).startswith(".")
    return not hidden and (file.endswith(SUFFIXES) or is_segment_file(file))


def layers_around(root: Path, file: str) -> tuple[str, ...]:
    """The layers that a file below `root` is edited with: its folder over the `base` beside `overlays`, and a
    base under the first of its overlays.
    """
    folder = posixpath.dirname(file) or "."
    here = PurePosixPath(folder)
    if folder == POLICY_FOLDER or is_policy_file(file):
        return ()
    if here.parent.name == "overlays" and (root / here.parents[1] / "base").is_dir():
        return (str(here.parents[1] / "base"), folder)
    overlays = here.parent / "overlays"
    if here.name == "base" and (root / overlays).is_dir():
        found = (entry for entry in (root / overlays).iterdir() if entry.is_dir())
        names = sorted(entry.name for entry in found if any(map(is_checked, map(str, entry.iterdir()))))
        return (folder, *(str(overlays / name) for name in names[:1]))
    return (folder,)


def check_set(edited: EditedSet, buffers: Mapping[str, bytes]) -> CheckedSet:
    """Check files as `lint` does, and read their tests. `buffers`: what editors hold, by file, in place of
    what is on disk. Never raises Setback: what it says is a problem.
    """
    paths = edited.layers or (".",)
    try:
        tree = read_working_tree(edited.root, [*paths, *edited.depends_on])
        files = {**tree.files, **buffers}
        policies = read_own_policies(files, paths, tree.skipped)
        linted = _NOTHING
        if edited.layers:
            inputs = LintInputs(reader_of(files, tree.skipped), policies)
            linted = lint_layers(inputs, edited.layers, depends_on=edited.depends_on)
    except Setback as setback:
        return _unread(edited, setback.message)
    except OSError as error:
        return _unread(edited, reason(error))
    documents = [document for layer in linted.layers for document in layer.documents]
    broken = [document for document in documents if document.unreadable]
    tests = read_tests(files, edited.layers, tree.skipped)
    problems = [*policies.problems, *tests.problems]
    if any(layer.has_flags for layer in linted.layers) or any("flags" in one.text for one in broken):
        # Other folders have YAML, too.
        problems += linted.problems
    written = Written(linted.layers, linted.flag_set, linted.others, tests.cases)
    return CheckedSet(
        [replace(problem, file=_normal(problem.file)) for problem in problems], files, written, not broken
    )


def _unread(edited: EditedSet, message: str) -> CheckedSet:
    where = f"{edited.root} cannot be read"
    problem = Problem("", 0, 0, Severity.ERROR, "unreadable", f"{where}: {message}")
    return CheckedSet([problem], {}, Written(), complete=False)


def _normal(file: str) -> str:
    return posixpath.normpath(file) if file else ""


@cache
def _schemas() -> Mapping[str, Any]:
    # It takes a second.
    from controller.cli.json_schemas import json_schemas

    return json_schemas()


def schema_of(file: str, spot: Spot) -> Mapping[str, Any]:
    """The schema of a file, by its name or by the kind that it says."""
    kind = spot.before.get("kind") if isinstance(spot.before, dict) else None
    if is_test_file(file):
        name = "flagtest"
    elif is_policy_file(file) or file.startswith(f"{POLICY_FOLDER}/"):
        name = "policy"
    elif isinstance(kind, str) and "flagSpec" not in spot.path:
        name = kind.lower()
    else:
        name = "layer"
    schema: Mapping[str, Any] = _schemas().get(name, {})
    return schema
