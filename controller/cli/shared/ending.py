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
def ending(code: int, *errors: type[Exception]) -> Iterator[None]:
    """End the verb with `code` where the block raises one of `errors`, whose text says why."""
    try:
        yield
    except errors as error:
        raise Exit(error, code) from error
