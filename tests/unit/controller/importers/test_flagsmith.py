"""What Flagsmith has that is easily read in another way. Expected values are those of its engine."""

from __future__ import annotations

from typing import Any

import pytest

from controller.importers.model import UserSplit
from controller.importers.reading import UnreadableFile
from tests.unit.controller.importers.suites import (
    CODE,
    assert_never_fails,
    compiled,
    imported,
    moved_share,
    value_of,
)


def state(name: str, value: Any = None, *, enabled: bool = False, **fields: Any) -> dict[str, Any]:
    return {"feature": {"name": name}, "enabled": enabled, "feature_state_value": value, **fields}


def segment(rules: list[Any], *states: Any, name: str = "s", number: int = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "rules": rules, "feature_states": list(states)}


def document(*states: Any, segments: Any = (), identities: Any = ()) -> dict[str, Any]:
    return {
        "api_key": "key",
        "name": "Production",
        "feature_states": list(states),
        "project": {"segments": list(segments)},
        "identity_overrides": list(identities),
    }


def condition(operator: str, value: Any = None, name: str = "a") -> dict[str, Any]:
    return {"operator": operator, "property_": name, "value": value}


def rule(*conditions: Any, kind: str = "ALL", rules: Any = ()) -> dict[str, Any]:
    return {"type": kind, "conditions": list(conditions), "rules": list(rules)}


def matches(rules: list[Any], context: dict[str, Any], **options: Any) -> bool:
    content = document(state("f"), segments=[segment(rules, state("f", enabled=True))])
    what = imported("flagsmith", content, **options)
    assert not what.refusals, what.refusals
    return value_of(compiled(what), "f", context) is True


def holds(operator: str, value: Any, *attribute: Any, **options: Any) -> bool:
    context = {"a": attribute[0]} if attribute else {}
    return matches([rule(condition(operator, value))], context, **options)


def refusal(*rules: Any) -> str:
    content = document(state("f"), segments=[segment(list(rules), state("f", enabled=True))])
    what = imported("flagsmith", content)
    assert not what.flags
    return what.refusals[0].message


def value(content: Any, context: dict[str, Any] | None = None, key: str = "f") -> Any:
    return value_of(compiled(imported("flagsmith", content)), key, context or {})


def test_a_feature_is_a_switch_and_a_value_that_is_given_also_when_it_is_off() -> None:
    content = document(state("f", "blue", enabled=False), state("g", enabled=True), state("h", ""))
    what = imported("flagsmith", content)
    assert [flag.key for flag in what.flags] == ["f", "f.value", "g", "h"]
    assert value(content) is False
    assert value(content, key="f.value") == "blue"


def test_a_value_that_is_null_is_the_callers_value() -> None:
    over = segment([rule(condition("IS_SET"))], state("f", "blue"))
    content = document(state("f", None), segments=[over])
    assert value(content, key="f.value") == CODE
    assert value(content, {"a": 1}, "f.value") == "blue"


def test_the_lowest_priority_of_overrides_wins_and_an_identity_before_all() -> None:
    always = [rule()]
    content = document(
        state("f", "none"),
        segments=[
            segment(always, state("f", "unordered"), name="s1", number=1),
            segment(always, state("f", "second", feature_segment={"priority": 2}), name="s2", number=2),
            segment(always, state("f", "first", feature_segment={"priority": 1}), name="s3", number=3),
        ],
        identities=[{"identifier": "ann", "identity_features": [state("f", "own")]}],
    )
    assert value(content, {"targetingKey": "bob"}, "f.value") == "first"
    assert value(content, {"targetingKey": "ann"}, "f.value") == "own"


def test_a_segment_without_rules_has_nobody_and_a_rule_without_conditions_everybody() -> None:
    assert not matches([], {})
    assert matches([rule(kind="ALL")], {})
    assert matches([rule(kind="ANY")], {})
    assert matches([rule(kind="NONE")], {})


def test_conditions_and_rules_within_a_rule_are_joined_apart() -> None:
    first, second = condition("EQUAL", "x"), condition("EQUAL", "y", "b")
    nested = [rule(kind="ANY", rules=[rule(first)]) | {"conditions": [second]}]
    assert not matches(nested, {"a": "x"})
    assert matches(nested, {"a": "x", "b": "y"})
    assert matches([rule(first, second, kind="NONE")], {"a": "z"})
    assert not matches([rule(first, second, kind="NONE")], {"b": "y"})


@pytest.mark.parametrize(
    ("operator", "given", "matching", "others"),
    [
        ("EQUAL", "gold", ["gold"], ["silver", 1]),
        ("EQUAL", "10", [10, "10", 10.0, "010"], ["ten", 1, True]),
        ("EQUAL", "true", [True, "true"], [False, 1]),
        ("NOT_EQUAL", "gold", ["silver"], ["gold", 1, "1"]),
        ("NOT_EQUAL", "10", [9, "9", "ten"], [10, "10"]),
        ("NOT_EQUAL", "true", [False, "yes"], [True, "true", 1]),
        ("GREATER_THAN", "9", [10, "10", "word"], [9, 8, "8"]),
        ("LESS_THAN_INCLUSIVE", "9", [9, "9", -1], [10, "10", "word"]),
        ("GREATER_THAN", "2024-01-31", ["2024-02-01"], ["2023-12-01", 3000, "3000"]),
        ("CONTAINS", "@a", ["x@a.b"], ["x", 5]),
        ("CONTAINS", "1", ["a1"], [1, "1", "12"]),
        ("NOT_CONTAINS", "@a", ["x"], ["x@a.b", 5, "5"]),
        ("REGEX", "gold", ["golden"], ["a gold"]),
        ("REGEX", "^(gold|iron)$", ["iron"], ["irons"]),
        ("IN", "a,b", ["a", "b"], ["a,b", "c"]),
        ("IN", '["a", 5]', ["a", 5, "5"], ["b", 6]),
        ("IN", "5,1.5,007", [5, "5"], ["1.5", 1.5, "007", 7, True]),
        ("IS_SET", None, [0, False, ""], []),
    ],
)
def test_texts_and_numbers_are_compared_as_by_the_engine(
    operator: str, given: Any, matching: list[Any], others: list[Any]
) -> None:
    assert [item for item in matching if not holds(operator, given, item)] == []
    assert [item for item in others if holds(operator, given, item)] == []


