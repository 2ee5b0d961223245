"""What came of tests of flags, as JSON, JUnit and annotations of GitHub have it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controller.authoring.flag_test_coverage import Coverage
    from controller.authoring.flag_test_runs import TestOutcome, TestReport


PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_SUITE: Final = "flagstaff test"


@dataclass(frozen=True, slots=True)
class TestRecord:
    """One case of a test."""

    __test__ = False

    name: str
    """The name of the test, with the values of its matrix."""
    flag: str | None
    """The key of the flag that it is about."""
    evaluator: str | None
    """The name of the evaluator that it is about."""
    file: str
    """The file of the test."""
    line: int
    """The line of the test."""
    result: str
    """`passed`, `failed`, or `skipped` where the flag has problems of its own."""
    expected: str | None
    """What was expected, if it ran."""
    came: str | None
    """What came, if it ran."""
    trace: tuple[str, ...] | None
    """How the answer came about, if it failed."""
    users: tuple[str, ...] | None
    """Of a test of an evaluator that failed: the keys of the flags that use it, also by way of others."""


@dataclass(frozen=True, slots=True)
class CoverageRecord:
    """What all tests reach."""

    percent: float
    """The share of variants and branches that tests reach."""
    flags: tuple[int, int]
    """Flags that have a test, of all."""
    variants: tuple[int, int]
    """Variants that a test reaches, of all of enabled flags."""
    branches: tuple[int, int]
    """Results of conditions in rules that a test reaches, of all."""
    unreached: dict[str, tuple[str, ...]]
    """What no test reaches of each flag, by key."""


@dataclass(frozen=True, slots=True)
class TestRunRecord:
    """What `flagstaff test` found."""

    __test__ = False

    tests: tuple[TestRecord, ...]
    """All cases, in the order of the files."""
    coverage: CoverageRecord
    """What they reach."""
    problems: tuple[str, ...]
    """What is wrong with definitions and files of tests."""


def test_run_record(report: TestReport, problems: Iterable[Problem]) -> TestRunRecord:
    """The report as a record."""
    return TestRunRecord(
        tuple(map(_record, report.outcomes)), _coverage(report.coverage), tuple(map(str, problems))
    )


test_run_record.__test__ = False  # type: ignore[attr-defined]


def _record(outcome: TestOutcome) -> TestRecord:
    test = outcome.test
    line, _ = test.document.place(test.path)
    return TestRecord(
        test.name,
        test.flag,
        test.subject if test.of_evaluator else None,
        test.document.file,
        line,
        SKIPPED if outcome.skipped else PASSED if outcome.passed else FAILED,
        outcome.expected or None,
        outcome.came or None,
        outcome.trace or None,
        outcome.users or None,
    )


def _coverage(coverage: Coverage) -> CoverageRecord:
    return CoverageRecord(
        round(coverage.percent, 1),
        (coverage.flags.reached, coverage.flags.total),
        (coverage.variants.reached, coverage.variants.total),
        (coverage.branches.reached, coverage.branches.total),
        coverage.unreached,
    )


def as_junit(run: TestRunRecord) -> str:
    """JUnit's XML: a suite for each file, and one of the problems that kept tests from being run."""
    root = Element("testsuites", name=_SUITE)
    for file, records in groupby(run.tests, lambda record: record.file):
        of_file = [*records]
        suite = _suite(root, file, [record.result for record in of_file])
        for record in of_file:
            subject = record.flag or record.evaluator or ""
            case = SubElement(suite, "testcase", classname=_text(subject), name=_text(record.name))
            case.attrib |= {"file": _text(record.file), "line": str(record.line)}
            if record.result == SKIPPED:
                SubElement(case, "skipped")
            elif record.result == FAILED:
                message = _text(f"expected {record.expected}; came {record.came}")
                used = [f"used by {', '.join(record.users)}"] if record.users else []
                SubElement(case, "failure", message=message).text = _text(
                    "\n".join((*(record.trace or ()), *used))
                )
    if run.problems:
        suite = _suite(root, "problems", [FAILED] * len(run.problems))
        for problem in run.problems:
            case = SubElement(suite, "testcase", classname="problems", name=_text(problem))
            SubElement(case, "failure", message=_text(problem))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: Element, name: str, results: Sequence[str]) -> Element:
    suite = SubElement(root, "testsuite", name=_text(name), tests=str(len(results)))
    suite.attrib |= {"failures": str(results.count(FAILED)), "skipped": str(results.count(SKIPPED))}
    return suite


def _text(text: str) -> str:
    """XML has no control characters."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text)


def as_annotations(problems: Iterable[Problem]) -> str:
    """A line for each problem, which GitHub Actions show beside the file."""
    return "".join(f"{_annotation(problem)}\n" for problem in problems)


def _annotation(problem: Problem) -> str:
    places = {"file": problem.file, "line": problem.line or None, "col": problem.column or None}
    properties = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in places.items() if value)
    return f"::{_LEVELS[problem.severity]} {properties}::{_escape(problem.message)}"


def _escape(text: str, more: str = "") -> str:
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{more}" else sign for sign in text)
