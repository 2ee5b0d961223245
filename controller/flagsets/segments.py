"""Segments: long lists of `$evaluators` that stand in files beside the definitions. Pure.

`{"in": [{"var": "targetingKey"}, {"file": "beta.segment.csv", "column": "id"}]}` comes to a plain list of
texts, which every evaluator and provider reads. A file that cannot be read is an error of the shared rules
that name it, so that the flags which refer to these keep their last good definitions.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
import unicodedata
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.document import decode
from evaluator.flags.known_operators import FILE, MEMBERSHIP, shorten
from evaluator.flags.layer import EVALUATORS
from evaluator.flags.model import ABSENT, Json, Path
from evaluator.flags.problems import Document, Finding, Severity, UnreadableError
from evaluator.flags.suggestions import did_you_mean
from evaluator.flags.text import choices, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CODE: Final = "bad-segment"
CSV: Final = ".segment.csv"
LINES: Final = ".segment.txt"
MOST_VALUES: Final = 200_000
"""Values of one file."""
MOST_IN_ALL: Final = 500_000
"""Values of all lists that files come to in one layer, each as often as a rule names it."""
MOST_BYTES: Final = 12 * 1024 * 1024
"""Bytes of the same."""
_LONGEST: Final = 1_024
"""Characters of one value."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode's categories of characters that are not seen."""
_FORM: Final = (
    f'{{"file": "beta{CSV}", "column": "id"}}, or {{"file": "beta{LINES}"}} with a value on each line'
)


def is_segment_file(name: str) -> bool:
    """Return whether a file has the list of a segment, by its name."""
    return name.endswith((CSV, LINES))


class SegmentRefused(Exception):
    """A list cannot be read; the offset is in its file, or None for what is wrong with the rule."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class _List:
    values: list[Json]
    document: Document
    warnings: tuple[tuple[int, str], ...] = ()
    """(offset, message)."""


@dataclass(slots=True)
class Segments:
    """The lists in files of one layer."""

    files: Mapping[str, bytes]
    """The files by name, `/` between folders."""
    _lists: dict[tuple[str, str | None], _List | SegmentRefused] = field(default_factory=dict)
    _left: int = MOST_IN_ALL
    _bytes_left: int = MOST_BYTES

    def expand(self, document: Document) -> Document:
        """Return the document with the lists of its `$evaluators` written out, and with what is wrong with
        them.
        """
        top = document.value
        shared = top.get(EVALUATORS) if isinstance(top, dict) else None
        if not isinstance(top, dict) or not isinstance(shared, dict):
            return document
        findings: list[Finding] = []
        bodies = dict(shared)
        for name, body in shared.items():
            for path, named in lists_in_files(body, (EVALUATORS, name)):
                values, found = self._read(document, path, named)
                bodies[name] = _with(bodies[name], path[2:], values)
                findings += found
        if bodies == shared:
            return document
        value = {**top, EVALUATORS: bodies}
        return replace(document, value=value, findings=(*document.findings, *findings))

    def values(self, document: Document, named: dict[str, Json]) -> tuple[str, list[Json]]:
        """Return the file of a list that a document names, and its values. Raises SegmentRefused."""
        found = self._list(posixpath.dirname(document.file), named)
        if isinstance(found, SegmentRefused):
            raise found
        return found.document.file, found.values

    def _read(
        self, document: Document, path: Path, named: dict[str, Json]
    ) -> tuple[list[Json], list[Finding]]:
        """Return the values of a list, and what is wrong with it."""
        folder = posixpath.dirname(document.file)
        try:
            found = self._list(folder, named)
        except SegmentRefused as refused:
            return [], [Finding(path, Severity.ERROR, CODE, str(refused))]
        if isinstance(found, _List):
            self._left -= len(found.values)
            self._bytes_left -= len(found.document.text)
            if self._left < 0 or self._bytes_left < 0:
                message = (
                    f"with this list, those of the layer have more than {MOST_IN_ALL} values or {MOST_BYTES} "
                    "bytes; refer to one shared rule by $ref, or make several flag sets"
                )
                return [], [Finding(path, Severity.ERROR, CODE, message)]
            warnings = [
                Finding(path, Severity.WARNING, CODE, message, found.document, offset=offset)
                for offset, message in found.warnings
            ]
            return found.values, warnings
        file = Document(
            posixpath.join(folder, str(named[FILE])),
            ABSENT,
            text=self.files[posixpath.join(folder, str(named[FILE]))].decode(errors="replace"),
        )
        return [], [Finding(path, Severity.ERROR, CODE, str(found), file, offset=found.offset)]

    def _list(self, folder: str, named: dict[str, Json]) -> _List | SegmentRefused:
        """Return what a file has, or what is wrong within it. Raises SegmentRefused where none is named."""
        name, column = named[FILE], named.get("column")
        if not isinstance(name, str) or named.keys() - {FILE, "column"} or not is_segment_file(name):
            raise SegmentRefused(f"this is no list in a file; write {_FORM}")
        if "/" in name or "\\" in name:
            raise SegmentRefused(
                f"{quote(name)} must be the name of a file beside this one, without a folder"
            )
        if name.endswith(CSV) and not isinstance(column, str):
            raise SegmentRefused(f'{quote(name)} has columns; say which one: "column": "id"')
        if name.endswith(LINES) and "column" in named:
            raise SegmentRefused(f"{quote(name)} has no columns but a value on each line; take `column` out")
        place = posixpath.join(folder, name)
        if place not in self.files:
            beside = [posixpath.basename(file) for file in self.files if posixpath.dirname(file) == folder]
            near = did_you_mean(name, beside)
            known = f"; there are {choices(sorted(beside))}" if beside and not near else ""
            raise SegmentRefused(f"there is no file {quote(name)} beside this one{near}{known}")
        key = (place, column if isinstance(column, str) else None)
        if key not in self._lists:
            try:
                self._lists[key] = _read_list(place, self.files[place], key[1])
            except SegmentRefused as refused:
                self._lists[key] = refused
        return self._lists[key]


def with_listed(content: bytes, column: str | None, value: str) -> bytes:
    """Return a file that can be read, with a value behind its others. Raises SegmentRefused."""
    text = content.decode()
    written, end = text.rstrip(), _line_end(text)
    if column is not None:
        header = next(csv.reader(io.StringIO(text, newline="")))
        if len(header) > 1:
            message = f"a row has {', '.join(header)}, and one value is given; write the row by hand"
            raise SegmentRefused(message)
        if written.endswith('"') or {*value} & {*',"'}:
            doubled = value.replace('"', '""')
            value = f'"{doubled}"'
    return f"{written}{end}{value}{text[len(written) :]}".encode()


def without_listed(content: bytes, column: str | None, value: str) -> bytes:
    """Return a file that can be read, without the lines or rows of a value."""
    text = content.decode()
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    kept = [line for line in lines if line.strip() != value]
    if column is not None:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        at = [name.strip() for name in next(reader)].index(column)
        line = reader.line_num
        kept = lines[:line]
        for row in reader:
            if not row or row[at].strip() != value:
                kept += lines[line : reader.line_num]
            line = reader.line_num
    made = "".join(kept)
    return (made if text.endswith("\n") else made.removesuffix(_line_end(text))).encode()


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def lists_in_files(body: Json, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield place and content of each list in a file: the second argument of an `in`."""
    pending: list[tuple[Json, Path]] = [(body, path)]
    while pending:
        value, here = pending.pop()
        if isinstance(value, dict):
            arguments = value.get(MEMBERSHIP)
            named = arguments[1] if isinstance(arguments, list) and len(arguments) == 2 else None
            if isinstance(named, dict) and FILE in named:
                yield (*here, MEMBERSHIP, 1), named
            pending += [(part, (*here, key)) for key, part in value.items()]
        elif isinstance(value, list):
            pending += [
                (part, (*here, at)) for at, part in enumerate(value) if isinstance(part, (dict, list))
            ]


