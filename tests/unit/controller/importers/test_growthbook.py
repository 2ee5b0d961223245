"""GrowthBook's own cases, and what its features have that is easily read in another way."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from controller.importers.model import NEXT, UserHash, UserSplit
from controller.importers.reading import UnreadableFile
from tests.unit.controller.importers.suites import (
    CODE,
    Tally,
    assert_never_fails,
    compiled,
    imported,
    suite,
    value_of,
)

ALL: Final = frozenset({"experiments", "namespaces", "semantic-versions"})
LISTS: Final = frozenset({"tags", "nums", "$groups", "hobbies"})


def context_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes as an application gives them to OpenFeature."""
    rest = {name: value for name, value in attributes.items() if name != "id"}
    return rest | ({"targetingKey": str(attributes["id"])} if "id" in attributes else {})


def cases(name: str) -> list[Any]:
    loaded: list[Any] = json.loads((suite("growthbook") / "cases.json").read_bytes())[name]
    return loaded


def run_feature(case: list[Any], tally: Tally) -> None:
    name, options, key, result = case
    content = {"features": options.get("features", {}), "savedGroups": options.get("savedGroups")}
    what = imported("growthbook", content, allowed=ALL, lists=LISTS)
    expected = CODE if result["value"] is None else result["value"]
    context = context_of(options.get("attributes", {}))
    tally.count(name, what, key, expected, lambda: value_of(compiled(what), key, context))


def run_condition(case: list[Any], tally: Tally, **options: Any) -> None:
    name, condition, attributes, expected = case[:4]
    content = on_if(condition) | {"savedGroups": case[4] if len(case) > 4 else None}
    what = imported("growthbook", content, lists=LISTS, **options)
    tally.count(name, what, "f", expected, lambda: value_of(compiled(what), "f", context_of(attributes)))


def test_the_features_of_growthbook() -> None:
    tally = Tally()
    for case in cases("feature"):
        # Forced variations are options of an SDK, and not of a feature.
        if "forcedVariations" not in case[1]:
            run_feature(case, tally)
    tally.assert_published("GrowthBook, features of cases.json, all approximations allowed")


def test_the_conditions_of_growthbook() -> None:
    tally = Tally()
    for case in cases("evalCondition"):
        run_condition(case, tally)
    tally.assert_published("GrowthBook, conditions of cases.json")


def test_the_versions_of_growthbook_where_semantic_versions_are_allowed() -> None:
    tally = Tally()
    for case in cases("evalCondition"):
        run_condition(case, tally, allowed=ALL)
    assert tally.agree >= 188
    assert [case.split(":")[0] for case in tally.differ] == [
        "version a.b.c.d.e.f > 1.2.3",
        "version 1-2-3 == 1.2.3",
        "version 1-2-3 == v1.2.3",
        "version 1.2.3.4 == 1.2.3-4",
    ]


def on_if(condition: dict[str, Any]) -> dict[str, Any]:
    return {"features": {"f": {"defaultValue": False, "rules": [{"condition": condition, "force": True}]}}}


def holds(condition: dict[str, Any], context: dict[str, Any], **options: Any) -> bool:
    what = imported("growthbook", on_if(condition), **options)
    assert not what.refusals
    answer = value_of(compiled(what), "f", context)
    assert isinstance(answer, bool)
    return answer


def refusal(content: dict[str, Any]) -> str:
    return imported("growthbook", content).refusals[0].message


def split_of(rule: dict[str, Any], **feature: Any) -> UserSplit:
    content = {"features": {"f": {"defaultValue": "d", "rules": [rule], **feature}}}
    what = imported("growthbook", content, allowed=ALL)
    outcome = what.flags[0].targeting[""].rules[0].then
    assert isinstance(outcome, UserSplit)
    return outcome


def test_a_missing_attribute_is_zero_in_a_comparison_and_null_in_an_equality() -> None:
    assert holds({"age": {"$lt": 10}}, {})
    assert not holds({"age": {"$gt": 10}}, {})
    assert holds({"age": {"$eq": None}}, {})
    assert holds({"age": {"$in": [1, None]}}, {})
    assert holds({"age": {"$ne": 10}}, {})
    assert holds({"age": {"$nin": [10]}}, {})


def test_texts_equal_no_numbers_but_are_compared_with_them() -> None:
    assert not holds({"age": 10}, {"age": "10"})
    assert not holds({"age": {"$in": [10]}}, {"age": "10"})
    assert holds({"age": {"$lte": 10}}, {"age": "10"})
    assert holds({"word": {"$gt": "alpha"}}, {"word": "beta"})
    assert not holds({"on": True}, {"on": 1})


def test_a_list_has_one_of_the_values_where_it_is_said_to_be_a_list() -> None:
    tags = frozenset({"tags"})
    assert holds({"tags": {"$in": ["a", "b"]}}, {"tags": ["x", "b"]}, lists=tags)
    assert holds({"tags": {"$in": ["a", None]}}, {}, lists=tags)
    assert not holds({"tags": {"$nin": ["a", "b"]}}, {"tags": ["x", "b"]}, lists=tags)


def test_only_a_list_has_matching_items() -> None:
    assert holds({"n": {"$elemMatch": {"$gt": 1}}}, {"n": [0, 2]})
    assert not holds({"n": {"$elemMatch": {"$gt": 1}}}, {"n": 2})
    assert not holds({"n": {"$all": ["a"]}}, {"n": "a"})
    assert holds({"n": {"$elemMatch": {"kind": "a", "id": 2}}}, {"n": [{"kind": "a", "id": 2}]})


