"""Definitions that a tree lists and that were not read: symlinks, submodules, files that are too large. Pure.

A layer that lacks one of its files would silently lose that file's flags, so it is an error that holds the
whole set, as a file that cannot be parsed does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.artifacts.skipped import TOO_LARGE
from controller.flagsets.reading.layers import PathRefused, fixed_prefix, normalise, select
from evaluator.flags.syntax.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOT_A_FILE: Final = ("not-a-file", "replace it with a regular file")
_TOO_LARGE: Final = ("too-large", "split it")


def unread(skipped: Iterable[str], names: Iterable[str], paths: Sequence[str]) -> list[Problem]:
    """One error for each of `skipped` that `paths` mean or lead through; `names` are the files that were
    read.

    `skipped` is as a commit has it: `flags/evil.json: symlink, not followed`.
    """
    reasons = dict(_parted(each) for each in skipped)
    if not reasons:
        return []
    listed = {*names, *reasons}
    meant = {name for path in paths for name in _meant(listed, path)}
    through = [f"{_prefix(path)}/" for path in paths]
    return [
        _problem(name, reason)
        for name, reason in sorted(reasons.items())
        if name in meant or any(prefix.startswith(f"{name}/") for prefix in through)
    ]


def _problem(name: str, reason: str) -> Problem:
    code, advice = _TOO_LARGE if reason.startswith(TOO_LARGE) else _NOT_A_FILE
    return Problem(name, 0, 0, Severity.ERROR, code, f"{reason}; {advice}")


def _parted(skipped: str) -> tuple[str, str]:
    name, _, reason = skipped.rpartition(": ")
    return name, reason


def _meant(listed: set[str], path: str) -> list[str]:
    try:
        return select(listed, path)
    except PathRefused:
        return []


def _prefix(path: str) -> str:
    try:
        return normalise(fixed_prefix(path))
    except PathRefused:
        return ""
