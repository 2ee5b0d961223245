"""What flagd's published schemas reject, the parser reports; what it reports beyond them is listed with a
reason.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.known_operators import OPERATORS, UNLISTED
from evaluator.flags.merge import parse
from evaluator.flags.rules import check_rule
from tests.beyond_schema import OF_DOCUMENTS, OF_RULES, REMARKS
from tests.contract.flagd_core import ENGINE
from tests.contract.flagd_corpus import CASES, Case
from tests.go import source_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("flagd", "flags", "targeting")
MODULE = "github.com/open-feature/flagd-schemas"
# What flagd's schemas say of `fractional` since the version that the Go module has.
NEWER_THAN_MODULE: dict[str, Any] = {
    "fractionalWeightArg": {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": [
            {"$ref": "#/definitions/args"},
            {"oneOf": [{"type": "integer", "minimum": 0}, {"$ref": "#/definitions/anyRule"}]},
        ],
    },
    "fractionalOp": {"minItems": 1},
    "fractionalShorthandOp": {"minItems": 1},
}


def find_schemas() -> Path | None:
    """The folder of flagd's schemas: the one that FLAGD_SCHEMAS names, or that of the published Go module."""
    if named := os.environ.get("FLAGD_SCHEMAS"):
        return Path(named)
    try:
        return source_folder(ENGINE, MODULE) / "json"
    except (OSError, subprocess.SubprocessError):
        return None


SCHEMAS = find_schemas() or Path()
BEYOND_SCHEMA = {**OF_RULES, **OF_DOCUMENTS}

pytestmark = pytest.mark.skipif(
    not (SCHEMAS / "flagd.json").exists(),
    reason="the schemas of flagd cannot be had: set FLAGD_SCHEMAS, or reach a Go module proxy",
)


@cache
def validator(name: str) -> jsonschema_rs.Draft7Validator:
    contents = {each: json.loads((SCHEMAS / f"{each}.json").read_bytes()) for each in NAMES}
    for definition, newer in NEWER_THAN_MODULE.items():
        contents["targeting"]["definitions"][definition].update(newer)
    registry = jsonschema_rs.Registry([(each["$id"], each) for each in contents.values()])
    # flagd.json has an `$id` beside a `$ref`, where draft-07 ignores it.
    base = contents[name]["$id"]
    return jsonschema_rs.Draft7Validator(contents[name], registry=registry, base_uri=base)


def codes(document: Any) -> set[str]:
    parsed = parse(json.dumps(document).encode(), file="a.json")
    return {each.code for each in (*parsed.problems, *parsed.notes)} - REMARKS


def rule_codes(rule: Any) -> set[str]:
    return {each.code for each in check_rule(rule, evaluators={"shared": {"var": "x"}})}


def files(pattern: str) -> list[Any]:
    paths = sorted((SCHEMAS / "test").glob(pattern))
    return [pytest.param(path, id="/".join(path.parts[-3:])) for path in paths]


@pytest.mark.parametrize("path", files("fla*/positive/*.json"))
def test_the_parser_has_nothing_against_a_positive_file(path: Path) -> None:
    assert validator("flagd").is_valid(json.loads(path.read_bytes()))
    assert parse(path.read_bytes(), file=path.name).problems == ()


@pytest.mark.parametrize("path", files("flags/negative/*.json"))
def test_the_parser_reports_a_negative_file_unless_only_providers_refuse_it(path: Path) -> None:
    problems = parse(path.read_bytes(), file=path.name).problems
    assert not validator("flags").is_valid(json.loads(path.read_bytes()))
    assert bool(problems) is (path.name != "with-array-flags.json")


@pytest.mark.parametrize("path", files("targeting/positive/*.json"))
def test_a_positive_rule_has_no_problem(path: Path) -> None:
    rule = json.loads(path.read_bytes())
    assert validator("targeting").is_valid(rule)
    assert check_rule(rule, evaluators={"some-ref": {"var": "x"}}) == []


