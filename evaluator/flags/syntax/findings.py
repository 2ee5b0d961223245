"""Pieces of documents, and problems with their places."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.syntax.problems import Finding, Problem, Severity
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.checking.operators import Path
    from evaluator.flags.model import Json
    from evaluator.flags.syntax.document import Document
    from evaluator.flags.syntax.text import Bounds

_BY_PLACE: Final = attrgetter("file", "line", "column", "severity", "code", "message")


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
        message: str,
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
    file, place = "", (0, 0)
    if document is not None:
        file = document.file
        place = document.place(finding.path, key=finding.at_key, offset=finding.offset)
    where = json_path(finding.path)
    return Problem(file, *place, finding.severity, finding.code, finding.message, where, finding.flag)


def placed(findings: Sequence[Finding], bounds: Bounds) -> tuple[Problem, ...]:
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
