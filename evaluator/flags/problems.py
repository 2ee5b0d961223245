"""What is wrong with a document, and where: data, so that a CLI, a status and an editor can each show it their way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evaluator.flags.visible import visible


class Severity(StrEnum):
    """`error`: flagd itself could not load or serve it. `warning`: flagd loads it and a person will regret it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend; sorts by place."""

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
        return f"{visible(self.file)}:{self.line}:{self.column}: {self.severity}: {self.message}"
