"""Text of a document: decoding, places, and quotes for messages."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

from evaluator.flags.syntax.problems import Finding, Severity, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.flags.checking.operators import Path

QUOTED: Final = 60
"""Most characters of a document's own text that a message repeats."""

_PLAIN: Final = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one document; anything past a bound is an error."""

    document_bytes: int = 16 * 1024 * 1024
    flags: int = 100_000
    depth: int = 100
    """Most containers inside each other."""
    nodes: int = 2_000_000
    """Most values of any kind in one document."""
    alias_nodes: int = 10_000
    """Most values that YAML aliases may add to one document."""
    problems: int = 1_000
    """Most reported problems; of further ones only the number is reported."""


DEFAULT: Final = Bounds()


class UnreadableError(Exception):
    """The document has no value; `offset` is None if no place is known."""

    def __init__(self, code: str, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.offset = offset

    def finding(self) -> Finding:
        """Return the error as the one finding of a document without a value."""
        return Finding((), Severity.ERROR, self.code, str(self), offset=self.offset)


EMPTY_DOCUMENT: Final = UnreadableError(
    "empty-document", "the document is empty; it needs `flags`, if only an empty object"
)


class Lines:
    """Line and column of an offset, both from 1 and in characters."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of the character at `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def decode(source: bytes) -> str:
    """Decode UTF-8, with or without byte order mark; raises `UnreadableError` with the bad byte and line."""
    try:
        return source.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{source[error.start]:02x} on line {line} is not UTF-8; save the file as UTF-8"
        text = source[: error.start].decode("utf-8").removeprefix("\ufeff")
        raise UnreadableError("not-utf-8", message, len(text)) from None


def quoted(text: object) -> str:
    """Return a value as JSON for a message, cut if it is long."""
    shown = json.dumps(text, ensure_ascii=False, default=str)
    return visible(shown if len(shown) <= QUOTED else f"{shown[: QUOTED - 1]}…")


def choices(names: Iterable[str]) -> str:
    """Return up to five names, quoted, for "choose one of …"."""
    first = list(islice(names, 6))
    shown = ", ".join(quoted(name) for name in first[:5])
    return f"{shown}, …" if len(first) > 5 else shown


def json_path(path: Path) -> str:
    """Return a path in its usual notation: `$.flags.banner.variants["on call"]`."""
    parts = ["$"]
    for step in path:
        if isinstance(step, str) and _PLAIN.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{visible(json.dumps(step, ensure_ascii=False))}]")
    return "".join(parts)
