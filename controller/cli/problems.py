"""Problems as verbs print and count them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from controller.cli.printing import printable
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SARIF_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def failures(problems: Iterable[Problem], *, lenient: bool) -> list[Problem]:
    """The problems that make a verb exit with 1: errors, and warnings unless `lenient`."""
    severities = {Severity.ERROR} if lenient else {Severity.ERROR, Severity.WARNING}
    return [problem for problem in problems if problem.severity in severities]


def summary(valid: int, problems: Sequence[Problem], what: str = "flag") -> str:
    """`6 valid flags`, and the number of problems by severity: `5 valid flags, 1 error, 2 warnings`."""
    counts = Counter(problem.severity.value for problem in problems)
    parts = [format_count(valid, f"valid {what}")]
    return ", ".join(parts + [format_count(count, severity) for severity, count in sorted(counts.items())])


def format_count(number: int, what: str) -> str:
    """`1 flag`, `2 flags`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def as_json(problems: Sequence[Problem]) -> str:
    """A list of objects."""
    return (
        printable(json.dumps([as_object(problem) for problem in problems], indent=2, ensure_ascii=False))
        + "\n"
    )


def as_object(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON."""
    return {
        "severity": problem.severity.value,
        "code": problem.code,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def as_sarif(problems: Sequence[Problem]) -> str:
    """SARIF 2.1.0 (docs.oasis-open.org/sarif), which code hosts show beside the lines."""
    rules = [{"id": code} for code in sorted({problem.code for problem in problems})]
    tool = {"driver": {"name": "flagstaff", "rules": rules}}
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": [_result(problem) for problem in problems]}],
    }
    return printable(json.dumps(log, indent=2, ensure_ascii=False)) + "\n"


def _result(problem: Problem) -> dict[str, Any]:
    region = {"startLine": max(problem.line, 1), "startColumn": max(problem.column, 1)}
    place = {"artifactLocation": {"uri": problem.file}, "region": region}
    return {
        "ruleId": problem.code,
        "level": problem.severity.value,
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": place}],
    }
