"""Unleash's own cases, and what its files have that has no exact form here."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.unit.controller.importers.suites import (
    CODE,
    Tally,
    assert_never_fails,
    compiled,
    imported,
    suite,
    value_of,
)

if TYPE_CHECKING:
    from pathlib import Path


def context_of(context: dict[str, Any]) -> dict[str, Any]:
    """The context as an application gives it to OpenFeature: `userId` is the targeting key."""
    fields = {**context.get("properties", {}), **context}
    fields = {name: value for name, value in fields.items() if name not in ("properties", "currentTime")}
    return {("targetingKey" if name == "userId" else name): value for name, value in fields.items()}


def time_of(context: dict[str, Any]) -> int:
    given = context.get("currentTime")
    return int(datetime.fromisoformat(given).timestamp()) if given else 1_700_000_000


def payload_of(expected: dict[str, Any]) -> Any:
    if not expected["enabled"]:
        return CODE
    payload = expected["payload"]
    return json.loads(payload["value"]) if payload["type"] == "number" else payload["value"]


def run_cases(file: Path, tally: Tally) -> None:
    content = json.loads(file.read_text())
    what = imported("unleash", content["state"])
    flags = compiled(what)
    for case in content.get("tests", []):
        key, context = case["toggleName"], case["context"]

        def enabled(key: str = key, context: dict[str, Any] = context) -> Any:
            value = value_of(flags, key, context_of(context), now=time_of(context))
            # Who asks for a flag that there is not gets the value in its code, false.
            return False if value == CODE else value

        tally.count(f"{file.stem}: {case['description']}", what, key, case["expectedResult"], enabled)
    for case in content.get("variantTests", []):
        key, context = f"{case['toggleName']}.variant", case["context"]

        def variant(key: str = key, context: dict[str, Any] = context) -> Any:
            return value_of(flags, key, context_of(context), now=time_of(context))

        tally.count(
            f"{file.stem}: {case['description']}", what, key, payload_of(case["expectedResult"]), variant
        )


def test_the_cases_of_client_specification() -> None:
    tally = Tally()
    for file in sorted(suite("unleash").glob("[0-9]*.json")):
        run_cases(file, tally)
    tally.assert_published("Unleash, client-specification")


CONSTRAINT = {"contextName": "plan", "operator": "IN", "values": ["gold"]}
STATE = {
    "features": [
        {
            "name": "checkout",
            "enabled": True,
            "description": "The new checkout",
            "type": "kill-switch",
            "strategies": [
                {
                    "name": "flexibleRollout",
                    "parameters": {"rollout": "50", "stickiness": "default", "groupId": "checkout"},
                    "constraints": [CONSTRAINT, {"contextName": "age", "operator": "NUM_GT", "value": "17"}],
                    "segments": [1],
                    "variants": [
                        {"name": "a", "weight": 500, "payload": {"type": "json", "value": '{"a": 1}'}},
                        {"name": "b", "weight": 500, "payload": {"type": "json", "value": '{"a": 2}'}},
                    ],
                },
                {"name": "remoteAddress", "parameters": {"IPs": "10.0.0.1"}},
            ],
            "variants": [
                {
                    "name": "c",
                    "weight": 1,
                    "stickiness": "random",
                    "overrides": [{"contextName": "userId", "values": ["me"]}],
                }
            ],
            "dependencies": [{"feature": "parent", "enabled": True, "variants": ["blue"]}],
        },
        {
            "name": "parent",
            "enabled": True,
            "strategies": [],
            "variants": [{"name": "blue", "weight": 1}, {"name": "red", "weight": 0}],
        },
    ],
    "segments": [
        {
            "id": 1,
            "name": "recent",
            "constraints": [
                {"contextName": "version", "operator": "SEMVER_GT", "value": "1.2.3"},
                {"contextName": "currentTime", "operator": "DATE_AFTER", "value": "2022-01-29T13:00:00Z"},
            ],
        }
    ],
}
EXPORT = {
    "features": [{"name": "new", "type": "release", "project": "shop", "description": "New"}],
    "featureStrategies": [
        {"featureName": "new", "name": "applicationHostname", "disabled": True},
        {"featureName": "new", "name": "default", "constraints": [CONSTRAINT]},
    ],
    "featureEnvironments": [
        {
            "featureName": "new",
            "enabled": True,
            "environment": "production",
            "variants": [{"name": "a", "weight": 1000, "payload": {"type": "string", "value": "A"}}],
        }
    ],
    "featureTags": [{"featureName": "new", "tagType": "simple", "tagValue": "shop"}],
    "dependencies": [],
    "segments": [],
}


def feature(**fields: Any) -> dict[str, Any]:
    return {"features": [{"name": "new", "enabled": True, "strategies": [], **fields}]}


def constrained(**fields: Any) -> dict[str, Any]:
    constraint = {"contextName": "plan", "operator": "IN", **fields}
    return feature(strategies=[{"name": "default", "constraints": [constraint]}])


def answer(content: dict[str, Any], key: str = "new", *, allowed: str = "", **context: Any) -> Any:
    what = imported("unleash", content, allowed=frozenset([allowed]))
    assert not what.refusals, what.refusals
    return value_of(compiled(what), key, context)


def refusal(content: dict[str, Any]) -> str:
    refusals = imported("unleash", content).refusals
    return f"{refusals[0].place}: {refusals[0].message}" if refusals else ""


def test_an_enabled_feature_without_strategies_is_on() -> None:
    assert answer(feature()) is True
    assert answer(feature(enabled=False)) is False


def test_without_the_attribute_not_in_is_true_and_so_is_any_inverted_constraint() -> None:
    assert answer(constrained(operator="NOT_IN", values=["gold"])) is True
    assert answer(constrained(values=["gold"], inverted=True)) is True
    assert answer(constrained(operator="NUM_GT", value="1", inverted=True)) is True
    assert answer(constrained(values=["gold"])) is False


def test_values_are_texts_and_numbers_are_read_from_texts() -> None:
    assert answer(constrained(values=["12"]), plan="12") is True
    assert answer(constrained(values=["12"]), plan=12) is False
    assert answer(constrained(operator="NUM_EQ", value="12.0"), plan="12") is True


def test_an_empty_list_is_in_nothing() -> None:
    assert answer(constrained(values=[]), plan="gold") is False
    assert answer(constrained(operator="NOT_IN", values=[]), plan="gold") is True


def test_a_full_rollout_needs_the_attribute_that_it_sticks_to_unless_that_is_the_default() -> None:
    def rollout(stickiness: str) -> dict[str, Any]:
        parameters = {"rollout": "100", "stickiness": stickiness}
        return feature(strategies=[{"name": "flexibleRollout", "parameters": parameters}])

    assert answer(rollout("default")) is True
    assert answer(rollout("random")) is True
    assert answer(rollout("team")) is False
    assert answer(rollout("team"), team="a") is True
    assert answer(rollout("userId"), targetingKey="me") is True


def test_a_share_by_default_follows_the_session_of_users_without_a_key() -> None:
    parameters = {"rollout": "50", "stickiness": "default"}
    what = imported("unleash", feature(strategies=[{"name": "flexibleRollout", "parameters": parameters}]))
    flags = compiled(what)
    sessions = [value_of(flags, "new", {"sessionId": str(number)}) for number in range(200)]
    users = [value_of(flags, "new", {"targetingKey": str(number)}) for number in range(200)]
    assert 60 < sum(sessions) < 140
    assert sessions == users
    assert value_of(flags, "new", {}) is False
    assert "at random" in what.remarks[0].message


def test_users_divided_at_random_are_refused_unless_that_is_allowed() -> None:
    content = feature(strategies=[{"name": "gradualRolloutRandom", "parameters": {"percentage": 50}}])
    assert "at random" in refusal(content)
    assert answer(content, allowed="random", targetingKey="me") in (True, False)


def test_texts_compared_without_case_are_refused_unless_that_is_allowed() -> None:
    content = constrained(operator="STR_CONTAINS", values=["Go"], caseInsensitive=True)
    assert "case" in refusal(content)
    assert answer(content, allowed="case-sensitive", plan="Gold") is True


def test_what_has_no_exact_form_is_refused_with_its_place() -> None:
    place = "file0.json:features[0].strategies[0]"
    assert refusal(constrained(operator="REGEX", value="a+")).startswith(
        f"{place}.constraints[0]: the regular"
    )
    assert refusal(feature(strategies=[{"name": "ours"}])).startswith(f'{place}: the strategy "ours" is code')
    ranges = {"name": "remoteAddress", "parameters": {"IPs": "10.0.0.0/8"}}
    assert "10.0.0.0/8 is a range" in refusal(feature(strategies=[ranges]))
    hosts = {"name": "applicationHostname", "parameters": {"hostNames": "a"}}
    assert refusal(feature(strategies=[hosts])).startswith(f"{place}: the strategy")
    date = {"contextName": "currentTime", "operator": "DATE_AFTER", "value": "2022-01-29T13:00:00"}
    assert "no date with a time zone" in refusal(constrained(**date))


def test_variants_are_a_second_flag_which_a_feature_that_is_off_does_not_have() -> None:
    variants = [{"name": "a", "weight": 1, "payload": {"type": "number", "value": "1.5"}}]
    assert answer(feature(variants=variants), "new.variant") == 1.5
    assert answer(feature(variants=variants, enabled=False), "new.variant") == CODE


def test_a_variant_without_a_payload_has_its_name_as_value() -> None:
    assert answer(feature(variants=[{"name": "a", "weight": 1}]), "new.variant") == "a"


def test_overrides_of_a_variant_come_before_the_division() -> None:
    overrides = [{"contextName": "userId", "values": ["me"]}]
    variants = [{"name": "a", "weight": 1}, {"name": "b", "weight": 0, "overrides": overrides}]
    assert answer(feature(variants=variants), "new.variant", targetingKey="me") == "b"
    assert answer(feature(variants=variants), "new.variant", targetingKey="you") == "a"


def test_the_variants_of_a_flag_are_divided_apart_from_its_rollout() -> None:
    strategy = {"name": "flexibleRollout", "parameters": {"rollout": "50", "stickiness": "userId"}}
    variants = [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}]
    flags = compiled(imported("unleash", feature(strategies=[{**strategy, "variants": variants}])))
    values = [value_of(flags, "new.variant", {"targetingKey": str(number)}) for number in range(400)]
    assert 50 < values.count("a") < 150
    assert 50 < values.count("b") < 150


def test_an_export_has_strategies_variants_and_tags_apart_from_features() -> None:
    what = imported("unleash", EXPORT, environment="production")
    flags = compiled(what, "production")
    assert value_of(flags, "new", {"plan": "gold"}) is True
    assert value_of(flags, "new", {}) is False
    assert value_of(flags, "new.variant", {"plan": "gold"}) == "A"
    assert what.flags[0].metadata == {
        "description": "New",
        "type": "release",
        "project": "shop",
        "tags": "simple:shop",
    }


def test_an_exported_feature_whose_strategies_are_all_disabled_is_off() -> None:
    content = {**EXPORT, "featureStrategies": [{"featureName": "new", "name": "default", "disabled": True}]}
    assert answer(content) is False
    assert answer({**EXPORT, "featureStrategies": []}) is True


def test_segments_of_an_export_need_a_second_file_with_their_constraints() -> None:
    strategy = {"featureName": "new", "name": "default", "segments": [7]}
    content = {**EXPORT, "featureStrategies": [strategy], "segments": [{"id": 7, "name": "gold"}]}
    assert "/api/admin/segments" in refusal(content)
    segments = {"segments": [{"id": 7, "name": "gold", "constraints": [CONSTRAINT]}]}
    for files in ((content, segments), (segments, content)):
        what = imported("unleash", *files)
        assert not what.refusals
        assert value_of(compiled(what), "new", {"plan": "gold"}) is True


def test_spoiled_files_never_fail() -> None:
    for content in (
        STATE,
        EXPORT,
        {"events": [{"type": "hydration", **EXPORT}, {"type": "feature-removed"}]},
    ):
        assert_never_fails("unleash", content)
