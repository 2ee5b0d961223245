"""Reads layers: selects the files of each path by their names, and finds those that were not read."""

from __future__ import annotations

import difflib
import fnmatch
import posixpath
from typing import TYPE_CHECKING, Final

from controller.api.parsing import InvalidTextError, normalise
from controller.artifacts.archive import TOO_LARGE
from controller.authoring.flag_test_files import FlagTests, is_test_file, read_flag_tests
from controller.authoring.policies import POLICY_FOLDER, Policies, is_policy_file, read_policies
from controller.flagsets.segments import Segments, is_segment_file
from controller.runtime.setbacks import Stalled
from evaluator.flags.layer import Layer, as_read, read_layer
from evaluator.flags.problems import Document, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


SUFFIXES: Final = (".json", ".yaml", ".yml")
"""What a folder's definitions end with."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of all definitions of one flag set."""
_CODES: Final = {"PathNotFound": "path-not-found", "PathInvalid": "path-invalid"}
DEFAULT_PATHS: Final = (".",)
"""A single layer: the definitions at the top of the tree."""
_EVERYTHING: Final = "**"
_SIGNS: Final = "*?["
_ADVICE: Final = (
    (TOO_LARGE, "too-large", "split it"),
    ("submodule", "not-a-file", "set recurseSubmodules of the FlagSource, or write its files in its place"),
    ("", "not-a-file", "replace it with a regular file"),
)
"""(how a reason begins, code, what to do)."""


class PathRefused(Stalled):
    """A path that is not one, or that means no file."""


