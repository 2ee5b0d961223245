"""Whole documents: what is an error, what a warning, where each is placed, and what is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.canonical import canonical
from evaluator.flags.catalog import fold
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge, parse
from evaluator.flags.model import ABSENT, Flag, State
from evaluator.flags.problems import Severity
from evaluator.flags.text import Bounds, json_path
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from evaluator.flags.merge import Parsed

GOOD: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def parse_flags(top: Any, file: str = "flags.json", **bounds: int) -> Parsed:
    source = top if isinstance(top, bytes) else json.dumps(top, indent=1).encode()
    return parse(source, file=file, bounds=Bounds(**bounds))


def flag(**fields: Any) -> dict[str, Any]:
    return {"flags": {"good": GOOD, "f": {**GOOD, **fields}}}


def notes(result: Parsed) -> list[tuple[str, str]]:
    assert not result.problems
    assert not result.warned
    return [(note.code, note.path) for note in result.notes]


def codes(result: Parsed) -> list[tuple[str, str, str]]:
    return [(p.severity.value, p.code, p.path) for p in result.problems]


def test_a_whole_flag_is_read_as_it_is_written() -> None:
    rule = {"if": [{"==": [{"var": "a"}, 1]}, "on"]}
    result = parse_flags(flag(targeting=rule, metadata={"team": "x", "n": 1}))
    assert result.problems == ()
    assert result.flag_set.flags["f"] == Flag(
        "f", State.ENABLED, GOOD["variants"], "off", rule, {"team": "x", "n": 1}
    )


def test_sets_keep_their_evaluators_and_metadata() -> None:
    top = {
        "$schema": "https://flagd.dev/schema/v0/flags.json",
        "flags": {},
        "$evaluators": {"staff": {"in": ["@x", {"var": "email"}]}},
        "metadata": {"flagSetId": "shop", "n": 1},
    }
    result = parse_flags(top)
    assert result.problems == ()
    assert result.flag_set.evaluators == top["$evaluators"]
    assert result.flag_set.flag_set_id == "shop"


def test_flags_may_be_a_list_with_keys() -> None:
    result = parse_flags({"flags": [{"key": "a", **GOOD}, {"key": "b", **GOOD, "state": 1}]})
    assert set(result.flag_set.flags) == {"a"}
    assert codes(result) == [("error", "wrong-state", "$.flags[1].state")]
    assert result.problems[0].flag == "b"


def test_yaml_names_of_variants_stay_text() -> None:
    source = (
        b"flags:\n  f:\n    state: ENABLED\n    variants: {on: true, off: false}\n    defaultVariant: on\n"
    )
    result = parse_flags(source, "flags.yaml")
    assert result.problems == ()
    assert result.flag_set.flags["f"].default_variant == "on"


@pytest.mark.parametrize("default", [None, ""], ids=repr)
def test_null_and_empty_default_variants_mean_none(default: str | None) -> None:
    result = parse_flags(flag(defaultVariant=default))
    assert (result.flag_set.flags["f"].default_variant, result.problems) == (None, ())


def test_targeting_that_is_null_is_present_in_a_whole_document() -> None:
    assert parse_flags(flag(targeting=None)).flag_set.flags["f"].targeting is None
    assert parse_flags(flag()).flag_set.flags["f"].targeting is ABSENT


WHOLE = {
    "truncated": (b'{"flags": {"good": {', "broken-json"),
    "a list": ([], "not-an-object"),
    "no flags": ({"metadata": {}}, "missing-flags"),
    "flags are text": ({"flags": "x"}, "not-flags"),
    "flags are null": ({"flags": None}, "not-flags"),
    "an item that is none": ({"flags": [1]}, "not-a-flag"),
    "an item without a key": ({"flags": [GOOD]}, "missing-flag-key"),
    "an item with two keys": (b'{"flags": [{"key": "a", "key": "b"}]}', "duplicate-key"),
    "evaluators are a list": ({"flags": {}, "$evaluators": []}, "not-an-object"),
    "metadata is text": ({"flags": {}, "metadata": "x"}, "not-an-object"),
    "an empty evaluator": ({"flags": {}, "$evaluators": {"e": {}}}, "empty-evaluator"),
    "flags twice": (b'{"flags": {}, "flags": {}}', "duplicate-key"),
    "an evaluator twice": (b'{"flags": {}, "$evaluators": {"e": 1, "e": 2}}', "duplicate-key"),
}


@pytest.mark.parametrize(("top", "code"), WHOLE.values(), ids=WHOLE)
def test_an_error_that_is_no_flags_own_makes_the_whole_bad(top: Any, code: str) -> None:
    result = parse_flags(top)
    assert result.whole_bad
    assert [p.code for p in result.errors] == [code]


ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "state": ({"state": 1}, "wrong-state", ".state"),
    "variants": ({"variants": [True]}, "wrong-variants", ".variants"),
    "default of another type": ({"defaultVariant": 1}, "wrong-default-variant", ".defaultVariant"),
    "unknown default": ({"defaultVariant": "onn"}, "unknown-variant", ".defaultVariant"),
    "metadata": ({"metadata": []}, "wrong-metadata", ".metadata"),
}


@pytest.mark.parametrize(("fields", "code", "path"), ERRORS.values(), ids=ERRORS)
def test_what_flagd_could_not_load_is_an_error_of_one_flag(
    fields: dict[str, Any], code: str, path: str
) -> None:
    result = parse_flags(flag(**fields))
    assert codes(result) == [("error", code, f"$.flags.f{path}")]
    assert set(result.flag_set.flags) == {"good"}
    assert result.bad == {"f"}
    assert not result.whole_bad


WARNINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown state": ({"state": "enabled"}, "unknown-state", ".state"),
    "null state": ({"state": None}, "missing-state", ".state"),
    "mixed variants": ({"variants": {"on": True, "off": 0}}, "mixed-variants", ".variants.off"),
    "a variant's type": ({"variants": {"off": [1]}}, "variant-type", ".variants.off"),
    "a variant's name": ({"variants": {"off": 1, "": 2}}, "unusual-name", '.variants[""]'),
    "targeting's type": ({"targeting": True}, "not-a-rule", ".targeting"),
    "an operator": ({"targeting": {"iff": []}}, "unknown-operator", ".targeting.iff"),
    "metadata's type": ({"metadata": {"a": {}}}, "metadata-type", ".metadata.a"),
    "an unknown field": ({"defaultVarient": "on"}, "unknown-field", ".defaultVarient"),
}


@pytest.mark.parametrize(("fields", "code", "path"), WARNINGS.values(), ids=WARNINGS)
def test_what_flagd_loads_and_the_schema_refuses_is_a_warning(
    fields: dict[str, Any], code: str, path: str
) -> None:
    result = parse_flags(flag(**fields))
    assert codes(result) == [("warning", code, f"$.flags.f{path}")]
    assert result.warned == {"f"}
    assert not result.bad
    assert "f" in result.flag_set.flags


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ({}, ["missing-state", "missing-variants"]),
        (None, ["missing-state", "missing-variants"]),
        ({"state": "ENABLED", "variants": {}}, ["empty-variants"]),
    ],
)
def test_a_flag_without_variants_is_served_as_the_code_default(definition: Any, expected: list[str]) -> None:
    result = parse_flags({"flags": {"f": definition}})
    assert [p.code for p in result.warnings] == expected
    assert result.flag_set.flags["f"].default_variant is None


OWN_FIELDS = (
    "description", "owner", "tags", "name", "type", "source", "_comment", "createdAt", "expires", "status",
    "stage", "team", "jira", "labels", "title", "id", "key", "note", "$comment", "x-owner", "_targeting",
    "//", "links", "deprecated", "permanent", "contact", "kind", "rollout", "since", "ticket",
)  # fmt: skip
NEAR_FIELDS = (
    "targetting", "targetin", "default_variant", "default-variant", "defualtVariant", "defaultVarient",
    "variant", "varients", "variatns", "sate", "staet", "states", "metdata", "meta_data", "metadatas",
)  # fmt: skip


@pytest.mark.parametrize("name", OWN_FIELDS)
def test_a_field_of_the_authors_own_is_a_note(name: str) -> None:
    result = parse_flags(flag(**{name: "x"}))
    assert [path for code, path in notes(result) if code == "unknown-field"] == [
        f"$.flags.f{json_path((name,)).removeprefix('$')}"
    ]
    assert result.flag_set == parse_flags(flag()).flag_set


@pytest.mark.parametrize("name", NEAR_FIELDS)
def test_a_field_near_to_a_known_one_is_a_warning_that_names_it(name: str) -> None:
    (problem,) = parse_flags(flag(**{name: "x"})).problems
    assert (problem.code, problem.severity.value) == ("unknown-field", "warning")
    assert "did you mean" in problem.message


@pytest.mark.parametrize(
    "name",
    ["$comment", "version", "x-anchors", "description", "name", "_notes", "tags", "owner", "$id", "flagd"],
)
def test_a_key_of_the_authors_own_at_the_top_is_a_note(name: str) -> None:
    result = parse_flags({name: {"a": 1}, **flag()})
    assert [code for code, _ in notes(result)] == ["unknown-key"]
    assert result.flag_set == parse_flags(flag()).flag_set


@pytest.mark.parametrize("name", ["flag", "falgs", "evaluators", "$evaluator", "metdata"])
def test_a_key_near_to_a_known_one_at_the_top_is_a_warning(name: str) -> None:
    (problem,) = parse_flags({name: {}, **flag()}).problems
    assert (problem.code, problem.severity.value) == ("unknown-key", "warning")


def test_a_field_that_many_flags_have_is_noted_once_a_file() -> None:
    flags = {name: {**GOOD, "description": name, "owner": "me"} for name in "abc"}
    assert notes(parse_flags({"flags": flags})) == [
        ("unknown-field", "$.flags.a.description"), ("unknown-field", "$.flags.a.owner"),
    ]  # fmt: skip


def test_a_section_that_is_null_counts_as_empty() -> None:
    result = parse_flags({**flag(metadata=None, targeting=None), "$evaluators": None, "metadata": None})
    assert [code for code, _ in notes(result)] == ["null-section"] * 4
    assert "f" in result.flag_set.flags


@pytest.mark.parametrize(
    ("written", "meant"),
    [("enabled", "ENABLED"), ("on", "ENABLED"), ("Off", "DISABLED"), ("DISABLE", "DISABLED")],
)
def test_a_state_is_suggested_by_its_meaning(written: str, meant: str) -> None:
    (problem,) = parse_flags(flag(state=written)).problems
    assert f'did you mean "{meant}"?' in problem.message


def test_a_seed_of_numbers_is_fine_where_the_set_hashes_them() -> None:
    rule = {"fractional": [{"+": [{"var": "id"}, 1]}, ["on"], ["off"]]}
    assert [code for code, _ in notes(parse_flags(flag(targeting=rule)))] == ["numeric-seed"]
    pinned = parse_flags({**flag(targeting=rule), "metadata": {"flagstaff.dev/bucketing": "v3"}})
    assert notes(pinned) == []


@pytest.mark.parametrize(
    "top",
    [
        {"name": "shop", "version": "1.0.0", "scripts": {"test": "jest"}, "dependencies": {}},
        {"services": {"db": {"image": "x"}}},
        {"$schema": "https://json.schemastore.org/tsconfig", "compilerOptions": {}},
    ],
)
def test_a_document_without_definitions_is_passed_over(top: dict[str, Any]) -> None:
    contents = (("a.json", json.dumps(flag()).encode()), ("package.json", json.dumps(top).encode()))
    result = merge([read_layer(contents)])
    assert [(note.file, note.code) for note in result.notes] == [("package.json", "no-definitions")]
    assert (result.problems, result.flag_set) == ((), parse_flags(flag()).flag_set)
    assert [problem.code for problem in parse_flags(top).errors] == ["missing-flags"]


SET_WARNINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown key": ({"evaluators": {}}, "unknown-key", "$.evaluators"),
    "metadata's type": ({"metadata": {"a": []}}, "metadata-type", "$.metadata.a"),
    "flagSetId": ({"metadata": {"flagSetId": 1}}, "set-metadata-type", "$.metadata.flagSetId"),
    "a flag's empty key": ({"flags": {"": GOOD}}, "unusual-name", '$.flags[""]'),
    "an evaluator's name": ({"$evaluators": {"": {"var": "a"}}}, "unusual-name", '$.$evaluators[""]'),
    "an evaluator's rule": ({"$evaluators": {"e": {"iff": 1}}}, "unknown-operator", "$.$evaluators.e.iff"),
    "a cycle": (
        {"$evaluators": {"e": {"!": [{"$ref": "e"}]}}},
        "reference-cycle",
        '$.$evaluators.e["!"][0].$ref',
    ),
}


@pytest.mark.parametrize(("top", "code", "path"), SET_WARNINGS.values(), ids=SET_WARNINGS)
def test_what_is_regrettable_about_the_set_is_a_warning(top: dict[str, Any], code: str, path: str) -> None:
    result = parse_flags({"flags": {}, **top})
    assert ("warning", code, path) in codes(result)
    assert not result.whole_bad


def test_metadata_that_is_no_scalar_is_left_out() -> None:
    result = parse_flags({"flags": {}, "metadata": {"a": {}, "b": 1}})
    assert result.flag_set.metadata == {"b": 1}


DUPLICATES = {
    "a field": b'{"flags": {"good": {"state": "ENABLED", "variants": {"a": 1}},\n"f": '
    b'{"state": "ENABLED", "state": "DISABLED"}}}',
    "the flag": b'{"flags": {"good": {"state": "ENABLED", "variants": {"a": 1}},\n"f": {}, "f": {}}}',
    "in a list": b'{"flags": [{"key": "good", "state": "ENABLED", "variants": {"a": '
    b'1}},\n{"key": "f"}, {"key": "f"}]}',
}


@pytest.mark.parametrize("source", DUPLICATES.values(), ids=DUPLICATES)
def test_a_repeated_key_spoils_only_the_flag_it_is_in(source: bytes) -> None:
    result = parse_flags(source)
    assert set(result.flag_set.flags) == {"good"}
    assert result.bad == {"f"}
    assert not result.whole_bad
    assert [(p.line, p.flag) for p in result.errors] == [(2, "f")]


def test_an_unusable_number_spoils_only_the_flag_it_is_in() -> None:
    result = parse_flags(b'{"flags": {"f": {"state": "ENABLED", "variants": {"a": NaN}}, "g": {}}}')
    assert set(result.flag_set.flags) == {"g"}
    assert result.bad == {"f"}


def test_every_problem_is_collected_in_order_of_place() -> None:
    result = parse_flags(flag(state=1, variants=2, metadata=3, targetting=4))
    assert [p.line for p in result.problems] == sorted(p.line for p in result.problems)
    assert len(result.problems) == 4


def test_a_message_says_what_is_wrong_and_what_to_do() -> None:
    (problem,) = parse_flags(flag(defaultVariant="onn")).problems
    assert problem.message == (
        '`variants` has no "onn", which is the `defaultVariant`; '
        'add it (did you mean "on"?) or choose one of "on", "off"'
    )
    assert str(problem).startswith("flags.json:17:22: error: `variants` has no")


def test_a_message_quotes_little_of_what_the_author_wrote() -> None:
    (problem,) = parse_flags(flag(state="x" * 10_000)).problems
    assert len(problem.message) < 250


def test_a_rule_beyond_its_bounds_is_an_error_of_its_flag() -> None:
    rule: Any = {"var": "a"}
    for _ in range(60):
        rule = {"!": [rule]}
    result = parse_flags(flag(targeting=rule), depth=200)
    assert codes(result)[0][:2] == ("error", "rule-too-deep")
    assert result.bad == {"f"}


def test_references_that_expand_beyond_the_bounds_are_an_error_of_their_flag() -> None:
    double = {f"e{n}": {"or": [{"$ref": f"e{n - 1}"}] * 2} for n in range(1, 20)}
    top = {**flag(targeting={"!": [{"$ref": "e19"}]}), "$evaluators": {"e0": {"var": "a"}, **double}}
    result = parse_flags(top)
    assert [p.code for p in result.errors] == ["rule-too-large"]
    assert result.bad == {"f"}
    assert not result.whole_bad


def test_50000_flags_are_read() -> None:
    result = parse_flags(json.dumps({"flags": {f"f{n}": GOOD for n in range(50_000)}}).encode())
    assert (len(result.flag_set.flags), result.problems) == (50_000, ())


def test_more_flags_than_the_bound_are_an_error() -> None:
    result = parse_flags({"flags": {"a": GOOD, "b": GOOD}}, flags=1)
    assert ([p.code for p in result.errors], result.whole_bad) == (["too-many-flags"], True)


def test_of_endless_problems_the_errors_are_shown_and_all_flags_judged() -> None:
    flags: dict[str, Any] = {f"w{n}": {} for n in range(20)} | {"e": {**GOOD, "state": 1}}
    result = parse_flags({"flags": flags}, problems=5)
    assert [p.code for p in result.problems].count("wrong-state") == 1
    assert result.problems[-1].code == "too-many-problems"
    assert "36 more" in result.problems[-1].message
    assert (len(result.problems), len(result.warned)) == (6, 20)
    assert result.bad == {"e"}


@given(st.binary(max_size=80))
def test_no_bytes_make_parsing_raise(source: bytes) -> None:
    for file in ("a.json", "a.yaml"):
        assert parse(source, file=file).flag_set.flags == {}


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["on", "", "ENABLED", "if"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["on", "state", "variants", "defaultVariant", "targeting", "metadata", "key", "$ref", "if"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.fixed_dictionaries({"flags": ANY}, optional={"$evaluators": ANY, "metadata": ANY}))
def test_any_shape_is_judged_and_no_bad_flag_is_kept(top: Any) -> None:
    result = parse_flags(top)
    assert not result.bad & result.flag_set.flags.keys()
    assert result.warned <= result.flag_set.flags.keys()
    assert {p.flag for p in result.errors} - {None} == result.bad
    assert result.whole_bad == any(p.flag is None for p in result.errors)
    assert all(p.line and p.column for p in result.problems)
    assert all(p.severity in Severity for p in result.problems)


@pytest.mark.parametrize("sign", ["\x7f", "\x9b", "\n", "\u202e"])
def test_unprintable_characters_of_a_document_are_escaped_in_messages(sign: str) -> None:
    result = parse_flags(flag(**{f"b{sign}d": 1}, state=f"e{sign}", targeting={f"i{sign}f": [1]}))
    problems = (*result.problems, *result.notes)
    assert len(problems) == 3
    assert all(str(each).isprintable() and each.path.isprintable() for each in problems)


CASED = {
    "State": ("DISABLED", "state", State.DISABLED),
    "DefaultVariant": ("on", "default_variant", "on"),
    "TARGETING": ({"var": "x"}, "targeting", {"var": "x"}),
    "Variants": ({"on": 1, "off": 2}, "variants", {"on": 1, "off": 2}),
    "metaData": ({"team": "a"}, "metadata", {"team": "a"}),
}


@pytest.mark.parametrize("written", CASED)
@pytest.mark.parametrize("listed", [False, True])
def test_a_field_in_another_case_is_read_as_flagd_reads_it_with_a_note(written: str, listed: bool) -> None:
    value, attribute, expected = CASED[written]
    fields = {name: part for name, part in GOOD.items() if name.casefold() != written.casefold()} | {
        written: value
    }
    top = {"flags": [{"key": "f", **fields}] if listed else {"f": fields}}
    result = parse_flags(top)
    assert getattr(result.flag_set.flags["f"], attribute) == expected
    (note,) = result.notes
    assert (note.code, result.problems, result.warned) == ("field-case", (), frozenset())
    assert note.message.startswith(f'"{written}" is read as ')


def test_of_two_that_are_one_field_the_later_wins() -> None:
    for one, other, state in (("state", "State", State.DISABLED), ("State", "state", State.DISABLED)):
        fields = {name: part for name, part in GOOD.items() if name != "state"}
        result = parse_flags({"flags": {"f": {**fields, one: "ENABLED", other: "DISABLED"}}})
        assert result.flag_set.flags["f"].state is state
        assert codes(result) == [("warning", "field-case", "$.flags.f.State")]


def test_keys_of_a_document_in_another_case_are_read_as_flagd_reads_them() -> None:
    result = parse_flags({"Flags": {"f": GOOD}, "MetaData": {"team": "a"}})
    assert (set(result.flag_set.flags), result.flag_set.metadata) == ({"f"}, {"team": "a"})
    assert notes(result) == [("field-case", "$.Flags"), ("field-case", "$.MetaData")]


def test_null_in_a_flags_metadata_takes_the_sets_away() -> None:
    top = {"flags": {"f": {**GOOD, "metadata": {"a": None, "b": 1}}, "g": GOOD}, "metadata": {"a": "set"}}
    compiled = compile_flag_set(parse_flags(top).flag_set)
    assert resolve(compiled, "f", None, {}, 0).metadata == {"b": 1}
    assert resolve(compiled, "g", None, {}, 0).metadata == {"a": "set"}
    again = parse(canonical(parse_flags(top).flag_set), file="a.json").flag_set
    assert again == parse_flags(top).flag_set
    assert fold(again)["f"].metadata == {"b": 1}
