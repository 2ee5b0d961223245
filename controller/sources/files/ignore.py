"""Files that are no part of an artifact: patterns as in .gitignore, with the defaults of Flux."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import re2
from pathspec import GitIgnoreSpec

from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

FILE: Final = ".sourceignore"
_LONGEST: Final = 65_536
"""Bytes, as of `spec.ignore`."""
ALWAYS: Final = (".git/", ".gitignore", ".gitmodules", ".gitattributes")
DEFAULT: Final = (
    "*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
    ".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml",
    "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
    "**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
)  # fmt: skip
"""In force where the source has no patterns of its own."""


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
        _compiled(text, FILE)
    except UnicodeDecodeError:
        raise Stalled("InvalidIgnore", f"{FILE}: not UTF-8 text") from None
    except Stalled as stalled:
        raise Stalled("InvalidIgnore", stalled.message) from None
    return f"{text}\n{patterns or ''}"


def remove_ignored(folder: Path, patterns: str | None) -> None:
    """Remove from `folder` what is ignored. Raises Stalled (InvalidSpec), OSError."""
    ignored = _compiled(patterns)
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(parent, name)
            # RE2 reads text alone, and a name in a commit is any bytes.
            name_in_tree = os.fsencode(os.path.relpath(path, folder)).decode(errors="replace")
            if ignored.match_file(name_in_tree):
                os.unlink(path)
        if parent != str(folder) and not os.listdir(parent):
            os.rmdir(parent)


def not_ignored(skipped: Iterable[str], patterns: str | None) -> tuple[str, ...]:
    """Those of `skipped`, each `name: reason`, that are not to be ignored. Raises Stalled InvalidSpec."""
    ignored = _compiled(patterns)
    return tuple(each for each in skipped if not ignored.match_file(each.rpartition(": ")[0]))


@lru_cache(maxsize=128)
def _compiled(patterns: str | None, place: str = "spec.ignore") -> GitIgnoreSpec:
    lines = DEFAULT if patterns is None else patterns.splitlines()
    # Python's own expressions take exponential time for `*a*a*a*a*b`, and let no other thread run meanwhile.
    try:
        return GitIgnoreSpec.from_lines((*ALWAYS, *lines), backend="re2")
    except (ValueError, re.error, re2.error) as error:
        why = str(error)[:200]
        raise Stalled("InvalidSpec", f"{place}: cannot be read as patterns: {why}") from error