@pytest.mark.parametrize(
    "operator", ["EQUAL", "NOT_EQUAL", "LESS_THAN", "CONTAINS", "NOT_CONTAINS", "REGEX", "IN"]
)
@pytest.mark.parametrize("given", ["gold", "true"])
def test_a_missing_trait_matches_nothing_but_that_it_is_not_set(operator: str, given: str) -> None:
    assert not holds(operator, given)
    assert holds("IS_NOT_SET", given)


def test_versions_have_a_suffix_and_need_three_numbers() -> None:
    assert holds("GREATER_THAN", "1.9.0:semver", "1.10.0")
    assert not holds("GREATER_THAN", "1.9.0:semver", "v1.10.0")
    assert not holds("GREATER_THAN", "1.9.0:semver", "2.0")
    assert not holds("NOT_EQUAL", "1.9.0:semver", "2")
    assert not holds("GREATER_THAN", "1.9:semver", "2.0.0")
    assert not holds("GREATER_THAN", "1.9.0:semver", "2-rc")


def test_the_identifier_is_the_targeting_key_and_the_environment_is_known() -> None:
    identifier = condition("IN", "ann,10", "$.identity.identifier")
    assert matches([rule(identifier)], {"targetingKey": "10"})
    assert matches([rule(condition("EQUAL", "Production", "$.environment.name"))], {})
    assert not matches([rule(condition("EQUAL", "Test", "$.environment.name"))], {})
    assert "neither a trait" in refusal(rule(condition("EQUAL", "x", "$.flags.other.enabled")))


def test_what_has_no_exact_form_is_refused() -> None:
    assert "MODULO" in refusal(rule(condition("MODULO", "2|0")))
    assert "no form here" in refusal(rule(condition("REGEX", "a.*b")))
    assert "finds numbers" in refusal(rule(condition("REGEX", "^10")))
    assert "fraction" in refusal(rule(condition("GREATER_THAN", "1.5")))


def test_a_share_of_a_segment_is_the_same_for_both_flags_of_a_feature() -> None:
    over = segment([rule(condition("PERCENTAGE_SPLIT", "40", ""))], state("f", "in", enabled=True))
    what = imported("flagsmith", document(state("f", "out"), segments=[over]))
    assert moved_share(what, "f") == pytest.approx(2 * 0.4 * 0.6)
    flags = compiled(what)
    for number in range(50):
        context = {"targetingKey": f"user{number}"}
        assert value_of(flags, "f", context) is (value_of(flags, "f.value", context) == "in")
    assert value_of(flags, "f", {}) is False


def test_options_divide_users_in_order_of_their_numbers_and_the_rest_gets_the_state() -> None:
    options = [
        {"id": 2, "multivariate_feature_option": {"value": "b"}, "percentage_allocation": 20},
        {"id": 1, "multivariate_feature_option": {"value": "a"}, "percentage_allocation": 30},
        {"id": 3, "multivariate_feature_option": {"value": 5}, "percentage_allocation": 0},
    ]
    what = imported("flagsmith", document(state("f", "own", multivariate_feature_state_values=options)))
    assert what.flags[1].variants == {"own": "own", "a": "a", "b": "b"}
    split = what.flags[1].targeting[""].otherwise
    assert isinstance(split, UserSplit)
    assert split.arms == (("a", 30), ("b", 20), ("own", 50))
    assert value_of(compiled(what), "f.value", {}) == "own"


def test_an_export_has_the_values_and_no_segments() -> None:
    options = [
        {"percentage_allocation": 100, "default_percentage_allocation": 0, "value": "b", "type": "unicode"}
    ]
    entry = {"name": "f", "enabled": True, "value": "a", "type": "unicode", "multivariate": options}
    what = imported("flagsmith", [entry], environment="prod")
    assert value_of(compiled(what, "prod"), "f", {}) is True
    assert value_of(compiled(what, "prod"), "f.value", {"targetingKey": "u"}) == "b"
    assert value_of(compiled(what, "prod"), "f.value", {}) == "a"
    assert "no segments" in what.remarks[0].message


def test_other_files_are_unreadable() -> None:
    with pytest.raises(UnreadableFile, match="neither an export"):
        imported("flagsmith", {"flags": []})


def test_spoiled_files_are_refused() -> None:
    options = [{"id": 1, "multivariate_feature_option": {"value": "b"}, "percentage_allocation": 20}]
    rules = [
        rule(
            condition("EQUAL", "x"),
            condition("GREATER_THAN", "5"),
            condition("REGEX", "^a"),
            rules=[rule(condition("IN", ["a"]), condition("PERCENTAGE_SPLIT", "5", ""), kind="NONE")],
        )
    ]
    content = document(
        state("f", "own", multivariate_feature_state_values=options),
        segments=[segment(rules, state("f", "b", feature_segment={"priority": 1}))],
        identities=[{"identifier": "ann", "identity_features": [state("f", "own")]}],
    )
    assert_never_fails("flagsmith", content)
    assert_never_fails("flagsmith", [{"name": "f", "value": 1, "enabled": True, "multivariate": options}])
