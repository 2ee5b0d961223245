"""Featurevisor's own cases, and what its projects have that has no exact form here."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from bisect import bisect_right
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import mmh3

from controller.importers.formats import import_files
from controller.importers.reading import ImportOptions, UnreadableFile
from tests.unit.controller.importers.suites import (
    CODE,
    MOST_SPOILED,
    Tally,
    compiled,
    read_yaml,
    spoiled,
    suite,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controller.importers.model import Imported
    from evaluator.resolving.resolve import CompiledFlagSet

ALLOWED: Final = frozenset({"plain-versions", "numeric-dates"})
PROBE: Final = "a segment, by a feature of its own: "


@cache
def users(seed: str) -> tuple[list[float], list[str]]:
    """Keys of users in the order of their places, from 0 to 1, where a hash with the seed has them."""
    keys = [str(number) for number in range(4000)]
    pairs = sorted((mmh3.mmh3_32_uintdigest(f"{seed}{key}".encode()) / 2**32, key) for key in keys)
    return [place for place, _ in pairs], [key for _, key in pairs]


def user_at(seed: str, percentage: float) -> str:
    """The user who is last before a percentage."""
    places, keys = users(seed)
    return keys[max(0, bisect_right(places, percentage / 100) - 1)]


def project(folder: Path) -> Imported:
    files = [
        (str(file.relative_to(folder)), file.read_bytes())
        for kind in ("features", "segments", "groups", "attributes", "tests")
        for file in sorted((folder / kind).rglob("*.yml"))
    ]
    for file in sorted((folder / "segments").rglob("*.yml")):
        key = ".".join(file.relative_to(folder / "segments").with_suffix("").parts)
        probe = {"bucketBy": "userId", "rules": {"staging": [{"segments": key, "percentage": 100}]}}
        files.append((f"features/{PROBE}{key}.json", json.dumps(probe).encode()))
    options = ImportOptions(allowed=ALLOWED)
    return import_files("featurevisor", [("", name, data) for name, data in files], options)


def filled(value: Any, matrix: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: filled(item, matrix) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, matrix) for item in value]
    if isinstance(value, str) and (name := re.fullmatch(r"\$\{\{ *(\w+) *\}\}", value)):
        return matrix[name[1]]
    return value


def assertions(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The assertions of a file, one for each combination of a matrix; children have contexts of their own."""
    for given in case["assertions"]:
        matrix = given.get("matrix") or {}
        for values in itertools.product(*matrix.values()):
            assertion = filled(given, dict(zip(matrix, values, strict=True)))
            yield assertion
            for child in assertion.get("children") or []:
                context = {**assertion.get("context", {}), **child.get("context", {})}
                yield {**assertion, **child, "context": context}