@pytest.mark.parametrize("path", files("targeting/negative/*.json"))
def test_a_negative_rule_is_reported(path: Path) -> None:
    rule = json.loads(path.read_bytes())
    assert not validator("targeting").is_valid(rule)
    assert rule_codes(rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_schema_and_the_parser_judge_our_corpus_as_it_says(case: Case) -> None:
    assert validator("flagd").is_valid(case.document) is case.accepted
    assert codes(case.document) == case.codes


@pytest.mark.parametrize("case", [each for each in CASES if each.accepted], ids=lambda c: c.name)
def test_what_is_reported_beyond_the_schema_has_a_listed_reason(case: Case) -> None:
    assert case.codes <= BEYOND_SCHEMA.keys()


def test_the_corpus_has_a_case_for_every_definition() -> None:
    definitions = {
        definition
        for name in ("flags", "targeting")
        for definition in json.loads((SCHEMAS / f"{name}.json").read_bytes())["definitions"]
    }
    assert definitions == {case.definition for case in CASES}


def test_every_reason_beyond_the_schema_that_one_document_can_give_is_in_the_corpus() -> None:
    given_by = {code for case in CASES if case.accepted for code in case.codes}
    # These need an archive, a bad place inside an array literal, a text that is no plain JSON, layers, a name
    # in another case, or sheer size; notes on what a rule cannot do have tests of their own.
    elsewhere = {
        "unlisted-operator", "bad-argument", "bad-weight", "reference-position", "rule-too-deep",
        "rule-too-large", "duplicate-key", "field-case", "conflicting-key", "missing-base", "removes-nothing",
        "unusable-number", "too-many-problems", "lax-version", "list-needle", "numeric-seed",
        "archived-key",
    }  # fmt: skip
    assert BEYOND_SCHEMA.keys() - given_by == elsewhere


scalars = st.sampled_from(
    [None, True, False, 0, 1, -1, 25.0, 0.5, "", "on", "1.0.0", "=", "$flagd.x", "$flagd.timestamp"]
)
operators = st.sampled_from([*sorted(OPERATORS), *sorted(UNLISTED), "$ref", "bogus"])


def compose(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arguments = inner | st.lists(inner, max_size=4)
    buckets = st.lists(st.lists(inner, max_size=3) | inner, max_size=3)
    return (
        st.dictionaries(operators, arguments, max_size=2)
        | st.builds(lambda operator, args: {operator: args}, operators, arguments)
        | st.builds(lambda args: {"fractional": args}, buckets)
        | st.builds(lambda: {"$ref": "shared"})
        | st.lists(inner, max_size=3)
    )


rules = st.recursive(scalars, compose, max_leaves=12)


@settings(max_examples=500)
@given(rules)
def test_a_generated_rule_is_reported_where_the_schema_rejects_it(rule: Any) -> None:
    found = rule_codes(rule)
    if validator("targeting").is_valid(rule):
        assert found <= BEYOND_SCHEMA.keys()
    else:
        assert found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from places(each, (*path, at))


STRANGERS: tuple[Any, ...] = (
    None, True, 1, -1, 0.5, "", "on", "1.0.0", "$flagd.x", "a\nb", [], [[]], [1], ["a"], [1, 2, 3, 4],
    {}, {"a": 1}, {"$ref": "shared"}, {"$ref": 1}, {"var": "x"}, {"var": "x", "a": 1}, {"==": [1, 1]},
)  # fmt: skip


def neighbours(document: Any) -> Iterator[Any]:
    """Each document that differs in one place: something else there, nothing there, or another
    name for it.
    """
    for *above, last in (path for path in places(document) if path):
        for stranger in (*STRANGERS, ...):
            changed = copy.deepcopy(document)
            parent = changed
            for step in above:
                parent = parent[step]
            former = parent.pop(last) if stranger is ... else parent[last]
            if stranger is not ...:
                parent[last] = copy.deepcopy(stranger)
            yield changed
            if isinstance(parent, dict) and stranger in ("", "a\nb", "$ref"):
                del parent[last]
                parent[stranger] = former
                yield changed


@pytest.mark.parametrize("case", [each for each in CASES if each.accepted], ids=lambda c: c.name)
def test_one_fault_in_an_accepted_document_is_reported_where_the_schema_rejects_it(case: Case) -> None:
    for document in neighbours(case.document):
        found = codes(document)
        if validator("flagd").is_valid(document):
            assert found <= BEYOND_SCHEMA.keys(), document
        else:
            assert found, document


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    root = [copy.deepcopy(draw(st.sampled_from(CASES)).document)]
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([path for path in places(root) if path]))
        parent: Any = root
        for step in above:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "remove", "wrap", "rename", "insert"])):
            case "remove" if above:
                del parent[last]
            case "wrap":
                parent[last] = [parent[last]]
            case "rename" if isinstance(parent, dict):
                parent[draw(operators | st.text("a$.\n", max_size=3))] = parent.pop(last)
            case "insert" if isinstance(parent[last], dict):
                parent[last][draw(operators | st.text("a\n", max_size=2))] = draw(rules)
            case _:
                parent[last] = draw(rules)
    return root[0]


@settings(max_examples=500)
@given(mutants())
def test_a_mutated_document_is_reported_where_the_schema_rejects_it(document: Any) -> None:
    found = codes(document)
    if validator("flagd").is_valid(document):
        assert found <= BEYOND_SCHEMA.keys()
    else:
        assert found
