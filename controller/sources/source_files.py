"""Files of a source: ignored ones, and ones that are not verified yet."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.parsing import InvalidTextError, ignore_patterns, of_files
from controller.runtime.setbacks import Stalled, as_failed
from controller.runtime.temporary import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path
    from typing import BinaryIO

    from pathspec import GitIgnoreSpec


FILE: Final = ".sourceignore"
_LONGEST: Final = 65_536
"""Bytes, as of `spec.ignore`."""


def matcher(patterns: str | None, place: str) -> Callable[[str], bool]:
    """Whether a name is ignored, by `patterns` or the defaults. Raises Stalled (InvalidSpec) with `place`."""
    return _compile(patterns, place).match_file


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """Which files of a source are no part of its artifact."""

    patterns: GitIgnoreSpec
    """The source's own `.sourceignore`, followed by `spec.ignore`."""
    of_spec: GitIgnoreSpec
    """`spec.ignore`, or the defaults, alone."""
    protected: tuple[GitIgnoreSpec, ...] = ()
    """Paths that `spec.verify.rules` name: a file that others may change must not remove them."""

    def match(self, name: str) -> bool:
        """Whether the file `name` is ignored."""
        protected = any(rule.match_file(name) for rule in self.protected)
        return bool((self.of_spec if protected else self.patterns).match_file(name))


def ignored_files(
    folder: Path, patterns: str | None, protected: Iterable[Iterable[str]] = ()
) -> IgnoredFiles:
    """What the source in `folder` and `patterns` of the spec ignore; `protected`: the paths of each rule.

    Raises Stalled (InvalidIgnore, InvalidSpec), OSError.
    """
    own, of_spec = _own_patterns(folder), _compile(patterns)
    both = of_spec if own is None else _compile(f"{own}\n{patterns or ''}")
    return IgnoredFiles(both, of_spec, tuple(map(of_files, protected)))


def _own_patterns(folder: Path) -> str | None:
    try:
        content = (folder / FILE).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    if len(content) > _LONGEST:
        raise Stalled("InvalidIgnore", f"{FILE}: longer than {_LONGEST} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Stalled("InvalidIgnore", f"{FILE}: not UTF-8 text") from None
    _compile(text, FILE, "InvalidIgnore")
    return text


def remove_ignored(folder: Path, ignored: IgnoredFiles) -> None:
    """Remove from `folder` what is ignored. Raises OSError."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(parent, name)
            # RE2 reads text alone, and a name in a commit is any bytes.
            name_in_tree = os.fsencode(os.path.relpath(path, folder)).decode(errors="replace")
            if ignored.match(name_in_tree):
                os.unlink(path)
        if parent != str(folder) and not os.listdir(parent):
            os.rmdir(parent)


def not_ignored(skipped: Iterable[str], ignored: IgnoredFiles) -> tuple[str, ...]:
    """Return those of `skipped`, each `name: reason`, that are not ignored."""
    return tuple(entry for entry in skipped if not ignored.match(entry.rpartition(": ")[0]))


def _compile(patterns: str | None, place: str = "spec.ignore", reason: str = "InvalidSpec") -> GitIgnoreSpec:
    try:
        return ignore_patterns(patterns)
    except InvalidTextError as error:
        raise Stalled(reason, f"{place}: {error}") from error


@contextlib.asynccontextmanager
async def quarantine(purpose: str) -> AsyncIterator[Path]:
    """An empty folder for `purpose`, removed in the end. Raises Failed, also for an OSError of its user."""
    folder = None
    try:
        folder = await asyncio.to_thread(TemporaryFolder.make)
        yield folder.path
    except OSError as error:
        raise as_failed(error, purpose) from error
    finally:
        if folder is not None:
            await asyncio.to_thread(folder.remove)


def create_file(path: Path) -> BinaryIO:
    """Open a new file to write. Follows no link and replaces no file. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o644), "wb")
