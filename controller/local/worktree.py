"""The files of a working tree, as they are on disk now: what would be served once it is committed."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.artifacts.archive import too_large
from controller.authoring.policies import POLICY_FOLDER
from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.inputs import steps
from controller.flagsets.layers import (
    LayersRefused,
    PathRefused,
    fixed_prefix,
    is_beside_definitions,
    is_definition,
    policies_of,
    read_layers,
    segments_beside,
    select,
    tests_beside,
    within,
)
from controller.flagsets.patches import apply_patches
from controller.flagsets.preparation import Preparation
from controller.flagsets.segments import is_segment_file
from controller.local.local_providers import provider_of
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import TreeLimits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from controller.local.local_options import LocalOptions
    from evaluator.flags.layer import Layer
    from evaluator.flags.model import FlagSet
    from evaluator.flags.problems import Problem


def with_advice(composition: Composition, names: Collection[str]) -> Composition:
    """`composition` with each path that matched nothing explained by `names`, all files of the tree."""
    return replace(
        composition, problems=tuple(_with_advice(problem, names) for problem in composition.problems)
    )


def _with_advice(problem: Problem, names: Collection[str]) -> Problem:
    if problem.code != "path-not-found":
        return problem
    if problem.file == "." and (layers := suggested_layers(names)):
        options = " ".join(f"--path {layer}" for layer in layers)
        message = f"no *.json, *.yaml or *.yml at the top; name the folders, base first, such as: {options}"
        return replace(problem, message=message)
    try:
        select(names, problem.file)
    except PathRefused as refusal:
        return replace(problem, message=refusal.message.removeprefix(f"{problem.file}: "))
    return problem


def suggested_layers(names: Collection[str]) -> list[str]:
    """Folders that look like the layers of one flag set: a `base` with the first of the `overlays` beside
    it, else the first folder that holds definitions.
    """
    visible = (name for name in names if not any(part.startswith(".") for part in name.split("/")))
    folders = sorted({posixpath.dirname(name) for name in visible if "/" in name and is_definition(name)})
    for base in folders:
        parent, last = posixpath.split(base)
        if last == "base":
            beside = posixpath.join(parent, "overlays") + "/"
            overlays = [folder for folder in folders if folder.startswith(beside)]
            return [base, *overlays[:1]]
    return folders[:1]


_LIMITS: Final = TreeLimits(entries=100_000)
"""As for a commit, but that files which Git ignores are listed too."""
_HINTS: Final = 10_000
"""File names that are searched for what a mistyped path may mean."""
_NEAR: Final = 3
"""Folders below one another in which these are searched: the tree may be the whole disk."""
_NOBODY: Final = provenance_of("")


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """The files that were found below a folder."""

    files: Mapping[str, bytes]
    """By name, `/` between folders. Files that no path means are there by name only, without content."""
    skipped: tuple[str, ...]
    """As Fetched.skipped has it."""
    author: str = ""
    """Of the commit that has the files; empty for those on disk."""
    signer: str | None = None
    """Whose signature the commit has; None where none was verified."""


def working_tree_of(source: str) -> Path | None:
    """The folder that `source` names, unless it is a remote or a bare repository. Raises Setback."""
    path = provider_of(source).folder(source)
    if path is None:
        return None
    folder = path.expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise Failed("RepositoryNotFound", f"{folder} {what}")
    bare = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
    return None if bare else folder


def compose_working_tree(folder: Path, options: LocalOptions) -> Composition:
    """The flag set that `folder` would give if all of it were committed. Raises Setback."""
    return compose_tree(read_working_tree(folder, options.read_paths), options)


def compose_tree(
    tree: WorkingTree, options: LocalOptions, previous: FlagSet | None = None, flag_set_id: str | None = None
) -> Composition:
    """The flag set of some files, after `previous`; `flag_set_id` counts where the metadata has none."""
    composition = compose(
        tree.files,
        options.paths,
        provenance=_NOBODY,
        previous=previous,
        policy=options.policy,
        lenient=options.lenient,
        default_flag_set_id=flag_set_id,
        bucketing=options.bucketing,
        skipped=tree.skipped,
        steps=steps(options.substitute, options.age_keys),
        patches=options.patches,
        others=needed_sets(tree, options),
    )
    return with_advice(composition, tree.files)


def layers_of(tree: WorkingTree, options: LocalOptions) -> Sequence[Layer]:
    """The layers of some files as they are merged; empty where they cannot be read."""
    preparation = Preparation(steps(options.substitute, options.age_keys))
    try:
        layers = read_layers(tree.files, options.paths, tree.skipped, preparation.documents)
    except LayersRefused:
        return ()
    return apply_patches(layers, options.patches)[0]


def needed_sets(tree: WorkingTree, options: LocalOptions) -> tuple[FlagSet, ...]:
    """The flag sets of some files that the one of `options.paths` depends on; each may need those before."""
    found: list[FlagSet] = []
    for path in options.depends_on:
        composition = compose(
            tree.files,
            (path,),
            provenance=_NOBODY,
            previous=None,
            lenient=options.lenient,
            bucketing=options.bucketing,
            skipped=tree.skipped,
            steps=steps(options.substitute, options.age_keys),
            others=found,
        )
        found.append(composition.flag_set)
    return tuple(found)


def read_working_tree(root: Path, paths: Sequence[str]) -> WorkingTree:
    """The files below `root` that `paths` mean, and the tests, lists and policies for them; where one means
    none, also the names of other files.

    Raises Stalled where they are too many or too large in all, or a path leaves the tree; Failed where one
    cannot be read.
    """
    skipped: list[str] = []
    files: dict[str, bytes] = {}
    try:
        for path in (*paths, POLICY_FOLDER):
            for name in _candidates(root, path, skipped):
                files[name] = b""
                if len(files) + len(skipped) > _LIMITS.entries:
                    raise Stalled("LimitExceeded", f"{path} has more than {_LIMITS.entries} files")
        meant, all_found = _select_names(files, paths)
        if not all_found:
            files |= dict.fromkeys(islice(_walk(root, "", [], near=True), _HINTS), b"")
        skipped += _read(root, meant, files)
    except OSError as error:
        raise Failed("Unreadable", f"{error.filename or root}: {error.strerror or error}") from error
    return WorkingTree(files, tuple(dict.fromkeys(skipped)))


def _candidates(root: Path, path: str, skipped: list[str]) -> Iterable[str]:
    """The names that `path` could mean."""
    start = within(fixed_prefix(path))
    parts = start.split("/") if start else []
    for end in range(1, len(parts) + 1):
        if root.joinpath(*parts[:end]).is_symlink():
            skipped.append(f"{'/'.join(parts[:end])}: symlink, not followed")
            return ()
    if (root / start).is_file():
        beside = _walk(root, posixpath.dirname(start), skipped, deep=False)
        return (start, *(name for name in beside if is_beside_definitions(name) or is_segment_file(name)))
    below = within(path).removeprefix(start).strip("/")
    return _walk(root, start, skipped, deep="/" in below or "**" in below)


def _walk(
    root: Path, start: str, skipped: list[str], *, deep: bool = True, near: bool = False
) -> Iterator[str]:
    """Yield the names of the files below `start`, `near` ones alone: in few folders, and in no hidden one."""
    for folder, folders, names in os.walk(root / start):
        here = Path(folder).relative_to(root)
        if near:
            folders[:] = [name for name in folders if len(here.parts) < _NEAR and not name.startswith(".")]
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if name != ".git" and name not in linked]
        for name in (*linked, *names):
            shown = (here / name).as_posix()
            if Path(folder, name).is_symlink():
                skipped.append(f"{shown}: symlink, not followed")
            elif Path(folder, name).is_file():
                yield shown
            else:
                skipped.append(f"{shown}: not a regular file")
        if not deep:
            return


def _select_names(names: Collection[str], paths: Sequence[str]) -> tuple[set[str], bool]:
    """What `paths` mean, and whether each means something."""
    meant: set[str] = set()
    all_found = True
    for path in paths:
        try:
            meant.update(select(names, path), segments_beside(names, path))
            meant.update(tests_beside(names, path), policies_of(names, path))
        except PathRefused:
            all_found = False
    return meant, all_found


def _read(root: Path, names: Iterable[str], files: dict[str, bytes]) -> list[str]:
    """Read `names` into `files`; those that are too large, as `WorkingTree.skipped`."""
    total = 0
    skipped = []
    for name in names:
        size, content = _content(root / name)
        total += size
        if total > _LIMITS.total_bytes:
            raise Stalled("LimitExceeded", f"the files have more than {_LIMITS.total_bytes >> 20} MiB in all")
        if size > _LIMITS.file_bytes:
            skipped.append(too_large(name, size, _LIMITS.file_bytes))
        else:
            files[name] = content
    return skipped


def _content(path: Path) -> tuple[int, bytes]:
    """(bytes of the file, as much of them as one more than the limit)."""
    with path.open("rb") as file:
        content = file.read(_LIMITS.file_bytes + 1)
    size = len(content)
    return (size if size <= _LIMITS.file_bytes else max(size, path.stat().st_size)), content
