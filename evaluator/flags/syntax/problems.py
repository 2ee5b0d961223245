"""What is wrong with a document, and where: data that a CLI, a status and an editor each show their way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluator.flags.checking.operators import Path
    from evaluator.flags.syntax.document import Document


class Severity(StrEnum):
    """`error`: flagd itself could not load or serve it. `warning`: flagd loads it and a person will regret
    it. `note`: worth knowing, never a failure.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to correct; sorts by place."""

    file: str
    line: int
    """From 1; 0 where the whole file is meant."""
    column: int
    """From 1, in characters; 0 where the whole file is meant."""
    severity: Severity
    code: str
    """Stable, kebab-case name of the rule, such as `unknown-operator`."""
    message: str
    """What is wrong and what to do."""
    path: str = ""
    """JSON path from the document's root, such as `$.flags.banner.defaultVariant`."""
    flag: str | None = None
    """The key of the flag concerned; None where the whole document or set is."""

    def __str__(self) -> str:
        places = (visible(self.file), *((self.line, self.column) if self.line else ()))
        place = "".join(f"{place}:" for place in places) + " " if self.file else ""
        return f"{place}{self.severity}: {self.message}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem whose line and column are not looked up yet: that takes long, and few are shown."""

    path: Path
    """From the root of the document; of the rule, where only a rule was given."""
    severity: Severity
    code: str
    message: str
    document: Document | None = None
    """None until a caller that knows the document sets it."""
    flag: str | None = None
    """The flag concerned; an error without one concerns the whole set."""
    at_key: bool = False
    """Whether the key is meant and not its value."""
    offset: int | None = None
    """In characters, where the reader of the text knows a better place than the path's."""

    @property
    def spoils_all(self) -> bool:
        """Whether no flag of the set can be trusted."""
        return self.flag is None and self.severity is Severity.ERROR


def visible(text: str) -> str:
    """The text with unprintable characters as `\\uXXXX`: it breaks no log line and steers no terminal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
