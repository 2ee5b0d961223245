"""What a file of tests may say, and what is said of one that is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.flag_test_files import MOST_ROWS, TEST_BOUNDS, FlagTest, FlagTests, read_flag_tests

FILE = "flags/shop.flagtest.yaml"
GOOD = {"name": "it is on", "flag": "banner", "expect": {"value": True}}


def read(*tests: dict[str, Any], **options: int) -> FlagTests:
    content = yaml.safe_dump({"tests": [*tests]}, sort_keys=False).encode()
    return read_flag_tests([[(FILE, content)]], **options)


def one(**fields: Any) -> FlagTest:
    tests = read({**GOOD, **fields})
    assert tests.problems == ()
    return tests.cases[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flga": "x"}, 'unknown field "flga" (did you mean "flag"?)'),
        ({"wanted": 1}, 'unknown field "wanted"; a test has `name`, `flag` or `evaluator`'),
        ({"evaluator": "x"}, "a test has `name`, `flag` or `evaluator`, and one of"),
        ({"missing": True}, "and one of `expect`, `distribution`, `missing`"),
        ({"expect": {}}, "`expect` needs at least one of"),
        ({"expect": {"vairant": "on"}}, 'unknown field "vairant" (did you mean "variant"?)'),
        ({"expect": {"variant": True}}, '`variant` must be a name or null; write "true"'),
        ({"expect": {"reason": "TARGETTING_MATCH"}}, '(did you mean "TARGETING_MATCH"?)'),
        ({"expect": {"errorCode": "NO"}}, '"NO" is not known; choose one of "FLAG_NOT_FOUND"'),
        ({"type": "bool"}, '"bool" is not known'),
        ({"time": "2026-12-24T12:00:00"}, "is no time with a zone; write it as 2026-12-24T12:00:00Z"),
        ({"at": 100}, "`at` must be a number from 0 to less than 100"),
        ({"at": "ten"}, "`at` must be a number"),
        ({"context": ["x"]}, "an object is needed here"),
        ({"matrix": {"tier": []}}, '"tier" needs a list of values'),
        ({"matrix": {"a": [*range(40)], "b": [*range(40)]}}, f"1600 cases, more than {MOST_ROWS}"),
        ({"matrix": {"tier": ["x"]}, "context": {"t": "${teir}"}}, 'variable "teir" (did you mean "tier"?)'),
        ({"context": {"region": "${REGION}"}}, "those of `matrix` are known, not those of a FlagSet"),
        ({"flag": 1}, "`flag` must be a text, not 1"),
    ],
)
def test_a_mistake_in_a_test_is_an_error_of_its_flag_with_its_place(
    fields: dict[str, Any], message: str
) -> None:
    cases, problems = read({**GOOD, **fields})
    assert cases == ()
    assert [problem.code for problem in problems] == ["test-form"]
    assert message in problems[0].message
    assert (problems[0].file, problems[0].line > 0) == (FILE, True)
    assert problems[0].flag == (None if fields.get("flag") == 1 else "banner")


def test_a_file_that_sops_encrypted_is_refused_as_one() -> None:
    content = b'{"tests": [{"name": "ENC[AES256_GCM,data:eA==]"}], "sops": {"mac": "x"}}'
    cases, (problem,) = read_flag_tests([[(FILE, content)]])
    assert cases == ()
    assert problem.message.startswith("tests are not decrypted: write the file in clear")


@pytest.mark.parametrize("share", ["about 10", "10 ±", "-1", 101, True, None, "10 ± x"])
def test_what_is_no_share_is_refused(share: object) -> None:
    _, problems = read({"name": "shares", "flag": "banner", "distribution": {"on": share}})
    assert "is no share; write percent and tolerance, such as 10 ± 1" in problems[0].message


@pytest.mark.parametrize("share", ["10 ± 1", "10 +- 1", "10±1", "10 +/- 1 %", "10 % ± 1"])
def test_a_share_and_its_tolerance_may_be_written_in_several_ways(share: str) -> None:
    cases, problems = read({"name": "shares", "flag": "banner", "distribution": {"on": share}})
    assert problems == ()
    assert str((cases[0].distribution or {})["on"]) == "10 ± 1 %"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tests: {}", "a list of tests is needed here"),
        ("flags: {}", 'unknown field "flags"; a file of tests has `tests`'),
        ("[]", "an object is needed here"),
        ("tests: [1]", "an object is needed here, not 1"),
        ("tests: [", "the YAML is broken here"),
        ("", "the document is empty"),
        ("#" * (TEST_BOUNDS.document_bytes + 1), "more than the 4194304 of a document"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(content: str, message: str) -> None:
    cases, problems = read_flag_tests([[(FILE, content.encode())]])
    assert cases == ()
    assert message in problems[0].message
    assert problems[0].flag is None


def test_a_variable_alone_keeps_its_type_and_one_in_a_text_becomes_text() -> None:
    case = one(matrix={"n": [3]}, context={"a": "${n}", "b": "v${n}", "c": "$${n}", "d": ["${n}"]})
    assert case.context == {"a": 3, "b": "v3", "c": "${n}", "d": [3]}


def test_the_name_of_a_case_says_its_row() -> None:
    rows = read({**GOOD, "matrix": {"tier": ["gold", "basic"], "n": [1]}}).cases
    assert [case.name for case in rows] == ["it is on [tier=gold, n=1]", "it is on [tier=basic, n=1]"]
    named = read({**GOOD, "name": "for ${tier}", "matrix": {"tier": ["gold"]}}).cases
    assert named[0].name == "for gold"


def test_a_matrix_may_decide_what_is_expected_and_where_the_user_is() -> None:
    case = one(matrix={"p": [9.99]}, at="${p}", expect={"variant": "v${p}"})
    assert case.at is not None
    assert float(case.at) == 9.99
    assert case.expect == {"variant": "v9.99"}


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(-9, 9), min_size=1, max_size=5)))
def test_a_matrix_comes_to_every_combination_once_in_order(matrix: dict[str, list[int]]) -> None:
    context = {name: f"${{{name}}}" for name in matrix}
    cases, problems = read({**GOOD, "matrix": matrix, "context": context})
    rows: list[dict[str, int]] = [{}]
    for name, values in matrix.items():
        rows = [{**row, name: value} for row in rows for value in values]
    assert problems == ()
    assert len(cases) == math.prod(map(len, matrix.values()))
    assert [case.context for case in cases] == rows


def test_a_name_is_given_once_in_a_layer() -> None:
    _, problems = read(GOOD, GOOD)
    assert "is also the name of a test at flags/shop.flagtest.yaml:2; rename one" in problems[0].message


def test_a_later_layer_replaces_a_test_by_its_name_and_flag() -> None:
    def layer(*tests: dict[str, Any]) -> list[tuple[str, bytes]]:
        return [(FILE, yaml.safe_dump({"tests": [*tests]}, sort_keys=False).encode())]

    other = {**GOOD, "flag": "cart"}
    tests = read_flag_tests([layer(GOOD, other), layer({**GOOD, "expect": {"value": False}})])
    assert [(case.subject, case.expect) for case in tests.cases] == [
        ("banner", {"value": False}),
        ("cart", {"value": True}),
    ]


def test_too_many_cases_are_an_error_and_the_rest_is_left_out() -> None:
    cases, problems = read({**GOOD, "matrix": {"n": [1, 2, 3]}}, most_cases=2)
    assert len(cases) == 2
    assert "the tests come to 3 cases, more than 2" in problems[0].message
