"""Why a step could not be done, divided by what happens next.

Setback
├── Stalled      a person must change something first
├── Waiting      something is expected to happen; nothing is wrong yet
│   └── Passing  it is expected within moments, and Ready keeps its value until then
└── Failed       another try may help, with backoff
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Setback(Exception):
    """A step could not be done; `reason` is CamelCase and stable, `message` has no secret."""

    def __init__(self, reason: str, message: str, *, delay: float | None = None) -> None:
        """`delay`: seconds to the next attempt, for a cause that may end without an event."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.delay = delay

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would call the class with the message alone.
        return _remake, (type(self), self.reason, self.message, self.delay)


def _remake(kind: type[Setback], reason: str, message: str, delay: float | None) -> Setback:
    setback = kind.__new__(kind)
    Setback.__init__(setback, reason, message, delay=delay)
    return setback


class Stalled(Setback):
    """Retrying cannot help until a person changes something."""


class Waiting(Setback):
    """A dependency is missing, and expected without intervention."""


class Passing(Waiting):
    """A dependency is expected within moments; until then `Ready` is kept."""


class Failed(Setback):
    """An outside party failed; trying again may help."""


FULL: Final = "StorageFull"
"""The reason where a volume has no room."""


def as_failed(error: OSError, operation: str) -> Failed:
    """The setback for a disk that refused: StorageFull where space or quota ran out, else StorageFailed."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    cause = error.strerror or type(error).__name__
    return Failed(FULL if full else "StorageFailed", f"{operation}: {cause}")


@contextlib.contextmanager
def with_advice(advice: Mapping[str, str]) -> Iterator[None]:
    """Add what to do, by the reason, to a Failed that the block raises."""
    try:
        yield
    except Failed as failed:
        if (remedy := advice.get(failed.reason)) is None:
            raise
        raise Failed(failed.reason, f"{failed.message}; {remedy}") from failed


@contextlib.contextmanager
def stall_on_invalid_text() -> Iterator[None]:
    """Raise Stalled for a spec or a text of a user that the block cannot read."""
    try:
        yield
    except InvalidTextError as error:
        raise Stalled(error.reason, str(error)) from error


QUOTA_EXCEEDED: Final = "QuotaExceeded"


def over_quota(noun: str, namespace: str, total: int, most: int, option: str) -> Stalled:
    """The refusal of what would be `total` of a namespace, which may have `most` by `option`."""
    return Stalled(
        QUOTA_EXCEEDED,
        f"{noun} of namespace {namespace}: {total}, and its quota is {most}; "
        f"remove some, or have the quota raised ({option})",
    )