def expectations(feature: str, assertion: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys of flags, with the values that are expected."""
    if "expectedToBeEnabled" in assertion:
        yield feature, assertion["expectedToBeEnabled"]
    if "expectedVariation" in assertion:
        default = assertion.get("defaultVariationValue")
        wanted = assertion["expectedVariation"]
        yield f"{feature}:variation", CODE if wanted in (None, default) else wanted
    defaults = assertion.get("defaultVariableValues") or {}
    for name, wanted in (assertion.get("expectedVariables") or {}).items():
        is_default = wanted is None or defaults.get(name) == wanted
        yield f"{feature}:{name}", CODE if is_default else wanted


def context_of(assertion: dict[str, Any], feature: str) -> dict[str, Any] | None:
    """The context, with dates as numbers, and a user at the place in question; None: it has a null, which
    OpenFeature has not.
    """
    context = {**(assertion.get("context") or {})}
    if None in context.values():
        return None
    if "date" in context:
        context["date"] = datetime.fromisoformat(context["date"]).timestamp() * 1000
    key = context.pop("userId", None) or user_at(feature, assertion.get("at", 0))
    return {"targetingKey": key, "deviceId": key, **context}


def answer_of(flags: CompiledFlagSet, flag: str, context: dict[str, Any], wanted: Any) -> Any:
    value = value_of(flags, flag, context)
    # Some expectations have an object as JSON.
    same = isinstance(wanted, str) and isinstance(value, dict) and json.loads(wanted) == value
    return wanted if same else value


def test_the_cases_of_example_1() -> None:
    folder = suite("featurevisor")
    what = project(folder)
    flags = {environment: compiled(what, environment) for environment in ("staging", "production")}
    refused = {refusal.name for refusal in what.refusals if not refusal.segment}
    tally, skipped = Tally(), 0
    for file in sorted((folder / "tests").rglob("*.yml")):
        case = read_yaml(file)[0]
        feature = case.get("feature") or PROBE + case["segment"]
        for assertion in assertions(case):
            context = context_of(assertion, feature)
            if context is None or "sticky" in assertion or "target" in assertion:
                skipped += 1
                continue
            wanted = dict(expectations(feature, assertion))
            if "segment" in case:
                wanted = {feature: assertion["expectedToMatch"]}
            for flag, value in wanted.items():
                ask = partial(answer_of, flags[assertion.get("environment", "staging")], flag, context, value)
                key = feature if feature in refused else flag
                tally.count(f"{file.stem} {assertion}", what, key, value, ask)
    assert skipped == 5
    tally.assert_published("Featurevisor, example-1, all approximations allowed")


def read(files: dict[str, Any], environment: str = "", **options: Any) -> Imported:
    contents = [(environment, name, json.dumps(content).encode()) for name, content in files.items()]
    return import_files("featurevisor", contents, ImportOptions(**options))


def of_feature(*rules: Any, **fields: Any) -> dict[str, Any]:
    return {"bucketBy": "userId", "rules": list(rules), **fields}


def condition(operator: str, value: Any = None, attribute: str = "plan") -> dict[str, Any]:
    return {"conditions": {"attribute": attribute, "operator": operator, "value": value}}


def answer(feature: dict[str, Any], key: str = "new", *, files: Any = (), **context: Any) -> Any:
    what = read({"features/new.yml": feature, **dict(files)}, allowed=ALLOWED)
    assert not what.refusals, what.refusals
    return value_of(compiled(what), key, context)


def matches(operator: str, value: Any, **context: Any) -> Any:
    """Whether a segment with this condition is true of the context."""
    files = {"segments/a.yml": condition(operator, value)}
    return answer(of_feature({"segments": "a", "percentage": 100}), files=files, **context)


def refusal(feature: dict[str, Any], files: Any = ()) -> str:
    refusals = read({"features/new.yml": feature, **dict(files)}).refusals
    return f"{refusals[0].place} {refusals[0].message}" if refusals else ""


def test_without_the_attribute_not_in_is_false_and_not_equals_is_true() -> None:
    assert not matches("notIn", ["a"])
    assert not matches("notContains", "a")
    assert not matches("notIncludes", "a")
    assert not matches("semverNotEquals", "1.0.0")
    assert matches("notEquals", "a")
    assert matches("notExists", None)


def test_values_are_compared_without_conversion() -> None:
    assert matches("equals", 5, plan=5)
    assert not matches("equals", 5, plan="5")
    assert not matches("in", ["5"], plan=5)
    assert matches("notIn", ["5"], plan=5)
    assert not matches("notIn", ["5"], plan=True)
    assert not matches("greaterThan", 4, plan="5")
    assert matches("lessThan", 4, plan=0)
    assert not matches("lessThan", 4)


def test_a_regular_expression_that_is_a_text_finds_it() -> None:
    assert matches("matches", "^(gold|silver)", plan="silver-1")
    assert not matches("matches", "^(gold|silver)", plan="old")
    assert matches("notMatches", "old", plan="new")
    assert not matches("notMatches", "old")


def test_includes_needs_a_list() -> None:
    assert matches("includes", "a", plan=["a", "b"])
    assert not matches("includes", "a", plan="a")
    assert matches("notIncludes", "a", plan=[])
    assert not matches("notIncludes", "a", plan="b")
    assert not matches("notIncludes", "a", plan=["a"])


def test_an_attribute_with_dots_is_within_others() -> None:
    files = {"segments/a.yml": condition("equals", "x", "account.plan")}
    feature = of_feature({"segments": "a", "percentage": 100})
    assert answer(feature, files=files, account={"plan": "x"})
    assert not answer(feature, files=files, account="x")


def test_segments_are_joined_by_and_or_and_not_and_an_empty_not_is_false() -> None:
    files = {"segments/a.yml": condition("equals", "a"), "segments/b/c.yml": condition("exists")}
    for segments, expected in (
        (["a", "b.c"], [False, False, True]),
        ({"or": ["a", {"not": ["b.c"]}]}, [True, False, True]),
        ({"not": ["a", "b.c"]}, [True, True, False]),
        ({"not": []}, [False, False, False]),
        ("*", [True, True, True]),
    ):
        feature = of_feature({"segments": segments, "percentage": 100})
        contexts: tuple[dict[str, str], ...] = ({}, {"plan": "b"}, {"plan": "a"})
        assert [answer(feature, files=files, **context) for context in contexts] == expected


def test_the_first_rule_decides_also_beyond_its_percentage() -> None:
    files = {"segments/a.yml": condition("exists")}
    feature = of_feature({"segments": "a", "percentage": 0}, {"segments": "*", "percentage": 100})
    assert not answer(feature, files=files, plan="x")
    assert answer(feature, files=files)


def test_a_rule_may_turn_a_feature_on_or_off_whatever_its_percentage() -> None:
    assert not answer(of_feature({"segments": "*", "percentage": 100, "enabled": False}))
    assert answer(of_feature({"segments": "*", "percentage": 1, "enabled": True}))
    assert not answer(of_feature({"segments": "*", "percentage": 0, "enabled": True}))


def test_users_without_the_attribute_are_where_the_key_alone_is() -> None:
    place = mmh3.mmh3_32_uintdigest(b"new", 1) / 2**32 * 100
    assert answer(of_feature({"segments": "*", "percentage": math.ceil(place)})) is True
    assert answer(of_feature({"segments": "*", "percentage": math.floor(place)})) is False


def test_who_forces_a_feature_on_has_no_variation_beyond_the_percentage_and_no_variable_at_zero() -> None:
    force = [{**condition("exists"), "enabled": True}]
    schema = {"color": {"type": "string", "defaultValue": "red"}}
    feature = of_feature(
        {"segments": "*", "percentage": 0},
        force=force,
        variations=[{"value": "a", "weight": 100}],
        variablesSchema=schema,
    )
    assert answer(feature, plan="x") is True
    assert answer(feature, "new:variation", plan="x") == CODE
    assert answer(feature, "new:color", plan="x") == CODE


def test_a_variable_is_of_the_force_then_the_rule_then_the_variation() -> None:
    schema = {"color": {"type": "string", "defaultValue": "red", "disabledValue": "grey"}}
    variation = {"value": "a", "weight": 100, "variables": {"color": "of the variation"}}
    files = {"segments/a.yml": condition("equals", "a"), "segments/off.yml": condition("equals", "off")}
    feature = of_feature(
        {"segments": "off", "percentage": 0},
        {"segments": "a", "percentage": 100, "variables": {"color": "of the rule"}},
        {"segments": "*", "percentage": 100},
        force=[{**condition("equals", "forced"), "variables": {"color": "of the force"}}],
        variations=[variation],
        variablesSchema=schema,
    )
    for plan, expected in (
        ("forced", "of the force"),
        ("a", "of the rule"),
        ("b", "of the variation"),
        ("off", "grey"),
    ):
        assert answer(feature, "new:color", files=files, plan=plan, targetingKey="me") == expected


def test_a_required_feature_has_to_be_on_with_its_variation() -> None:
    other = of_feature(
        {"segments": "*", "percentage": 100, "variation": "b"},
        variations=[{"value": "a", "weight": 50}, {"value": "b", "weight": 50}],
    )
    for required, expected in (("other", True), ({"key": "other", "variation": "a"}, False)):
        feature = of_feature({"segments": "*", "percentage": 100}, required=[required])
        assert answer(feature, files={"features/other.yml": other}) is expected


def test_a_feature_is_not_in_environments_to_which_it_is_not_exposed() -> None:
    rules = {name: [{"segments": "*", "percentage": 100}] for name in ("staging", "production")}
    feature = {"bucketBy": "userId", "rules": rules, "expose": {"production": False}}
    what = read({"features/new.yml": feature})
    assert set(what.flags[0].targeting) == {"staging"}
    assert not read({"features/new.yml": feature}, environment="production").flags


def test_what_has_no_exact_form_is_refused_with_its_place() -> None:
    rule = {"segments": "*", "percentage": 50}
    place = "features/new.yml:"
    assert refusal(of_feature(rule, bucketBy=["a", "b"])).startswith(f"{place}bucketBy users are divided by")
    assert not refusal(of_feature({**rule, "percentage": 100}, bucketBy=["a", "b"]))
    group = {"groups/g.yml": {"slots": [{"feature": "new", "percentage": 50}]}}
    assert "group" in refusal(of_feature(rule), group)
    assert "archived" in refusal(of_feature(rule, archived=True))
    for operator, value, words in (
        ("matches", "a+", "regular expression"),
        ("equals", None, "null"),
        ("semverEquals", "1.0.0", "1.2.x"),
        ("before", "2023-01-01T00:00:00Z", "dates"),
    ):
        files = {"segments/a.yml": condition(operator, value)}
        assert words in refusal(of_feature({**rule, "segments": "a"}), files)
    schema = {"color": {"type": "object", "defaultValue": {"a": 1}}}
    parts = {**rule, "variables": {"color.a": 2}}
    assert "a part of a value" in refusal(of_feature(parts, variablesSchema=schema))


def test_spoiled_files_never_fail() -> None:
    schema = {"color": {"type": "object", "defaultValue": {"a": 1}, "disabledValue": {"a": 0}}}
    overrides = {"color": [{"segments": "a", "value": {"a": 3}}]}
    feature = {
        "bucketBy": {"or": ["userId", "deviceId"]},
        "rules": {
            "staging": [
                {"segments": {"or": ["a", {"not": ["a"]}]}, "percentage": 50, "variableOverrides": overrides},
                {"segments": "*", "percentage": 9.5, "variationWeights": {"x": 100, "y": 0}},
            ]
        },
        "force": {"staging": [{**condition("in", ["a", 1]), "variation": "x", "enabled": True}]},
        "variations": [
            {"value": "x", "weight": 50, "variables": {"color": {"a": 2}}},
            {"value": "y", "weight": 50},
        ],
        "required": [{"key": "other", "variation": "x"}],
        "variablesSchema": schema,
        "disabledVariationValue": "off",
        "expose": {"staging": ["all"]},
    }
    variation = {"value": "x", "weight": 100}
    other = of_feature({"segments": "*", "percentage": 100}, variations=[variation])
    segment = {"conditions": [{"or": [condition("includes", "a")["conditions"]]}]}
    files = {"features/new.yml": feature, "features/other.yml": other, "segments/a.yml": segment}
    assert not read(files).refusals
    for name in ("features/new.yml", "segments/a.yml"):
        copies = list(spoiled(files[name]))
        for other_content in copies[:: 1 + len(copies) // MOST_SPOILED]:
            with contextlib.suppress(UnreadableFile):
                read({**files, name: other_content})
