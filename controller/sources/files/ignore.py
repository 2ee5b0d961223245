"""Files that are no part of an artifact, by patterns as in .gitignore."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from controller.api.parsing import InvalidTextError
from controller.api.parsing.patterns import ignored
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pathspec import GitIgnoreSpec

FILE: Final = ".sourceignore"
_LONGEST: Final = 65_536
"""Bytes, as of `spec.ignore`."""


def matcher(patterns: str | None, place: str) -> Callable[[str], bool]:
    """Whether a name is ignored, by `patterns` or the defaults. Raises Stalled (InvalidSpec) with `place`."""
    return _compiled(patterns, place).match_file


def patterns_of(folder: Path, patterns: str | None) -> str | None:
    """A source's own `.sourceignore`, followed by `patterns`. Raises Stalled (InvalidIgnore), OSError."""
    try:
        content = (folder / FILE).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return patterns
    if len(content) > _LONGEST:
        raise Stalled("InvalidIgnore", f"{FILE}: longer than {_LONGEST} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Stalled("InvalidIgnore", f"{FILE}: not UTF-8 text") from None
    _compiled(text, FILE, "InvalidIgnore")
    return f"{text}\n{patterns or ''}"


def remove_ignored(folder: Path, patterns: str | None) -> None:
    """Remove from `folder` what is ignored. Raises Stalled (InvalidSpec), OSError."""
    spec = _compiled(patterns)
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(parent, name)
            # RE2 reads text alone, and a name in a commit is any bytes.
            name_in_tree = os.fsencode(os.path.relpath(path, folder)).decode(errors="replace")
            if spec.match_file(name_in_tree):
                os.unlink(path)
        if parent != str(folder) and not os.listdir(parent):
            os.rmdir(parent)


def not_ignored(skipped: Iterable[str], patterns: str | None) -> tuple[str, ...]:
    """Return those of `skipped`, each `name: reason`, that are not ignored. Raises Stalled InvalidSpec."""
    spec = _compiled(patterns)
    return tuple(each for each in skipped if not spec.match_file(each.rpartition(": ")[0]))


def _compiled(patterns: str | None, place: str = "spec.ignore", reason: str = "InvalidSpec") -> GitIgnoreSpec:
    try:
        return ignored(patterns)
    except InvalidTextError as error:
        raise Stalled(reason, f"{place}: {error}") from error
