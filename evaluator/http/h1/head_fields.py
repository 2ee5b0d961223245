"""Decodes header names and request targets, which are few and therefore cached, and measures them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.server.dispatch import split_target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.http.messages import Request

_KNOWN: Final = 512
"""Most names and targets whose decoded form is cached."""
LONGEST_KNOWN: Final = 64
KEPT_FIELD_BYTES: Final = 160
"""Bytes of memory that Python needs for a header beside its text."""


class _Names(dict[bytes, str]):
    """Cache of lower-case header names by raw name: clients use few."""

    def __missing__(self, sent: bytes) -> str:
        name = sent.decode("latin-1").lower()
        if len(sent) <= LONGEST_KNOWN:
            if len(self) == _KNOWN:
                self.clear()
            self[sent] = name
        return name


def read_target(target: bytes) -> tuple[str, str]:
    """(path, percent-decoded; query)."""
    return split_target(target.decode("latin-1"))


NAMES: Final = _Names()
known_target = lru_cache(_KNOWN)(read_target)


def size_of(fields: Iterable[tuple[str, str]], beside: int = 0) -> int:
    """Bytes of header fields, with so many beside the text of each."""
    return sum([len(name) + len(value) + beside for name, value in fields])


def held_by(request: Request) -> int:
    """About how many bytes a request takes."""
    return len(request.body) + size_of(request.headers, KEPT_FIELD_BYTES)
