"""What the parser found, before places are looked up: cheap to make, and only what is shown is placed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evaluator.flags.problems import Problem, Severity
from evaluator.flags.text import json_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.document import Document
    from evaluator.flags.model import Json
    from evaluator.flags.operators import Path
    from evaluator.flags.text import Bounds, Fault


class Piece(NamedTuple):
    """A part of a document; the value None removes, unless it stands in a whole document."""

    value: Json
    document: Document
    path: Path

    def place(self, *, key: bool = False) -> str:
        """Where it is, for a message about another place."""
        line, column = self.document.place(self.path, key=key)
        return f"{self.document.file}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem whose line and column are still to be looked up."""

    document: Document
    path: Path
    severity: Severity
    code: str
    message: str
    flag: str | None = None
    """The flag concerned; an error without one concerns the whole set."""
    at_key: bool = False
    """Whether the key is meant and not its value."""
    fault: Fault | None = None

    @property
    def spoils_all(self) -> bool:
        """Whether no flag of the set can be trusted."""
        return self.flag is None and self.severity is Severity.ERROR

    def problem(self) -> Problem:
        """The same with its place."""
        if self.fault is None:
            line, column = self.document.place(self.path, key=self.at_key)
        else:
            line, column = self.document.place_of(self.fault)
        where = json_path(self.path)
        return Problem(
            self.document.file, line, column, self.severity, self.code, self.message, where, self.flag
        )  # fmt: skip


def placed(findings: Sequence[Finding], bounds: Bounds) -> tuple[Problem, ...]:
    """The findings as problems, by place; past the bound only errors first, and how many are left out."""
    shown = list(findings)
    left_out = shown[:0]
    if len(shown) > bounds.problems:
        shown.sort(key=lambda finding: finding.severity is not Severity.ERROR)
        shown, left_out = shown[: bounds.problems], shown[bounds.problems :]
    problems = sorted((finding.problem() for finding in shown), key=_by_place)
    if left_out:
        message = f"{len(left_out)} more problems are not shown; mend these first"
        problems.append(
            Problem(left_out[0].document.file, 0, 0, left_out[0].severity, "too-many-problems", message)
        )  # fmt: skip
    return tuple(problems)


def _by_place(problem: Problem) -> tuple[str, int, int, str, str, str]:
    return (
        problem.file,
        problem.line,
        problem.column,
        problem.severity,
        problem.code,
        problem.message,
    )
