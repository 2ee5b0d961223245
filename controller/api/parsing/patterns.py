"""Patterns that users write: regular expressions in RE2's syntax, whose search takes time in proportion to
the text, and patterns of files as in .gitignore. Pure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import re2
from pathspec import GitIgnoreSpec

from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALL: Final = 1 << 18
"""Bytes of a compiled expression: some 10,000 instructions. RE2's own bound is 32 times as much, and takes a
second to reach.
"""

MOST_PATTERNS: Final = 1_000
LONGEST_PATTERN: Final = 1_000
"""Characters of a pattern of files."""

_ALWAYS: Final = (".git/", ".gitignore", ".gitmodules", ".gitattributes")
_DEFAULT: Final = (
    "*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
    ".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml",
    "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
    "**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
)  # fmt: skip
"""Files that are ignored where the source has no patterns of its own, as with Flux."""


def compile_pattern(pattern: str, memory: int = SMALL) -> re2._Regexp:
    """Compile an RE2 expression. Raises InvalidTextError; also if it needs more than `memory` bytes."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    try:
        # re2.compile() keeps 128 of them, for every tenant's expressions.
        return re2._Regexp(pattern, options)  # noqa: SLF001 - re2 names its type nowhere else
    except re2.error as error:
        why = error.args[0] if error.args else ""
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    except UnicodeEncodeError:
        why = "it is not Unicode text"
    raise InvalidTextError(f"not an RE2 expression: {why[:200]}")


def require_somebody(pattern: str) -> None:
    """Raise InvalidTextError for what is no expression, or finds something in every text."""
    if compile_pattern(pattern).search("") is not None:
        raise InvalidTextError("matches everybody; write who must have signed")


def of_files(patterns: Iterable[str]) -> GitIgnoreSpec:
    """Compile patterns of files. Raises InvalidTextError; also for too many, or one that is too long."""
    patterns = list(patterns)
    if len(patterns) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in patterns):
        raise InvalidTextError(
            f"cannot be read as patterns: there may be {MOST_PATTERNS}, of {LONGEST_PATTERN} characters each"
        )
    # Python's own expressions take exponential time for `*a*a*a*a*b`, and let no other thread run meanwhile.
    try:
        return GitIgnoreSpec.from_lines(patterns, backend="re2")
    except (ValueError, re.error, re2.error) as error:
        raise InvalidTextError(f"cannot be read as patterns: {str(error)[:200]}") from error


@lru_cache(maxsize=128)
def ignore_patterns(patterns: str | None) -> GitIgnoreSpec:
    """Return what these lines, or the defaults, exclude from an artifact. Raises InvalidTextError."""
    return of_files((*_ALWAYS, *(_DEFAULT if patterns is None else patterns.splitlines())))
