"""The commits of a repository on this machine that changed flags, the newest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.api.addresses import parse_location
from controller.api.parsing import InvalidTextError
from controller.delivery.changed_flags import differences
from controller.flagsets.layers import LayersRefused, files_at, read_layers
from controller.local.worktree import WorkingTree, compose_tree
from controller.page.page_source import FlagChange, LayerPlace
from controller.runtime.setbacks import Setback
from evaluator.flags.diff import diff
from evaluator.flags.layer import as_read
from evaluator.flags.model import FlagSet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    import pygit2

    from controller.local.local_options import LocalOptions

MOST_COMMITS: Final = 200
"""Most commits with changes that are compared."""
MOST_SEEN: Final = 5_000
"""Most commits that are read."""
MOST_OVERLAYS: Final = 6
"""Most folders beside the last path that are compared with it."""
_MOST_LINES: Final = 100_000


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """A commit, and its words on each flag that it changed."""

    change: FlagChange
    """The commit, without words."""
    lines: Mapping[str, str]
    """By flag, such as `default off (false) → on (true)`."""

    def of(self, key: str) -> FlagChange:
        """The commit with its words on a flag that it changed."""
        return replace(self.change, difference=self.lines[key])


@dataclass(frozen=True, slots=True)
class _Definitions:
    """The files of a commit that the options' paths mean."""

    commit: pygit2.Commit
    blobs: Mapping[str, str]
    """The ids of the files' contents by name."""


class FlagCommits:
    """Reads a repository; all methods block."""

    def __init__(self, folder: Path, options: LocalOptions) -> None:
        self._folder = folder
        self._options = options

    def read(self, commit: str, until: Callable[[str], bool]) -> Generator[CommitChanges]:
        """Yield the commits from `commit` back that changed a flag, by first parents, up to one for which
        `until` is true. Raises KeyError, ValueError, pygit2.GitError where the repository cannot be read.
        """
        history = _FlagSets(self._history(commit), self._flag_set)
        number = 0
        while (after := history.commit(number)) is not None and not until(str(after.id)):
            lines = _lines(history.flag_set(number + 1), history.flag_set(number))
            if lines:
                yield CommitChanges(_change(after), lines)
            number += 1

    def origin(self) -> str:
        """The URL of the repository's origin, without a password; empty where it has none."""
        import pygit2  # noqa: PLC0415 - see `_commit`

        try:
            return parse_location(pygit2.Repository(str(self._folder)).remotes["origin"].url or "").url
        except (KeyError, InvalidTextError):
            return ""

    def places(self, commit: str) -> dict[str, tuple[LayerPlace, ...]]:
        """Where the layers of a commit define each flag. Raises as `read`."""
        definitions = self._definitions(self._commit(commit))
        try:
            layers = read_layers(self._files(definitions), self._options.paths, (), as_read)
        except LayersRefused:
            return {}
        places: dict[str, tuple[LayerPlace, ...]] = {}
        for layer in layers:
            for key, piece in layer.flags.items():
                line = piece.document.place(piece.path, key=True)[0]
                places[key] = (*places.get(key, ()), LayerPlace(piece.document.file, line))
        return places

    def overlays(self, commit: str) -> dict[str, FlagSet]:
        """The flags with each folder beside that of the last path in its place, by the folder's name; none
        where there is one path alone. Raises as `read`.
        """
        *base, last = self._options.paths
        parent, _, own = last.rstrip("/").rpartition("/")
        if not base or not parent or own.startswith("*"):
            return {}
        newest = self._commit(commit)
        names = [name for name, _ in _blobs(newest.tree, "") if name.startswith(f"{parent}/")]
        below = (name.removeprefix(f"{parent}/") for name in names)
        folders = sorted({name.partition("/")[0] for name in below if "/" in name} - {own})
        flag_sets = {}
        for folder in folders[:MOST_OVERLAYS]:
            other = FlagCommits(self._folder, replace(self._options, paths=(*base, f"{parent}/{folder}")))
            flag_sets[folder] = other._flag_set(other._definitions(newest))
        return {folder: flag_set for folder, flag_set in flag_sets.items() if flag_set.flags}

    def _commit(self, commit: str) -> pygit2.Commit:
        import pygit2  # noqa: PLC0415 - other sources than repositories on disk do without it

        repository = pygit2.Repository(str(self._folder))
        return repository.revparse_single(commit or "HEAD").peel(pygit2.Commit)

    def _history(self, commit: str) -> Iterator[_Definitions]:
        """Each commit whose files differ from those of its first parent; the first commit, too."""
        definitions = self._definitions(self._commit(commit))
        for _ in range(MOST_SEEN):
            parent = next(iter(definitions.commit.parents), None)
            older = None if parent is None else self._definitions(parent)
            if older is None or older.blobs != definitions.blobs:
                yield definitions
            if older is None:
                return
            definitions = older

    def _definitions(self, commit: pygit2.Commit) -> _Definitions:
        names = dict(_blobs(commit.tree, ""))
        meant: set[str] = set()
        for path in self._options.read_paths:
            meant.update(files_at(names, path))
        return _Definitions(commit, {name: names[name] for name in sorted(meant)})

    def _files(self, definitions: _Definitions) -> dict[str, bytes]:
        import pygit2  # noqa: PLC0415 - see above

        repository = pygit2.Repository(str(self._folder))
        return {name: repository[blob].peel(pygit2.Blob).data for name, blob in definitions.blobs.items()}

    def _flag_set(self, definitions: _Definitions, older: Callable[[], FlagSet] = FlagSet) -> FlagSet:
        """The flags of a commit; those that it defines badly stay as `older`, which is called for them, has
        them.
        """
        tree = WorkingTree(self._files(definitions), ())
        try:
            composition = compose_tree(tree, self._options)
            if composition.missing or not composition.accepted:
                composition = compose_tree(tree, self._options, previous=older())
        except Setback:
            return older()
        return composition.flag_set


