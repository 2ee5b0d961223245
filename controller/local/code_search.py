"""Searches a folder of code, and the newest commits of its repository, for references to flags."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.api.parsing import InvalidTextError, of_files
from controller.authoring.code_references import (
    CodeReference,
    Form,
    constants_in,
    find_references,
    flag_names,
    with_constants,
)
from controller.runtime.setbacks import Failed
from evaluator.flags.document import read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pygit2
    from pathspec import GitIgnoreSpec

CONFIG: Final = ".flagstaff-refs.yaml"
_ALWAYS_IGNORED: Final = (".*", "!.github", "node_modules/", "*.flagtest.yaml")
_DEFINITION: Final = (".yaml", ".yml", ".json")


class SearchBounds(NamedTuple):
    """What one search reads and lists."""

    files: int = 100_000
    file_bytes: int = 2 * 1024 * 1024
    """Larger files are data, or made by a program."""
    references: int = 100_000


BOUNDS: Final = SearchBounds()


class SearchOptions(BaseModel):
    """What `.flagstaff-refs.yaml` of a folder says, with what the command line adds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ignore: tuple[str, ...] = ()
    """Patterns of files, as in `.gitignore`."""
    forms: tuple[Form, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    """More names of flags, by key."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The commit that removed the last reference to a flag."""

    commit: str
    """40 hexadecimal digits."""
    author: str
    subject: str
    at: datetime


@dataclass(slots=True)
class CodeSearch:
    """What a folder refers to."""

    files: int = 0
    """Files that were read."""
    references: dict[str, list[CodeReference]] = field(default_factory=dict)
    """By key; a flag without any is not in it."""
    undefined: list[CodeReference] = field(default_factory=list)
    """Evaluations by an SDK of keys that no definition has."""
    notes: list[str] = field(default_factory=list)
    """What was left out."""


def read_options(folder: Path) -> SearchOptions:
    """The options of a folder; the defaults where it has no file of them. Raises Failed."""
    file = folder / CONFIG
    try:
        document = read_document(file.read_bytes(), file=str(file))
    except FileNotFoundError:
        return SearchOptions()
    except OSError as error:
        raise Failed("InvalidOptions", f"{file} cannot be read: {error.strerror}") from None
    for problem in document.problems:
        raise Failed("InvalidOptions", str(problem))
    try:
        return SearchOptions.model_validate(document.value or {})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise Failed("InvalidOptions", f"{file}: {place}: {first['msg']}") from None


def search(
    folder: Path, keys: Iterable[str], options: SearchOptions, bounds: SearchBounds = BOUNDS
) -> CodeSearch:
    """Search the files of a folder, but those that Git or the options ignore. Raises Failed."""
    names = flag_names(keys, options.forms, options.aliases)
    result = CodeSearch()
    if names.short:
        result.notes.append(f"too short to be searched: {', '.join(names.short)}")
    files, constants = list[str](), set[tuple[str, str]]()
    for file, text in _texts_of(folder, options, bounds, result):
        constants |= constants_in(text, names)
        files.append(file)
    names = with_constants(names, constants)
    found = 0
    # Read again: the texts of a large checkout take more memory than a machine may have.
    for file in files:
        content = _read(folder / file, file, bounds.file_bytes, result.notes) or b""
        references = find_references(file, content.decode("utf-8", "replace"), names)
        for reference in references.references[: max(0, bounds.references - found)]:
            result.references.setdefault(reference.key, []).append(reference)
        found += len(references.references)
        result.undefined += references.undefined
        if references.cut:
            result.notes.append(f"{file}: {references.cut} more references are not listed")
    if found > bounds.references:
        result.notes.append(f"{found - bounds.references} more references are not listed")
    return result


def _texts_of(
    folder: Path, options: SearchOptions, bounds: SearchBounds, result: CodeSearch
) -> Iterator[tuple[str, str]]:
    """(Name, content) of each file of code."""
    for name in _names(folder, options):
        if result.files == bounds.files:
            result.notes.append(f"only the first {bounds.files:,} files are searched")
            return
        content = _read(folder / name, name, bounds.file_bytes, result.notes)
        if content is None or b"\0" in content[:8192]:
            continue
        text = content.decode("utf-8", "replace")
        if name.endswith(_DEFINITION) and "defaultVariant" in text and "variants" in text:
            # Definitions define flags, and no code asks by them.
            continue
        result.files += 1
        yield name, text


def _read(file: Path, name: str, most: int, notes: list[str]) -> bytes | None:
    try:
        if file.stat().st_size > most:
            notes.append(f"{name} has more than {most:,} bytes and is not searched")
            return None
        return file.read_bytes()
    except OSError as error:
        notes.append(f"{name} cannot be read: {error.strerror}")
        return None


def _names(folder: Path, options: SearchOptions) -> Iterator[str]:
    """The names of the files below a folder, with `/`, sorted by folder. Raises Failed."""
    try:
        ignored = of_files([*_ALWAYS_IGNORED, *options.ignore])
    except InvalidTextError as error:
        raise Failed("InvalidOptions", f"ignore: {error}") from None
    repository = _repository(folder)
    # Git is asked for paths of its own tree.
    prefix = "" if repository is None else os.path.relpath(folder, repository.workdir)
    for parent, folders, files in os.walk(folder):
        above = os.path.relpath(parent, folder)
        at = "" if above == "." else f"{above}/"

        def is_kept(name: str, at: str = at) -> bool:
            path = f"{at}{name}"
            return not _matches(ignored, path) and not (
                repository is not None and repository.path_is_ignored(os.path.normpath(f"{prefix}/{path}"))
            )

        folders[:] = sorted(name for name in folders if is_kept(name) and not Path(parent, name).is_symlink())
        for name in sorted(files):
            if is_kept(name) and not Path(parent, name).is_symlink():
                yield f"{at}{name}"


def _matches(patterns: GitIgnoreSpec, path: str) -> bool:
    return bool(patterns.match_file(path) or patterns.match_file(f"{path}/"))


def _repository(folder: Path) -> pygit2.Repository | None:
    """The repository whose tree the folder is in."""
    import pygit2  # noqa: PLC0415 - other folders than repositories do without it

    found = pygit2.discover_repository(str(folder))
    repository = None if found is None else pygit2.Repository(found)
    return None if repository is None or repository.is_bare else repository


def added_lines(folder: Path, since: str) -> Mapping[str, frozenset[int]]:
    """The lines of each file that a repository's tree has on disk, and the commit `since` has not. Raises
    Failed.
    """
    import pygit2  # noqa: PLC0415 - see above
    from pygit2.enums import DiffOption  # noqa: PLC0415 - see above

    repository = _require_repository(folder)
    try:
        commit = repository.revparse_single(since).peel(pygit2.Commit)
    except (KeyError, ValueError, pygit2.GitError):
        raise Failed("ReferenceNotFound", f"{folder} has no commit {since!r}") from None
    untracked = DiffOption.INCLUDE_UNTRACKED | DiffOption.SHOW_UNTRACKED_CONTENT
    flags = untracked | DiffOption.RECURSE_UNTRACKED_DIRS
    prefix = Path(os.path.relpath(folder, repository.workdir)).as_posix()
    lines: dict[str, set[int]] = {}
    for name, line in _changed_lines(repository.diff(str(commit.id), flags=flags, context_lines=0)):
        if line.origin == "+":
            lines.setdefault(os.path.relpath(name, prefix), set()).add(line.new_lineno)
    return {name: frozenset(numbers) for name, numbers in lines.items()}


def _changed_lines(diff: pygit2.Diff) -> Iterator[tuple[str, pygit2.DiffLine]]:
    for patch in diff:
        if patch is None:
            # A file whose content is the same, with other rights.
            continue
        for hunk in patch.hunks:
            for line in hunk.lines:
                yield patch.delta.new_file.path, line


def removals(folder: Path, keys: Iterable[str], options: SearchOptions, lookback: int) -> dict[str, Removal]:
    """The commit that removed the last reference to each of these flags, to which no code refers now; of the
    newest `lookback` commits by first parents. Raises Failed.
    """
    import pygit2  # noqa: PLC0415 - see above

    repository = _require_repository(folder)
    names = flag_names(keys, options.forms, options.aliases)
    gone: dict[str, Removal] = {}
    commit = repository.revparse_single("HEAD").peel(pygit2.Commit)
    for _ in range(lookback):
        if not commit.parents or len(gone) == len(names.keys):
            break
        parent = commit.parents[0]
        for name, line in _changed_lines(repository.diff(parent, commit, context_lines=0)):
            if line.origin != "-" or name.endswith(_DEFINITION):
                continue
            for reference in find_references(name, line.content, names).references:
                gone.setdefault(reference.key, _removal(commit))
        commit = parent
    return gone


def _removal(commit: pygit2.Commit) -> Removal:
    author = f"{commit.author.name} <{commit.author.email}>"
    at = datetime.fromtimestamp(commit.commit_time, UTC)
    return Removal(str(commit.id), author, commit.message.partition("\n")[0], at)


def _require_repository(folder: Path) -> pygit2.Repository:
    repository = _repository(folder)
    if repository is None or repository.head_is_unborn:
        raise Failed("RepositoryNotFound", f"{folder} is in no Git repository with a commit")
    return repository
