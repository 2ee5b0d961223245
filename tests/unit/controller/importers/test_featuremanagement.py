"""Microsoft's own cases, and what features have that is easily read in another way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.importers.reading import UnreadableFile
from tests.unit.controller.importers.suites import (
    CODE,
    Tally,
    assert_never_fails,
    compiled,
    imported,
    moved_share,
    suite,
    value_of,
)


def test_the_samples_of_feature_management() -> None:
    tally = Tally()
    for file in sorted(suite("feature-management").glob("*.sample.json")):
        sample = json.loads(file.read_bytes())
        cases = file.with_name(file.name.replace(".sample.", ".tests."))
        for case in json.loads(cases.read_bytes()):
            run_cases(file.stem, sample, case, tally)
    tally.assert_published("Microsoft, FeatureManagement samples")
    assert list(tally.reasons) == ["it is neither true nor false"]


def run_cases(file: str, sample: dict[str, Any], case: dict[str, Any], tally: Tally) -> None:
    what = imported("featuremanagement", sample)
    flags, key, inputs = compiled(what), case["FeatureFlagName"], case["Inputs"]
    names = {"User": "targetingKey", "Groups": "Groups"}
    context = {names[name]: value for name, value in inputs.items()}
    name = f"{file}: {case['Description']} {inputs}"
    enabled = case["IsEnabled"].get("Result") == "true"
    tally.count(name, what, key, enabled, lambda: value_of(flags, key, context))
    variant = (case.get("Variant") or {}).get("Result")
    if variant:
        value = variant["ConfigurationValue"]
        tally.count(name, what, f"{key}.variant", value, lambda: value_of(flags, f"{key}.variant", context))


def content_of(**flag: Any) -> dict[str, Any]:
    return {"feature_management": {"feature_flags": [{"id": "f", "enabled": True, **flag}]}}


def filtered(name: str, requirement: str = "Any", **parameters: Any) -> dict[str, Any]:
    filters = [{"name": name, "parameters": parameters}]
    return content_of(conditions={"client_filters": filters, "requirement_type": requirement})


def value(content: Any, context: dict[str, Any] | None = None, key: str = "f", **options: Any) -> Any:
    what = imported("featuremanagement", content, **options)
    assert not what.refusals
    return value_of(compiled(what), key, context or {})


def refusal(content: Any) -> str:
    what = imported("featuremanagement", content)
    assert not what.flags
    return what.refusals[0].message


VARIANTS = [
    {"name": "Big", "configuration_value": 10},
    {"name": "Small", "configuration_value": 1, "status_override": "Disabled"},
    {"name": "Off", "configuration_value": 0, "status_override": "Enabled"},
]


def test_a_feature_without_filters_is_on_and_one_without_a_switch_is_off() -> None:
    assert value(content_of(conditions={"client_filters": []})) is True
    assert value({"feature_management": {"feature_flags": [{"id": "f"}]}}) is False
    assert value(content_of(enabled="True")) is True


def test_users_of_the_first_allocation_get_its_variant_before_groups_and_percentiles() -> None:
    allocation = {
        "user": [{"variant": "Big", "users": ["a"]}, {"variant": "Small", "users": ["a", "b"]}],
        "group": [{"variant": "Off", "groups": ["g"]}],
        "percentile": [{"variant": "Small", "from": 0, "to": 100}],
    }
    content = content_of(variants=VARIANTS, allocation=allocation)
    context = {"Groups": ["x", "g"]}
    assert value(content, {"targetingKey": "a", **context}, "f.variant") == 10
    assert value(content, {"targetingKey": "b", **context}, "f.variant") == 1
    assert value(content, {"targetingKey": "c", **context}, "f.variant") == 0
    assert value(content, {"targetingKey": "c"}, "f.variant") == 1


def test_a_variant_overrides_what_filters_say_but_not_the_switch() -> None:
    enabled = content_of(variants=VARIANTS, allocation={"default_when_enabled": "Small"})
    assert value(enabled) is False
    past = filtered("Microsoft.TimeWindow", End="Tue, 27 Jun 2023 06:00:00 GMT")
    flag = past["feature_management"]["feature_flags"][0]
    flag |= {"variants": VARIANTS, "allocation": {"default_when_disabled": "Off"}}
    assert value(past) is True
    assert value(past, key="f.variant") == 0
    flag["enabled"] = False
    assert value(past) is False
    assert value(past, key="f.variant") == 0


def test_an_unknown_variant_is_the_default_and_without_one_the_callers_value() -> None:
    allocation = {"user": [{"variant": "Huge", "users": ["a"]}], "default_when_enabled": "Big"}
    assert (
        value(content_of(variants=VARIANTS, allocation=allocation), {"targetingKey": "a"}, "f.variant") == 10
    )
    del allocation["default_when_enabled"]
    assert (
        value(content_of(variants=VARIANTS, allocation=allocation), {"targetingKey": "a"}, "f.variant")
        == CODE
    )


def test_variants_without_configuration_have_their_names_as_values() -> None:
    variants = [{"name": "Big"}, {"name": "Small"}]
    assert (
        value(content_of(variants=variants, allocation={"default_when_enabled": "Big"}), key="f.variant")
        == "Big"
    )
    assert "has no configuration_value" in refusal(content_of(variants=[*variants, VARIANTS[2]]))


def test_percentiles_that_leave_a_hole_or_overlap_divide_as_they_are_listed() -> None:
    percentiles = [{"variant": "Big", "from": 10, "to": 40}, {"variant": "Off", "from": 20, "to": 50}]
    allocation = {"percentile": percentiles, "default_when_enabled": "Small", "seed": "s"}
    what = imported("featuremanagement", content_of(variants=VARIANTS, allocation=allocation))
    split = what.flags[1].targeting[""].otherwise
    assert split.arms == (("Small", 10), ("Big", 10), ("Big", 20), ("Off", 10), ("Small", 50))  # type: ignore[union-attr]
    assert moved_share(what, "f.variant") == pytest.approx(1 - 0.6**2 - 0.3**2 - 0.1**2)


def test_both_flags_of_a_feature_divide_users_alike() -> None:
    percentiles = [{"variant": "Big", "from": 0, "to": 50}, {"variant": "Small", "from": 50, "to": 100}]
    what = imported(
        "featuremanagement", content_of(variants=VARIANTS, allocation={"percentile": percentiles})
    )
    flags = compiled(what)
    for number in range(50):
        context = {"targetingKey": f"user{number}"}
        assert value_of(flags, "f", context) is (value_of(flags, "f.variant", context) == 10)


def test_an_excluded_group_or_user_is_off_though_named_elsewhere() -> None:
    audience = {
        "Users": ["a", "b"],
        "DefaultRolloutPercentage": 100,
        "Exclusion": {"Users": ["b"], "Groups": ["out"]},
    }
    content = filtered("Microsoft.Targeting", Audience=audience)
    assert value(content, {"targetingKey": "a"}) is True
    assert value(content, {"targetingKey": "b"}) is False
    assert value(content, {"targetingKey": "a", "Groups": ["out"]}) is False
    assert value(content, {}) is True


def test_all_callers_without_a_user_are_one_user_of_a_percentage() -> None:
    assert value(filtered("Targeting", Audience={"DefaultRolloutPercentage": 99.5})) is True
    assert value(filtered("Targeting", Audience={"DefaultRolloutPercentage": 0.5})) is False


def test_names_of_parameters_and_filters_are_of_any_case() -> None:
    assert value(filtered("microsoft.TARGETING", audience={"users": ["a"]}), {"targetingKey": "a"}) is True
    assert value(filtered("AlwaysOn", "all")) is True


def test_times_are_whole_seconds_and_need_a_time_zone() -> None:
    assert value(filtered("TimeWindow", Start="2023-11-14T22:13:20+00:00")) is True
    assert value(filtered("TimeWindow", Start="2023-11-14T22:13:20.5Z")) is False
    assert value(filtered("TimeWindow", End="2023-11-14T22:13:20.5Z")) is True
    assert value(filtered("TimeWindow")) is False
    assert "no time with a time zone" in refusal(filtered("TimeWindow", Start="2023-11-14T22:13:20"))


def test_a_random_percentage_is_refused_unless_allowed() -> None:
    content = filtered("Microsoft.Percentage", Value=50)
    assert "at random" in refusal(content)
    what = imported("featuremanagement", content, allowed=frozenset({"random-percentage"}))
    assert what.flags[0].metadata["importedWith"] == "random-percentage"
    assert moved_share(what, "f") == 0.5


def test_recurrence_and_filters_of_the_application_are_refused() -> None:
    recurrence = {"Pattern": {"Type": "Daily"}}
    assert "recurs" in refusal(filtered("Microsoft.TimeWindow", Recurrence=recurrence))
    assert "in the application" in refusal(filtered("Browser", Allowed=["Edge"]))
    assert "neither Any nor All" in refusal(filtered("On", "Most"))


def test_the_older_schema_is_no_file_of_this_format() -> None:
    with pytest.raises(UnreadableFile, match="schema 1"):
        imported("featuremanagement", {"FeatureManagement": {"f": {"EnabledFor": []}}})


def test_metadata_are_the_description_and_the_name() -> None:
    flag = imported("featuremanagement", content_of(description="why", display_name="F")).flags[0]
    assert flag.metadata == {"description": "why", "displayName": "F"}


def test_spoiled_files_are_refused() -> None:
    audience = {
        "Users": ["a"],
        "Groups": [{"Name": "g", "RolloutPercentage": 50}],
        "Exclusion": {"Users": ["b"]},
    }
    content = filtered("Microsoft.Targeting", Audience=audience)
    window = {"name": "Microsoft.TimeWindow", "parameters": {"Start": "2023-11-14T22:13:20Z"}}
    flag = content["feature_management"]["feature_flags"][0]
    flag["conditions"]["client_filters"].append(window)
    flag["variants"] = VARIANTS
    flag["allocation"] = {
        "user": [{"variant": "Big", "users": ["a"]}],
        "percentile": [{"variant": "Big", "from": 0, "to": 50}],
        "default_when_enabled": "Big",
    }
    assert_never_fails("featuremanagement", content)
