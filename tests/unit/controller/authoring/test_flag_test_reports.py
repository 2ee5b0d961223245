"""What came of tests, in the forms that programs read."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from controller.authoring.flag_test_reports import as_annotations, as_junit, test_run_record
from evaluator.flags.problems import Problem, Severity
from tests.unit.controller.authoring.test_flag_test_runs import flags, report_of

PASSES, FAILS = {"expect": {"value": False}}, {"name": "a\x1b[31mb", "expect": {"value": True}}
BAD = Problem("f,1.yaml", 2, 3, Severity.ERROR, "bad", "100 % wrong\nhere")


def test_a_record_says_of_each_case_what_came_of_it() -> None:
    record = test_run_record(report_of(flags(), PASSES, FAILS), [BAD])
    assert [(case.result, case.line) for case in record.tests] == [("passed", 2), ("failed", 6)]
    assert record.coverage.variants == (1, 2)
    assert record.problems == (str(BAD),)


def test_junit_counts_by_file_and_has_no_control_characters() -> None:
    text = as_junit(test_run_record(report_of(flags(), PASSES, FAILS), [BAD]))
    of_file, of_problems = ET.fromstring(text)  # noqa: S314 - made here
    assert of_file.attrib == {"name": "f.flagtest.yaml", "tests": "2", "failures": "1", "skipped": "0"}
    assert [case.attrib["name"] for case in of_file] == ["0", "a\ufffd[31mb"]
    assert of_file[1][0].attrib["message"].startswith("expected value true; came")
    assert of_problems.attrib["failures"] == "1"


def test_junit_names_what_was_skipped() -> None:
    text = as_junit(test_run_record(report_of(flags(), PASSES, skip={"f"}), []))
    assert '<testsuite name="f.flagtest.yaml" tests="1" failures="0" skipped="1">' in text


def test_an_annotation_of_github_is_one_line() -> None:
    assert as_annotations([BAD]) == "::error file=f%2C1.yaml,line=2,col=3::100 %25 wrong%0Ahere\n"
