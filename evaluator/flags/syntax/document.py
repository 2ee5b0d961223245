"""A parsed document: its value, the problems of its text, and the place of each part."""

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


class Syntax(StrEnum):
    """The syntax of a document."""

    JSON = "json"
    YAML = "yaml"


_FORMATS: Final = {".json": Syntax.JSON, ".yaml": Syntax.YAML, ".yml": Syntax.YAML}


def format_of(file: str) -> Syntax | None:
    """Return the format of a file name's extension in any case; None for any other."""
    return _FORMATS.get(PurePosixPath(file).suffix.lower())


class Places(Protocol):
    """Offsets of a document's parts."""

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Return the offset, in characters, of the value at `path` or of its key."""
        ...


@dataclass(frozen=True)
class Document:
    """A document's value; if it has none, ABSENT and one finding."""

    file: str
    value: Json | Literal[Absent.ABSENT]
    findings: tuple[Finding, ...] = ()
    """Problems of the text, by path; the parser decides which flags they concern."""
    text: str = field(default="", repr=False)
    places: Places | None = field(default=None, repr=False)

    @property
    def unreadable(self) -> bool:
        """Whether the document has no value."""
        return self.value is ABSENT

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the findings as problems."""
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
    if format_of(file) is not Syntax.YAML:
        return read_json
    # Imported here: a tenth of an evaluator's start time and 2 MB, and most read only JSON.
    from evaluator.flags.syntax.yaml_text import read_yaml  # noqa: PLC0415

    return read_yaml
