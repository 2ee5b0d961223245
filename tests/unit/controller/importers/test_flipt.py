"""Flipt's features.yaml: cases by what its evaluation does, and what has no exact form here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.importers.formats import import_files
from controller.importers.reading import ImportOptions, UnreadableFile
from tests.unit.controller.importers.suites import CODE, compiled, imported, moved_share, value_of

MISSING = object()
PLAIN = frozenset({"plain-texts"})


def constraint(kind: str, operator: str, value: Any = "", attribute: str = "a") -> dict[str, Any]:
    named = {"type": f"{kind}_COMPARISON_TYPE", "property": attribute, "operator": operator}
    return {**named, "value": value}


def document(*constraints: dict[str, Any], match: str = "ALL_MATCH_TYPE") -> dict[str, Any]:
    """A flag that is true of the users of one segment."""
    segment = {"key": "some", "match_type": match, "constraints": list(constraints)}
    rollout = {"segment": {"key": "some", "value": True}}
    return {"segments": [segment], "flags": [boolean(rollout)]}


def boolean(*rollouts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"key": "f", "type": "BOOLEAN_FLAG_TYPE", "rollouts": list(rollouts), **fields}


def variant_flag(*rules: dict[str, Any], default: str = "", **fields: Any) -> dict[str, Any]:
    variants = [{"key": key, "default": key == default} for key in ("red", "blue")]
    flag = {"key": "f", "enabled": True, "variants": variants, "rules": list(rules), **fields}
    segments = [
        {"key": "all"},
        {"key": "gold", "constraints": [constraint("STRING", "eq", "gold")]},
        {"key": "even", "constraints": [constraint("NUMBER", "isoneof", "[2, 4]", "b")]},
    ]
    return {"version": "1.4", "namespace": "default", "flags": [flag], "segments": segments}


def rule(segment: Any, **shares: float) -> dict[str, Any]:
    parts = [{"variant": name, "rollout": share} for name, share in shares.items()]
    return {"segment": segment, "distributions": parts}


def answer(content: dict[str, Any], context: dict[str, Any] | None = None) -> Any:
    what = imported("flipt", content)
    assert not what.refusals, what.refusals
    return value_of(compiled(what), "f", context or {})


def message(content: dict[str, Any], **options: Any) -> str:
    """Why the flag, or the segment that it needs, is refused."""
    refusals = imported("flipt", content, **options).refusals
    assert refusals
    return refusals[0].message


@pytest.mark.parametrize(
    ("kind", "operator", "value", "given", "expected"),
    [
        ("STRING", "eq", "gold", "gold", True),
        ("STRING", "eq", "gold", "Gold", False),
        ("STRING", "eq", "gold", MISSING, False),
        ("STRING", "eq", "5", 5, True),
        ("STRING", "eq", "05", 5, False),
        ("STRING", "eq", "1.5", 1.5, True),
        ("STRING", "eq", "true", True, True),
        ("STRING", "eq", "true", 1, False),
        ("STRING", "eq", "", "", False),
        ("STRING", "neq", "gold", "silver", True),
        ("STRING", "neq", "gold", "gold", False),
        ("STRING", "neq", "gold", MISSING, False),
        ("STRING", "neq", "gold", "", False),
        ("STRING", "neq", "5", 5, False),
        ("STRING", "neq", "gold", 5, True),
        ("STRING", "isoneof", '["a", "1"]', "a", True),
        ("STRING", "isoneof", '["a", "1"]', 1, True),
        ("STRING", "isoneof", ["a", "1"], "b", False),
        ("STRING", "isnotoneof", '["a", "1"]', "b", True),
        ("STRING", "isnotoneof", '["a", "1"]', "a", False),
        ("STRING", "isnotoneof", '["a", "1"]', MISSING, False),
        ("STRING", "empty", "", MISSING, True),
        ("STRING", "empty", "", " \t", True),
        ("STRING", "empty", "", "0", False),
        ("STRING", "empty", "", 0, False),
        ("STRING", "empty", "", False, False),
        ("STRING", "notempty", "", "x", True),
        ("STRING", "notempty", "", "  ", False),
        ("STRING", "contains", "ol", "gold", True),
        ("STRING", "notcontains", "ol", "gold", False),
        ("STRING", "notcontains", "ol", "silver", True),
        ("STRING", "notcontains", "ol", MISSING, False),
        ("NUMBER", "eq", "1", 1, True),
        ("NUMBER", "eq", "1", "1.0", True),
        ("NUMBER", "eq", "0", MISSING, False),
        ("NUMBER", "eq", "0", "", False),
        ("NUMBER", "eq", "0", " ", False),
        ("NUMBER", "neq", "1", "2", True),
        ("NUMBER", "neq", "1", "x", False),
        ("NUMBER", "neq", "1", MISSING, False),
        ("NUMBER", "lt", "5", "4", True),
        ("NUMBER", "lt", "5", MISSING, False),
        ("NUMBER", "lt", "5", True, False),
        ("NUMBER", "lte", "5", 5, True),
        ("NUMBER", "gt", "5", 5, False),
        ("NUMBER", "gte", "-1.5", "-1.5", True),
        ("NUMBER", "isoneof", "[1, 2]", "2", True),
        ("NUMBER", "isoneof", [1, 2], 3, False),
        ("NUMBER", "isnotoneof", "[1, 2]", "3", True),
        ("NUMBER", "isnotoneof", "[1, 2]", "x", False),
        ("NUMBER", "isnotoneof", "[]", MISSING, False),
        ("NUMBER", "present", "", "x", True),
        ("NUMBER", "notpresent", "", MISSING, True),
        ("BOOLEAN", "true", "", True, True),
        ("BOOLEAN", "true", "", "T", True),
        ("BOOLEAN", "true", "", 1, True),
        ("BOOLEAN", "true", "", "yes", False),
        ("BOOLEAN", "false", "", False, True),
        ("BOOLEAN", "false", "", "0", True),
        ("BOOLEAN", "false", "", MISSING, False),
        ("DATETIME", "present", "", "2024-01-01", True),
    ],
)
def test_a_constraint_matches_as_in_flipt(
    kind: str, operator: str, value: Any, given: Any, expected: bool
) -> None:
    context = {} if given is MISSING else {"a": given}
    assert answer(document(constraint(kind, operator, value)), context) is expected


def test_an_entity_is_the_targeting_key() -> None:
    content = document(constraint("ENTITY_ID", "isnotoneof", '["u1"]', "entity"))
    assert answer(content, {"targetingKey": "u2"}) is True
    assert answer(content, {"targetingKey": "u1"}) is False


def test_a_segment_of_type_any_needs_one_constraint_and_one_without_any_has_everybody() -> None:
    constraints = [constraint("STRING", "eq", "x"), constraint("STRING", "eq", "y", "b")]
    assert answer(document(*constraints, match="ANY_MATCH_TYPE"), {"b": "y"}) is True
    assert answer(document(*constraints), {"b": "y"}) is False
    assert answer(document(match="ANY_MATCH_TYPE")) is True


@pytest.mark.parametrize(("operator", "both"), [("AND_SEGMENT_OPERATOR", False), ("", True)])
def test_segments_of_a_rule_are_joined_by_its_operator(operator: str, both: bool) -> None:
    content = variant_flag(rule({"keys": ["gold", "even"], "operator": operator}, red=100), default="blue")
    assert answer(content, {"a": "gold", "b": 2}) == "red"
    assert answer(content, {"a": "gold", "b": 3}) == ("red" if both else "blue")


def test_enabled_is_the_value_of_a_boolean_flag_that_no_rollout_takes() -> None:
    rollout = {"segment": {"keys": ["some"], "value": False}}
    content = document(constraint("STRING", "eq", "x"))
    content["flags"] = [boolean(rollout, enabled=True)]
    assert answer(content, {"a": "x"}) is False
    assert answer(content, {"a": "y"}) is True
    assert answer({"flags": [boolean()]}) is False


def test_users_past_a_threshold_go_on_to_the_next_rollout() -> None:
    content = document()
    thresholds = [{"threshold": {"percentage": share, "value": False}} for share in (0, 30)]
    content["flags"][0]["rollouts"] = [*thresholds, *content["flags"][0]["rollouts"]]
    what = imported("flipt", content)
    flags = compiled(what)
    values = [value_of(flags, "f", {"targetingKey": f"u{number}"}) for number in range(1000)]
    assert 650 < values.count(True) < 750
    assert values.count(True) + values.count(False) == 1000
    assert moved_share(what, "f") == pytest.approx(0.42)


def test_a_part_of_a_percent_is_a_whole_bucket_of_a_hundred() -> None:
    (flag,) = imported(
        "flipt", {"flags": [boolean({"threshold": {"percentage": 33.1, "value": True}})]}
    ).flags
    (first,) = flag.targeting[""].rules
    assert first.then.arms[0] == ("true", 34)  # type: ignore[union-attr]


def test_a_disabled_flag_gives_its_default_variant_or_the_value_in_the_code() -> None:
    rules = [rule("all", red=100)]
    assert answer(variant_flag(*rules)) == "red"
    assert answer(variant_flag(*rules, enabled=False, default="blue")) == "blue"
    assert answer(variant_flag(*rules, enabled=False)) == CODE


def test_the_first_rule_that_matches_ends_the_walk_even_without_distributions() -> None:
    rules = [rule("gold"), rule("all", red=100)]
    assert answer(variant_flag(*rules, default="blue"), {"a": "gold"}) == "blue"
    assert answer(variant_flag(*rules), {"a": "gold"}) == CODE
    assert answer(variant_flag(*rules)) == "red"
    assert answer(variant_flag(rule("gold", red=0), rule("all", red=100)), {"a": "gold"}) == CODE


def test_users_past_the_sum_of_distributions_get_no_variant_and_no_later_rule() -> None:
    flags = compiled(imported("flipt", variant_flag(rule("all", red=20, blue=30), rule("all", red=100))))
    values = [value_of(flags, "f", {"targetingKey": f"u{number}"}) for number in range(1000)]
    assert 450 < values.count(CODE) < 550
    assert 150 < values.count("red") < 250


def test_shares_are_cut_to_tenths_of_a_percent_in_single_precision() -> None:
    (flag,) = imported("flipt", variant_flag(rule("all", red=33.33, blue=66.6), default="red")).flags
    assert flag.targeting[""].rules[0].then.arms == (  # type: ignore[union-attr]
        ("red", 333),
        ("blue", 666),
        ("red", 1),
    )


def test_values_are_attachments_where_every_variant_has_an_object() -> None:
    variants: list[dict[str, Any]]
    variants = [{"key": "a", "attachment": {"x": 1}, "default": True}, {"key": "b", "attachment": {"x": 2}}]
    flag = {"key": "f", "variants": variants}
    what = imported("flipt", {"flags": [flag]})
    assert value_of(compiled(what), "f", {}) == {"x": 1}
    assert "attachments" in what.remarks[0].message
    variants[1]["attachment"] = None
    what = imported("flipt", {"flags": [flag]})
    assert value_of(compiled(what), "f", {}) == "a"
    assert "left out" in what.remarks[0].message


def test_metadata_and_what_flipt_ignores_are_noted() -> None:
    flag = boolean(name="Flag", description="what it does", metadata={"team": "web", "n": 1}, rules=[{}])
    what = imported("flipt", {"flags": [flag]})
    assert what.flags[0].metadata == {"team": "web", "n": 1, "description": "what it does"}
    assert [remark.place for remark in what.remarks] == ["file0.json:flags[0].rules"]


@pytest.mark.parametrize("operator", ["prefix", "suffix"])
def test_a_prefix_needs_leave_since_flipt_removes_spaces(operator: str) -> None:
    content = document(constraint("STRING", operator, "ab"))
    assert "spaces" in message(content)
    what = imported("flipt", content, allowed=PLAIN)
    assert value_of(compiled(what), "f", {"a": "ab"}) is True
    assert value_of(compiled(what), "f", {"a": "xabx"}) is False


@pytest.mark.parametrize("value", ["5", "ru", "als"])
def test_a_part_that_a_number_or_a_boolean_may_have_needs_leave(value: str) -> None:
    assert "numbers" in message(document(constraint("STRING", "contains", value)))


def test_dates_need_leave_and_are_numbers_then() -> None:
    content = document(constraint("DATETIME", "lt", "2024-01-01T00:00:00Z"))
    assert "dates" in message(content)
    flags = compiled(imported("flipt", content, allowed={"numeric-dates"}))
    assert value_of(flags, "f", {"a": 1704067199}) is True
    assert value_of(flags, "f", {"a": 1704067200}) is False
    date = document(constraint("DATETIME", "gte", "2024-01-01"))
    assert value_of(compiled(imported("flipt", date, allowed={"numeric-dates"})), "f", {"a": 1704067200})
    wrong = document(constraint("DATETIME", "lt", "2024-01-01T00:00:00"))
    assert "no date" in message(wrong, allowed={"numeric-dates"})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (document(constraint("STRING", "eq", "x", "a.b")), "has a dot"),
        (document(constraint("STRING", "like", "x")), 'no "like"'),
        (document(constraint("OTHER", "eq", "x")), "OTHER"),
        (document(constraint("NUMBER", "eq", "x")), "no number"),
        (document(constraint("NUMBER", "eq", "inf")), "too large"),
        (document(constraint("STRING", "isoneof", "[1]")), "no list of texts"),
        (document(constraint("STRING", "isoneof", "[" * 9999)), "no list of texts"),
        (document(constraint("STRING", "eq", ["x"])), "takes no list"),
        (document(match="SOME"), "SOME"),
        ({"flags": [boolean({"segment": {"key": "gone", "value": True}})]}, "not in the files"),
        ({"flags": [boolean({})]}, "either a segment or a threshold"),
        ({"flags": [{"key": "f", "type": "OTHER"}]}, "OTHER"),
        (variant_flag(rule("all", green=100)), 'no variant "green"'),
        (variant_flag(rule("all", red=101)), "no percentage"),
        (variant_flag(rule("all", red=1e99)), "no percentage"),
        (variant_flag(rule(None, red=1)), "names no segment"),
        (variant_flag(rule(5, red=1)), "has a number"),
        (variant_flag(variants=[{"key": "a"}, {"key": "a"}]), "another variant"),
        ({"flags": [{"key": 5}]}, "has a number"),
        ({"flags": [boolean(), boolean()]}, "another flag"),
        ({"flags": [boolean()], "segments": [{"key": "s"}, {"key": "s"}]}, "another segment"),
    ],
)
def test_a_flag_with_a_fault_is_refused(content: dict[str, Any], part: str) -> None:
    assert part in message(content)


@pytest.mark.parametrize("content", [[], "x", {"include": ["*.yaml"]}, {"flags": {}}, {"flags": [5]}])
def test_a_file_of_another_kind_is_unreadable(content: Any) -> None:
    with pytest.raises(UnreadableFile):
        imported("flipt", content)


def test_two_namespaces_are_not_mixed() -> None:
    other = {"namespace": {"key": "web", "name": "Web"}, "flags": []}
    with pytest.raises(UnreadableFile, match="default and web"):
        imported("flipt", {"flags": []}, other)


def test_each_environment_has_its_file() -> None:
    files = [
        (
            name,
            f"{name}/features.yaml",
            f"flags:\n- {{key: f, type: BOOLEAN_FLAG_TYPE, enabled: {on}}}".encode(),
        )
        for name, on in (("dev", "true"), ("prod", "false"))
    ]
    what = import_files("flipt", files, ImportOptions())
    assert value_of(compiled(what, "dev"), "f", {}) is True
    assert value_of(compiled(what, "prod"), "f", {}) is False


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.data())
def test_wrong_types_anywhere_are_refused_and_never_an_error(data: st.DataObject) -> None:
    content: Any = variant_flag(rule({"keys": ["gold"], "operator": "OR_SEGMENT_OPERATOR"}, red=50))
    content["flags"].append({**boolean({"threshold": {"percentage": 5, "value": True}}), "key": "g"})
    part = content
    while isinstance(part, dict | list) and part:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or data.draw(st.booleans()):
            part[key] = data.draw(JSON)
            break
        part = part[key]
    try:
        what = imported("flipt", content)
    except UnreadableFile:
        return
    compiled(what)