def test_expressions_that_are_texts_are_searched_and_others_refused() -> None:
    assert holds({"mail": {"$regex": r"@example\.com$"}}, {"mail": "a@example.com"})
    assert not holds({"mail": {"$regex": r"@example\.com$"}}, {"mail": "a@exampleXcom"})
    assert holds({"mail": {"$notRegex": "^(a|b)"}}, {"mail": "c"})
    assert holds({"mail": {"$notRegex": "^(a|b)"}}, {})
    assert "no form here" in refusal(on_if({"mail": {"$regex": "a.*b"}}))


def test_without_a_version_it_is_less_than_any() -> None:
    assert holds({"v": {"$vlt": "1.0.0"}}, {}, allowed=ALL)
    assert holds({"v": {"$vne": "1.0.0"}}, {}, allowed=ALL)
    assert not holds({"v": {"$vgt": "1.0.0"}}, {}, allowed=ALL)


def test_coverage_leaves_holes_that_go_to_the_next_rule() -> None:
    split = split_of({"variations": ["a", "b"], "coverage": 0.5, "weights": [0.4, 0.6]})
    assert split.arms == (("a", 20000), (NEXT, 20000), ("b", 30000), (NEXT, 30000))


def test_unusable_weights_are_equal_ones() -> None:
    assert split_of({"variations": ["a", "b"], "weights": [0.5, 0.1]}).arms == (("a", 50000), ("b", 50000))
    assert split_of({"variations": ["a", "b"], "weights": [1]}).arms == (("a", 50000), ("b", 50000))


def test_a_range_beats_coverage_and_another_seed_and_attribute_are_kept() -> None:
    rule = {"force": "a", "range": [0.2, 0.4], "coverage": 1, "seed": "s", "hashAttribute": "company"}
    split = split_of(rule)
    assert split.arms == ((NEXT, 20000), ("a", 20000), (NEXT, 60000))
    assert split.bucket == UserHash("company", "s")


def test_full_coverage_still_needs_the_attribute() -> None:
    content = {"features": {"f": {"defaultValue": 1, "rules": [{"force": 2, "coverage": 1}]}}}
    flags = compiled(imported("growthbook", content))
    assert value_of(flags, "f", {"targetingKey": "a"}) == 2
    assert value_of(flags, "f", {}) == 1


def test_a_gate_that_fails_ends_the_walk_with_the_callers_value() -> None:
    gate = {"id": "parent", "condition": {"value": True}, "gate": True}
    child = {"defaultValue": "d", "rules": [{"parentConditions": [gate]}, {"force": "a"}]}
    parent = {"defaultValue": False, "rules": [{"condition": {"plan": "pro"}, "force": True}]}
    flags = compiled(imported("growthbook", {"features": {"child": child, "parent": parent}}))
    assert value_of(flags, "child", {"plan": "pro"}) == "a"
    assert value_of(flags, "child", {}) == CODE


def test_a_prerequisite_without_a_value_is_null() -> None:
    needs = {"id": "parent", "condition": {"value": {"$exists": False}}}
    child = {"defaultValue": "d", "rules": [{"parentConditions": [needs], "force": "a"}]}
    parent = {"defaultValue": None, "rules": [{"condition": {"plan": "pro"}, "force": 1}]}
    flags = compiled(imported("growthbook", {"features": {"child": child, "parent": parent}}))
    assert value_of(flags, "child", {"plan": "pro"}) == "d"
    assert value_of(flags, "child", {}) == "a"


def test_saved_groups_are_shared_rules() -> None:
    content = on_if({"id": {"$inGroup": "g"}}) | {"savedGroups": {"g": [1, 2], "unused": ["a"]}}
    what = imported("growthbook", content)
    assert [segment.name for segment in what.segments] == ["g"]
    assert value_of(compiled(what), "f", {"targetingKey": "2"}) is True


def test_experiments_and_namespaces_are_refused_unless_allowed() -> None:
    rule = {"variations": [1, 2], "namespace": ["n", 0, 0.5]}
    content = {"features": {"f": {"defaultValue": 0, "rules": [rule]}}}
    assert "experiment" in refusal(content)
    allowed = frozenset({"experiments"})
    assert "namespace" in imported("growthbook", content, allowed=allowed).refusals[0].message
    flag = imported("growthbook", content, allowed=ALL).flags[0]
    assert flag.metadata["importedWith"] == "experiments, namespaces"


def test_files_of_another_kind_are_unreadable() -> None:
    with pytest.raises(UnreadableFile, match="encrypted"):
        imported("growthbook", {"features": {}, "encryptedFeatures": "x"})
    with pytest.raises(UnreadableFile, match="no object features"):
        imported("growthbook", {"features": [{"id": "f"}]})


def test_spoiled_files_are_refused() -> None:
    parent = {"id": "g", "condition": {"value": {"$gt": 1}}, "gate": True}
    condition = {"$or": [{"a": {"$in": ["x"]}}, {"$not": {"id": {"$inGroup": "s"}}}], "b": {"$regex": "^a"}}
    filters = [{"seed": "s", "ranges": [[0, 0.5]]}]
    rule = {"condition": condition, "parentConditions": [parent], "filters": filters}
    features = {
        "f": {
            "defaultValue": 0,
            "rules": [rule | {"variations": [1, 2], "weights": [0.5, 0.5], "meta": [{}]}],
        },
        "g": {"defaultValue": 1, "rules": [{"force": 2, "coverage": 0.5}, {"force": 3, "range": [0, 0.5]}]},
    }
    content = {"features": features, "savedGroups": {"s": ["a"]}}
    assert_never_fails("growthbook", content, allowed=ALL)