class LayersRefused(Exception):
    """Nothing can be read: a path means no file, a file was not read, or there is too much."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def read_layers(
    tree: Mapping[str, bytes],
    paths: Sequence[str],
    skipped: Iterable[str],
    prepare: Callable[[Document], Sequence[Document]],
) -> list[Layer]:
    """Read the layers `paths`, base first, of a tree. `skipped` as in `unread_problems`, `prepare` as in
    `read_layer`. Raises LayersRefused.
    """
    if lacking := unread_problems(skipped, tree, paths):
        raise LayersRefused(*lacking)
    try:
        named = [select(tree, path) for path in paths]
    except PathRefused as refusal:
        path, _, message = refusal.message.partition(": ")
        raise LayersRefused(Problem(path, 0, 0, Severity.ERROR, _CODES[refusal.reason], message)) from None
    lists = [segments_beside(tree, path) for path in paths]
    size = sum(len(tree[name]) for names in (*named, *lists) for name in names)
    if size > MOST_BYTES:
        message = f"the definitions have {size} bytes, more than the {MOST_BYTES} of a flag set; make several"
        raise LayersRefused(Problem(paths[0], 0, 0, Severity.ERROR, "too-large", message))
    return [
        read_files([(name, tree[name]) for name in (*names, *beside)], prepare)
        for names, beside in zip(named, lists, strict=True)
    ]


def read_files(
    files: Iterable[tuple[str, bytes]], prepare: Callable[[Document], Sequence[Document]]
) -> Layer:
    """Read definitions, with the lists in files that are among `files`, as `read_layer` does."""
    by_kind: dict[bool, list[tuple[str, bytes]]] = {True: [], False: []}
    for name, content in files:
        by_kind[is_segment_file(name)].append((name, content))
    segments = Segments(dict(by_kind[True]))
    return read_layer(
        by_kind[False], prepare=lambda read: [segments.expand(document) for document in prepare(read)]
    )


def select(names: Collection[str], path: str) -> list[str]:
    """The names that `path` means, in order.

    `names` are a tree's files with `/` between folders. A path is a file, a folder (its definitions, not
    those of folders within unless it ends in `/**`) or a glob (`*`, `?`, `[…]` within a name, `**` for
    any folders). Names with a leading dot are only meant where the path spells the dot out.
    Raises PathRefused, reason PathInvalid or PathNotFound.
    """
    clean = within(path)
    if clean in names:
        if is_beside_definitions(clean):
            what = "tests of flags" if is_test_file(clean) else "a policy"
            message = f"{path}: the file has {what}, not definitions; name the definitions beside it"
            raise PathRefused("PathInvalid", message)
        return [clean]
    recursive = clean == _EVERYTHING or clean.endswith("/" + _EVERYTHING)
    folder = clean.removesuffix(_EVERYTHING).rstrip("/") if recursive else clean
    selected = _in_folder(names, folder, recursive=recursive)
    if not selected and any(sign in clean for sign in _SIGNS):
        pattern = clean.split("/")
        selected = [name for name in names if is_definition(name) and _matches(name.split("/"), pattern)]
    if not selected:
        raise PathRefused("PathNotFound", _not_found(names, path, folder))
    return sorted(selected)


def tests_beside(names: Collection[str], path: str) -> list[str]:
    """The files of tests beside the definitions that `path` means, in order."""
    return _beside(names, path, is_test_file)


def policies_of(names: Collection[str], path: str) -> list[str]:
    """The files of policies beside the definitions that `path` means, then those that may be policies in the
    folder for them at the top, in order.
    """
    in_folder = (name for name in names if posixpath.dirname(name) == POLICY_FOLDER)
    possible = sorted(name for name in in_folder if name.endswith(SUFFIXES) and not is_test_file(name))
    return [*_beside(names, path, is_policy_file), *possible]


def read_own_policies(
    tree: Mapping[str, bytes],
    paths: Sequence[str],
    skipped: Iterable[str],
    folder: Sequence[tuple[str, bytes]] | None = None,
) -> Policies:
    """Read the policies that a tree has. `folder`: the files of another folder, each a policy, in place
    of the tree's own. Never raises.
    """
    names = dict.fromkeys(name for path in paths for name in policies_of(tree, path))
    called = [(name, tree[name]) for name in names if is_policy_file(name)]
    if folder is None:
        found = read_policies(called, ((name, tree[name]) for name in names if not is_policy_file(name)))
    else:
        found = read_policies([*called, *folder])
    return found._replace(problems=(*unread_problems(skipped, tree, paths, policies_of), *found.problems))


def segments_beside(names: Collection[str], path: str) -> list[str]:
    """The files of lists, as `tests_beside`."""
    return _beside(names, path, is_segment_file)


def _beside(names: Collection[str], path: str, fits: Callable[[str], bool]) -> list[str]:
    folders = {posixpath.dirname(name) for name in _definitions_at(names, path)}
    below = f"{_prefix(path)}/".lstrip("/") if path.endswith(_EVERYTHING) else None
    return sorted(
        name
        for name in names
        if fits(name)
        and not posixpath.basename(name).startswith(".")
        and (posixpath.dirname(name) in folders or (below is not None and name.startswith(below)))
    )


def read_tests(tree: Mapping[str, bytes], paths: Sequence[str], skipped: Iterable[str]) -> FlagTests:
    """Read the tests beside the definitions of the layers `paths`. Never raises."""
    tests = read_flag_tests([(name, tree[name]) for name in tests_beside(tree, path)] for path in paths)
    return tests._replace(problems=(*unread_problems(skipped, tree, paths, tests_beside), *tests.problems))


def within(path: str) -> str:
    """Normalise a path. Raises PathRefused."""
    try:
        return normalise(path)
    except InvalidTextError as error:
        raise PathRefused("PathInvalid", f"{path}: {error}") from error


def fixed_prefix(path: str) -> str:
    """Return the path's leading folders without glob characters, or `.`."""
    parts = path.split("/")
    fixed = next((at for at, part in enumerate(parts) if any(s in part for s in _SIGNS)), len(parts))
    prefix = "/".join(parts[:fixed])
    return prefix or ("/" if path.startswith("/") else ".")


def is_definition(name: str) -> bool:
    """Whether a file may have definitions, by its name."""
    return name.endswith(SUFFIXES) and not is_beside_definitions(name)


def is_beside_definitions(name: str) -> bool:
    """Whether a file has tests of flags or a policy, by its name."""
    return is_test_file(name) or is_policy_file(name)


def definition_places(layers: Sequence[Layer]) -> dict[str, tuple[str, int]]:
    """File and line of each flag's definition in the highest layer that has one."""
    pieces = {key: piece for layer in layers for key, piece in layer.flags.items()}
    return {
        key: (piece.document.file, piece.document.place(piece.path, key=True)[0])
        for key, piece in pieces.items()
    }