def _with(body: Json, path: Path, values: list[Json]) -> Json:
    """Return a copy of the rule with the values at `path`."""
    if not path:
        return values
    step, *rest = path
    if isinstance(body, dict):
        return {**body, step: _with(body[step], tuple(rest), values)}
    return [_with(part, tuple(rest), values) if at == step else part for at, part in enumerate(body)]


def _read_list(name: str, content: bytes, column: str | None) -> _List:
    """Raises SegmentRefused."""
    try:
        text = decode(content)
    except UnreadableError as error:
        raise SegmentRefused(str(error), error.offset) from None
    document = Document(name, ABSENT, text=text)
    written_lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in written_lines)]
    lines = enumerate(written_lines) if column is None else _rows(text, column, starts)
    first: dict[str, int] = {}
    repeated: list[tuple[int, str]] = []
    for number, written in lines:
        value = written.strip()
        if not value:
            if column is not None:
                raise SegmentRefused(f"there is no value in the column {quote(column)}", starts[number])
            continue
        if len(value) > _LONGEST:
            raise SegmentRefused(f"the value has more than {_LONGEST} characters", starts[number])
        if not value.isascii() or not value.isprintable():
            _require_seen(value, starts[number])
        if first.setdefault(value, number) != number:
            repeated.append((number, value))
        elif len(first) > MOST_VALUES:
            raise SegmentRefused(
                f"the file has more than {MOST_VALUES} values; make several of it, and join them by `or`",
                starts[number],
            )
    if not first:
        raise SegmentRefused("the file has no value; add one, or take the rule out")
    return _List([*first], document, _repetitions(repeated, first, starts))


def _repetitions(
    repeated: list[tuple[int, str]], first: Mapping[str, int], starts: list[int]
) -> tuple[tuple[int, str], ...]:
    if not repeated:
        return ()
    number, value = repeated[0]
    more = f", and {len(repeated) - 1} more values stand here twice" if len(repeated) > 1 else ""
    message = f"{shorten(value)} is on line {first[value] + 1}, too{more}; keep one of each"
    return ((starts[number], message),)


def _require_seen(value: str, offset: int) -> None:
    for sign in value:
        if unicodedata.category(sign) in _UNSEEN:
            message = (
                f"{shorten(value)} has U+{ord(sign):04X}, which is not seen, so the value looks like another "
                "and is none; take it out"
            )
            raise SegmentRefused(message, offset)


def _rows(text: str, column: str, starts: list[int]) -> Iterator[tuple[int, str]]:
    """Yield (line, from 0; value of the column) of each row. Raises SegmentRefused."""
    if not text.strip():
        raise SegmentRefused("the file is empty; its first line names the columns")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 0
    try:
        header = [name.strip() for name in next(reader, [])]
        if header.count(column) != 1:
            what = "has two columns" if column in header else "has no column"
            near = did_you_mean(column, header)
            raise SegmentRefused(
                f"the first line {what} {quote(column)}{near}; its columns are {choices(header)}", 0
            )
        at, line = header.index(column), reader.line_num
        for row in reader:
            if row:
                if len(row) != len(header):
                    message = f"the row has {len(row)} of the {len(header)} values that the first line names"
                    raise SegmentRefused(message, starts[line])
                yield line, row[at]
            line = reader.line_num
    except csv.Error as error:
        message = f"this is no CSV: {error}; separate values by commas"
        raise SegmentRefused(message, starts[min(line, len(starts) - 1)]) from None
