"""Documents, and problems with their places, as data for command line, status and editor. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from evaluator.flags.model import ABSENT, Absent, Json, Path
from evaluator.flags.text import Bounds, Lines, json_path, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_BY_PLACE: Final = attrgetter("file", "line", "column", "severity", "code", "message")


class Severity(StrEnum):
    """`error`: flagd cannot load or serve it. `warning`: flagd loads it, but it is likely a mistake. `note`:
    a remark, never a failure.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to correct; sorts by place."""

    file: str
    line: int
    """Line, from 1; 0 for a problem of the whole file."""
    column: int
    """Column in characters, from 1; 0 for a problem of the whole file."""
    severity: Severity
    code: str
    """Stable, kebab-case name of the rule, such as `unknown-operator`."""
    message: str
    """The fault and its remedy."""
    path: str = ""
    """JSON path from the document's root, such as `$.flags.banner.defaultVariant`."""
    flag: str | None = None
    """Key of the flag concerned; None for a problem of the whole document or set."""

    def __str__(self) -> str:
        places = (visible(self.file), *((self.line, self.column) if self.line else ()))
        place = "".join(f"{place}:" for place in places) + " " if self.file else ""
        return f"{place}{self.severity}: {self.message}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem without line and column yet: looking them up takes long, and few are shown."""

    path: Path
    """The path from the root of the document, or of the rule if only a rule was given."""
    severity: Severity
    code: str
    text: str | Callable[[], str]
    """The message, or what makes it where that takes a search."""
    document: Document | None = None
    """The document; None until a caller that knows it sets it."""
    flag: str | None = None
    """The flag concerned; an error without one concerns the whole set."""
    at_key: bool = False
    """Whether the key is at fault, not its value."""
    offset: int | None = None
    """Offset in characters, if the parser knows a better place than the path's."""

    @property
    def message(self) -> str:
        """The fault and its remedy."""
        return self.text if isinstance(self.text, str) else self.text()

    @property
    def spoils_all(self) -> bool:
        """Whether no flag of the set can be trusted."""
        return self.flag is None and self.severity is Severity.ERROR


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


class PartOffsets(Protocol):
    """Offsets of a document's parts."""

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Return the offset, in characters, of the value at `path` or of its key."""
        ...


class Part(NamedTuple):
    """A document as it was read from a text."""

    value: Json
    findings: Sequence[Finding]
    places: PartOffsets
    start: int = 0
    """The offset of the document in its file, which may hold several."""


_NO_LINES: Final = Lines("")


@dataclass(frozen=True)
class Document:
    """A document's value; if it has none, ABSENT and one finding. A file may hold several."""

    file: str
    value: Json | Literal[Absent.ABSENT]
    findings: tuple[Finding, ...] = ()
    """Problems of the text, by path; the parser decides which flags they concern."""
    text: str = field(default="", repr=False)
    places: PartOffsets | None = field(default=None, repr=False)

    start: int = 0
    """The offset of the document in `text`."""
    part: str = ""
    """What of the file it is, such as a key of a ConfigMap; messages about it begin with this."""
    embedded: bool = False
    """Whether it is part of another document, such as a manifest, of which a file may hold several."""
    passed_over: bool = False
    """Whether it holds no definitions by its kind, and has no value therefore."""
    lines: Lines = field(default=_NO_LINES, repr=False, compare=False)
    """Those of `text`, shared with documents that are made of this one: a file may hold thousands."""

    def __post_init__(self) -> None:
        if self.lines.text is not self.text:
            object.__setattr__(self, "lines", Lines(self.text))

    @property
    def unreadable(self) -> bool:
        """Whether the document has no value although it may hold definitions."""
        return self.value is ABSENT and not self.passed_over

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the findings as problems."""
        return tuple(problem_of(replace(finding, document=self)) for finding in self.findings)

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> tuple[int, int]:
        """Line and column of the value at `path`, or of its key; of its nearest ancestor if it is missing; of
        the character at `offset` if that is given. (0, 0) in a document that could not be read.
        """
        if offset is not None:
            return self.lines.place(offset)
        if self.places is None:
            return 0, 0
        return self.lines.place(self.places.locate(path, key=key))


class Piece(NamedTuple):
    """A part of a document; None removes the lower layer's value, except in a whole document."""

    value: Json
    document: Document
    path: Path

    def place(self, *, key: bool = False) -> str:
        """Return the place, for a message about another place."""
        line, column = self.document.place(self.path, key=key)
        return f"{self.document.file}:{line}:{column}"

    def finding(
        self,
        severity: Severity,
        code: str,
        message: str | Callable[[], str],
        flag: str | None = None,
        *,
        below: Path = (),
        at_key: bool = False,
    ) -> Finding:
        """Return a problem of the piece, or of its part `below`; `flag` as in Finding."""
        return Finding((*self.path, *below), severity, code, message, self.document, flag, at_key)


def problem_of(finding: Finding) -> Problem:
    """Return the finding with its file, line and column."""
    document = finding.document
    file, place, message = "", (0, 0), finding.message
    if document is not None:
        file = document.file
        message = f"{visible(document.part)}: {message}" if document.part else message
        place = document.place(finding.path, key=finding.at_key, offset=finding.offset)
    where = json_path(finding.path)
    return Problem(file, *place, finding.severity, finding.code, message, where, finding.flag)


def problems_of(findings: Sequence[Finding], bounds: Bounds) -> tuple[Problem, ...]:
    """Return the findings as problems, by place. Past the bound: errors first, then the number left out."""
    shown = list(findings)
    left_out = shown[:0]
    if len(shown) > bounds.problems:
        shown.sort(key=lambda finding: finding.severity is not Severity.ERROR)
        shown, left_out = shown[: bounds.problems], shown[bounds.problems :]
    problems = sorted((problem_of(finding) for finding in shown), key=_BY_PLACE)
    if left_out:
        message = f"{len(left_out)} more problems are not shown; correct these first"
        problems.append(
            Problem(problem_of(left_out[0]).file, 0, 0, left_out[0].severity, "too-many-problems", message)
        )  # fmt: skip
    return tuple(problems)
