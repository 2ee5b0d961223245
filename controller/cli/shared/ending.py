"""Ends a verb that cannot do its work. Uses the standard library only, which every image has."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, PROBLEM, USAGE, UNREACHABLE = 0, 1, 2, 3
"""Exit codes, as every verb has them."""
INTERRUPTED = 130
"""The exit code that shells report for a process that SIGINT ended."""


class Exit(Exception):
    """The verb cannot do its work: the text is the reason, and `code` the exit code."""

    def __init__(self, why: object, code: int = UNREACHABLE) -> None:
        super().__init__(str(why))
        self.code = code


@contextlib.contextmanager
def exit_on(code: int, *errors: type[Exception]) -> Iterator[None]:
    """End the verb with `code` where the block raises one of `errors`, whose text says why."""
    try:
        yield
    except errors as error:
        raise Exit(reason(error), code) from error


def reason(error: Exception) -> str:
    """The error's own words; of an OSError its file and what is wrong with it, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