class _FlagSets:
    """The flags that were served after each commit, the newest first; made when they are asked for."""

    def __init__(
        self,
        definitions: Iterator[_Definitions],
        compose: Callable[[_Definitions, Callable[[], FlagSet]], FlagSet],
    ) -> None:
        self._definitions, self._compose = definitions, compose
        self._listed: list[_Definitions] = []
        self._made: dict[int, FlagSet] = {}

    def commit(self, number: int) -> pygit2.Commit | None:
        """A commit, from 0; None where there are no more."""
        while len(self._listed) <= number:
            if (following := next(self._definitions, None)) is None:
                return None
            self._listed.append(following)
        return self._listed[number].commit

    def flag_set(self, number: int) -> FlagSet:
        """The flags that were served after a commit; sets of newer commits are forgotten."""
        if self.commit(number) is None:
            return FlagSet()
        if number not in self._made:
            self._made[number] = self._compose(self._listed[number], lambda: self.flag_set(number + 1))
        self._made.pop(number - 2, None)
        return self._made[number]


def _blobs(tree: pygit2.Tree, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in tree:
        name = f"{prefix}{entry.name}"
        if entry.type_str == "tree":
            yield from _blobs(entry, f"{name}/")  # type: ignore[arg-type]  # an entry of that type is a Tree
        elif entry.type_str == "blob":
            yield name, str(entry.id)


def _lines(before: FlagSet, after: FlagSet) -> dict[str, str]:
    """Words on each flag that differs."""
    changes = diff(before, after)
    return {one.key: one.text for one in differences(before, after, changes, _MOST_LINES)}


def _change(commit: pygit2.Commit) -> FlagChange:
    author = f"{commit.author.name} <{commit.author.email}>"
    at = datetime.fromtimestamp(commit.commit_time, UTC)
    return FlagChange(str(commit.id), author, commit.message.partition("\n")[0], at)
