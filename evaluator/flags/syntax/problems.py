"""Problems of a document and their places, as data for command line, status and editor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluator.flags.checking.operators import Path
    from evaluator.flags.syntax.document import Document


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
    message: str
    document: Document | None = None
    """The document; None until a caller that knows it sets it."""
    flag: str | None = None
    """The flag concerned; an error without one concerns the whole set."""
    at_key: bool = False
    """Whether the key is at fault, not its value."""
    offset: int | None = None
    """Offset in characters, if the parser knows a better place than the path's."""

    @property
    def spoils_all(self) -> bool:
        """Whether no flag of the set can be trusted."""
        return self.flag is None and self.severity is Severity.ERROR


def visible(text: str) -> str:
    """Return the text with unprintable characters as `\\uXXXX`, so that it is safe in logs and terminals."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
