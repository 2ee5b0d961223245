"""Reads a document, JSON or YAML, with the problems of its text and the place of each part. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from evaluator.flags.json_text import read_json
from evaluator.flags.model import ABSENT
from evaluator.flags.problems import EMPTY_DOCUMENT, Document, Finding, Part, Severity, UnreadableError
from evaluator.flags.recognition import Unread, recognise_text
from evaluator.flags.text import DEFAULT, Bounds

if TYPE_CHECKING:
    from collections.abc import Callable


_BROKEN: Final = frozenset({"broken-json", "broken-yaml", "complex-key", "not-utf-8"})
"""Problems of texts that may be something else."""
SEVERAL: Final = "a second YAML document starts here; only manifests may share a file, so split it"


class Syntax(StrEnum):
    """The syntax of a document."""

    JSON = "json"
    YAML = "yaml"


_FORMATS: Final = {".json": Syntax.JSON, ".yaml": Syntax.YAML, ".yml": Syntax.YAML}


def format_of(file: str) -> Syntax | None:
    """Return the format of a file name's extension in any case; None for any other."""
    return _FORMATS.get(PurePosixPath(file).suffix.lower())


def decode(source: bytes) -> str:
    """Decode UTF-8, with or without byte order mark; raises `UnreadableError` with the bad byte and line."""
    try:
        return source.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{source[error.start]:02x} on line {line} is not UTF-8; save the file as UTF-8"
        text = source[: error.start].decode("utf-8").removeprefix("\ufeff")
        raise UnreadableError("not-utf-8", message, len(text)) from None


def read_document(data: bytes, *, file: str, bounds: Bounds = DEFAULT) -> Document:
    """Read JSON or YAML, by the extension of `file` (JSON where it names neither). Never raises: a file of
    several documents has no value, and an error.
    """
    first, *more = read_documents(data, file=file, bounds=bounds)
    return without_value(more[0], "several-documents", SEVERAL, more[0].start) if more else first


def read_documents(data: bytes, *, file: str, bounds: Bounds = DEFAULT) -> list[Document]:
    """Read every document of a file, one at least, as `read_document` does."""
    if len(data) > bounds.document_bytes:
        message = (
            f"the file has {len(data)} bytes, more than the {bounds.document_bytes} of a document; split it"
        )
        return [Document(file, ABSENT, (Finding((), Severity.ERROR, "too-large", message),))]
    try:
        text = decode(data)
    except UnreadableError as error:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return [_unreadable(error, file, data, text)]
    if not text.strip():
        return [Document(file, ABSENT, (EMPTY_DOCUMENT.finding(),), text)]
    try:
        parts = _reader(file)(text, bounds)
    except UnreadableError as error:
        return [_unreadable(error, file, data, text)]
    if len(parts) == 1 and isinstance(parts[0].value, str):
        seen = recognise_text(Unread(data, text, 0, parts[0].value))
        if seen is not None:
            return [Document(file, ABSENT, (UnreadableError("not-an-object", *seen).finding(),), text)]
    return [Document(file, part.value, tuple(part.findings), text, part.places, part.start) for part in parts]


def _unreadable(error: UnreadableError, file: str, data: bytes, text: str) -> Document:
    """Return a document that could not be read, with what it is in place of what its reader says."""
    if error.code in _BROKEN:
        unread = Unread(data, text, error.offset or 0, yaml=format_of(file) is Syntax.YAML)
        seen = recognise_text(unread)
        error = error if seen is None else UnreadableError(error.code, *seen)
    return Document(file, ABSENT, (error.finding(),), text)


def without_value(document: Document, code: str, message: str, offset: int | None = None) -> Document:
    """Return the document without its value, and with one error instead; at its start, or at `offset`."""
    finding = Finding((), Severity.ERROR, code, message, offset=offset)
    return replace(document, value=ABSENT, findings=(finding,))


def _reader(file: str) -> Callable[[str, Bounds], list[Part]]:
    if format_of(file) is not Syntax.YAML:
        return read_json
    # Imported here: a tenth of an evaluator's start time and 2 MB, and most read only JSON.
    from evaluator.flags.yaml_text import read_yaml  # noqa: PLC0415

    return read_yaml