def places_in(
    tree: Mapping[str, bytes], paths: Sequence[str], skipped: Iterable[str]
) -> dict[str, tuple[str, int]]:
    """See `definition_places`; none where the layers cannot be read."""
    try:
        return definition_places(read_layers(tree, paths, skipped, as_read))
    except LayersRefused:
        return {}


def _in_folder(names: Collection[str], folder: str, *, recursive: bool) -> list[str]:
    prefix = f"{folder}/" if folder else ""
    selected = []
    for name in names:
        below = name.removeprefix(prefix)
        if not is_definition(name) or (prefix and below == name):
            continue
        hidden = any(part.startswith(".") for part in below.split("/"))
        if not hidden and (recursive or "/" not in below):
            selected.append(name)
    return selected


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Row by row over the pattern, so that no pattern takes more than parts times pieces steps."""
    reached = {0}
    for piece in pattern:
        if piece == _EVERYTHING:
            reached = _positions_after_folders(parts, min(reached))
        else:
            visible = piece.startswith(".")
            reached = {
                at + 1
                for at in reached
                if at < len(parts)
                and (visible or not parts[at].startswith("."))
                and fnmatch.fnmatchcase(parts[at], piece)
            }
        if not reached:
            return False
    return len(parts) in reached


def _positions_after_folders(parts: Sequence[str], start: int) -> set[int]:
    reached = {start}
    for at in range(start, len(parts)):
        if parts[at].startswith("."):
            break
        reached.add(at + 1)
    return reached


def _not_found(names: Collection[str], path: str, folder: str) -> str:
    if all(name.startswith(".") for name in names):
        if folder in {"", "."}:
            return f"{path}: no definitions (*.json, *.yaml or *.yml): the folder is empty"
        return f"{path}: no such file or folder; there are no files at all"
    prefix = f"{folder}/" if folder else ""
    within = sorted(name for name in names if name.startswith(prefix))
    if within and not any(sign in folder for sign in _SIGNS):
        deeper = next((name for name in within if is_definition(name)), None)
        hint = (
            f"; {posixpath.dirname(deeper)} has some, and a path that ends in /** means all below"
            if deeper
            else ""
        )
        return f"{path}: the folder has no *.json, *.yaml or *.yml of its own{hint}"
    folders = {posixpath.dirname(name) for name in names if "/" in name}
    places = sorted({*(name for name in names if is_definition(name)), *folders})
    near = difflib.get_close_matches(folder, places, n=3, cutoff=0.5)
    if near:
        return f"{path}: no such file or folder (did you mean {' or '.join(near)}?)"
    hint = f"; there are {', '.join(places[:3])}" if places else ""
    return f"{path}: no such file or folder{hint}"


def _definitions_at(listed: Collection[str], path: str) -> list[str]:
    try:
        return select(listed, path)
    except PathRefused:
        return []


def files_at(listed: Collection[str], path: str) -> list[str]:
    """The files that a layer is read from: definitions and lists; none where the path means none."""
    return [*_definitions_at(listed, path), *segments_beside(listed, path)]


def unread_problems(
    skipped: Iterable[str],
    names: Iterable[str],
    paths: Sequence[str],
    meant_by: Callable[[Collection[str], str], list[str]] = files_at,
) -> list[Problem]:
    """Return an error for each of `skipped` (see `Fetched`) that `paths` name; `names` were read."""
    parted = (entry.rpartition(": ") for entry in skipped)
    reasons = {name: reason for name, _, reason in parted}
    if not reasons:
        return []
    listed = {*names, *reasons}
    meant = {name for path in paths for name in meant_by(listed, path)}
    through = [f"{_prefix(path)}/" for path in paths]
    problems = []
    for name, reason in sorted(reasons.items()):
        if name in meant or any(prefix.startswith(f"{name}/") for prefix in through):
            code, advice = next((code, advice) for start, code, advice in _ADVICE if reason.startswith(start))
            problems.append(Problem(name, 0, 0, Severity.ERROR, code, f"{reason}; {advice}"))
    return problems


def _prefix(path: str) -> str:
    try:
        return normalise(fixed_prefix(path))
    except InvalidTextError:
        return ""
