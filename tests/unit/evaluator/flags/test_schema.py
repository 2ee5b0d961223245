"""flagd's published schemas as the judge: what they refuse is reported, and what is reported beyond them is
listed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from tests.beyond_schema import OF_DOCUMENTS, OF_RULES, REMARKS

ROOT = Path(__file__).parents[4]
SCHEMAS = Path(os.environ.get("FLAGD_SCHEMAS", ROOT.parent / "shared/conformance/flagd-schemas"))
ABSENT = not SCHEMAS.is_dir()
BEYOND = OF_DOCUMENTS.keys() | OF_RULES.keys()

pytestmark = pytest.mark.skipif(ABSENT, reason="flagd's schemas are not here; set FLAGD_SCHEMAS")

FILES = sorted(SCHEMAS.glob("test/fl*/*/*.json"))
MAP_ONLY = "with-array-flags.json"
"""Refused by the schema of providers alone; the daemon's, which is ours, accepts the list."""


def _validator() -> Any:
    def retrieve(uri: str) -> Any:
        return json.loads((SCHEMAS / uri.rsplit("/", 1)[-1]).read_text())

    return jsonschema_rs.validator_for(retrieve("flagd.json"), retriever=retrieve)


VALIDATOR = None if ABSENT else _validator()


def accepts(top: Any) -> bool:
    assert VALIDATOR is not None
    return bool(VALIDATOR.is_valid(top))


def judge(top: Any) -> None:
    """Hold the parser to the schema, both ways."""
    parsed = parse(json.dumps(top).encode(), file="a.json")
    codes = {problem.code for problem in (*parsed.problems, *parsed.notes)} - REMARKS
    if accepts(top):
        assert codes <= BEYOND, top
    else:
        assert codes, top


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-3:]))
def test_flagds_own_files_are_judged_as_flagd_judges_them(file: Path) -> None:
    problems = parse(file.read_bytes(), file=file.name).problems
    good = "positive" in file.parts or file.name == MAP_ONLY
    assert (problems == ()) == good


NAMES = st.sampled_from(["on", "off", "", "a\nb"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["on", "", "1.0.0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
RULES = st.sampled_from(
    [{}, {"var": "a"}, {"if": [True, "on"]}, {"iff": 1}, {"!": [{"$ref": "e"}]}, {"==": [1]}]
)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["ENABLED", "DISABLED", "off"]) | ANY,
        "variants": st.dictionaries(NAMES, st.booleans() | ANY, max_size=3) | ANY,
        "defaultVariant": NAMES | ANY,
        "targeting": RULES | ANY,
        "metadata": st.dictionaries(NAMES, ANY, max_size=2) | ANY,
        "variant": ANY,
    },
)
LISTED = st.lists(
    st.tuples(FLAGS, NAMES | ANY).map(lambda pair: {**pair[0], "key": pair[1]}) | ANY, max_size=2
)
TOPS = st.fixed_dictionaries(
    {"flags": st.dictionaries(NAMES, FLAGS | ANY, max_size=3) | LISTED | ANY},
    optional={
        "$evaluators": st.dictionaries(st.sampled_from(["e", ""]), RULES | ANY, max_size=2) | ANY,
        "metadata": st.dictionaries(st.sampled_from(["flagSetId", "version", "x"]), ANY) | ANY,
        "$schema": ANY,
        "flag": ANY,
    },
)


@settings(max_examples=200)
@given(TOPS)
def test_whatever_the_schema_refuses_is_reported_and_what_goes_beyond_is_listed(top: Any) -> None:
    judge(top)


GOOD: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}


@settings(max_examples=150)
@given(FLAGS)
def test_one_thing_amiss_in_a_good_flag_is_judged_alike(fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        judge({"flags": {"f": {**GOOD, name: value}}})


@pytest.mark.parametrize("missing", ["state", "variants", "defaultVariant"])
def test_one_thing_missing_in_a_good_flag_is_judged_alike(missing: str) -> None:
    judge({"flags": {"f": {name: value for name, value in GOOD.items() if name != missing}}})


@pytest.mark.parametrize("top", [[], "x", None, {}, {"metadata": {}}], ids=json.dumps)
def test_what_is_no_document_is_judged_alike(top: Any) -> None:
    judge(top)
