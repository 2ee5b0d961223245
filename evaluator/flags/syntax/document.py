"""One document as read: its value, what is wrong with its text, and where each part is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, Protocol

from evaluator.flags.model import ABSENT
from evaluator.flags.syntax.findings import problem_of
from evaluator.flags.syntax.json_text import read_json
from evaluator.flags.syntax.problems import Finding, Severity
from evaluator.flags.syntax.text import DEFAULT, EMPTY_DOCUMENT, Bounds, Lines, UnreadableError, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.checking.operators import Path
    from evaluator.flags.model import Absent, Json
    from evaluator.flags.syntax.problems import Problem


class Format(StrEnum):
    """How a document is written."""

    JSON = "json"
    YAML = "yaml"


_FORMATS: Final = {".json": Format.JSON, ".yaml": Format.YAML, ".yml": Format.YAML}


def format_of(file: str) -> Format | None:
    """The format that a file's extension names, whatever its case; None for any other."""
    return _FORMATS.get(PurePosixPath(file).suffix.lower())


class Places(Protocol):
    """Offsets of a document's parts."""

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Offset, in characters, of the value at `path` or of its key."""
        ...


@dataclass(frozen=True)
class Document:
    """A document's value, or ABSENT and one fault where it has none."""

    file: str
    value: Json | Literal[Absent.ABSENT]
    findings: tuple[Finding, ...] = ()
    """What is wrong with the text, by path: the parser judges which flags it concerns."""
    text: str = field(default="", repr=False)
    places: Places | None = field(default=None, repr=False)

    @property
    def unreadable(self) -> bool:
        """Whether nothing at all could be read."""
        return self.value is ABSENT

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The findings as problems."""
        return tuple(problem_of(replace(finding, document=self)) for finding in self.findings)

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> tuple[int, int]:
        """Line and column of the value at `path`, or of its key; of its nearest ancestor if it is missing; of
        the character at `offset` if that is given. (0, 0) in a document that could not be read.
        """
        if offset is not None:
            return self._lines.place(offset)
        if self.places is None:
            return 0, 0
        return self._lines.place(self.places.locate(path, key=key))

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.text)


def read_document(data: bytes, *, file: str, bounds: Bounds = DEFAULT) -> Document:
    """Read JSON or YAML, by the extension of `file` (JSON where it names neither). Never raises."""
    if len(data) > bounds.document_bytes:
        message = (
            f"the file has {len(data)} bytes, more than the {bounds.document_bytes} of a document; split it"
        )
        return Document(file, ABSENT, (Finding((), Severity.ERROR, "too-large", message),))
    try:
        text = decode(data)
    except UnreadableError as error:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return Document(file, ABSENT, (error.finding(),), text)
    if not text.strip():
        return Document(file, ABSENT, (EMPTY_DOCUMENT.finding(),), text)
    try:
        value, found, places = _reader(file)(text, bounds)
    except UnreadableError as error:
        return Document(file, ABSENT, (error.finding(),), text)
    return Document(file, value, found, text, places)


def _reader(file: str) -> Callable[[str, Bounds], tuple[Json, tuple[Finding, ...], Places]]:
    if format_of(file) is not Format.YAML:
        return read_json
    # A tenth of an evaluator's start, and 2 MB of it: most read JSON alone.
    from evaluator.flags.syntax.yaml_text import read_yaml  # noqa: PLC0415

    return read_yaml
