"""What a target of fuzzing is, and what it may complain of."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Wrong(AssertionError):
    """The answer to an input is not what it must be."""


def same(found: object, wanted: object, what: str) -> None:
    """Raise Wrong unless both are equal."""
    if found != wanted:
        raise Wrong(f"{what}: {found!r}, not {wanted!r}")


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, or several that must agree."""

    run: Callable[[bytes], None]
    """Raises for an input that is treated wrongly, and for nothing else."""
    words: tuple[str | bytes, ...] = ()
    """What mutations are to put in: keywords of the format."""
    longest: int = 4_096
    """Bytes of an input."""


class _Listening(logging.Handler):
    """Failures that are caught where they cannot be left to fail: all of them are logged with their
    exception.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failures: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.failures.append(record.exc_info[1])


@contextmanager
def nothing_fails(logger: str = "evaluator") -> Iterator[None]:
    """Raise the first exception that was logged within, as if nobody had caught it."""
    listening, log = _Listening(), logging.getLogger(logger)
    propagated, log.propagate = log.propagate, False
    log.addHandler(listening)
    try:
        yield
    finally:
        log.removeHandler(listening)
        log.propagate = propagated
    if listening.failures:
        raise listening.failures[0]
