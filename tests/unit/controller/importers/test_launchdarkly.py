"""LaunchDarkly's own cases, and what its files have that has no exact form here."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.resolving.resolution import FlagType
from tests.unit.controller.importers.suites import (
    CODE,
    Tally,
    assert_never_fails,
    compiled,
    imported,
    read_yaml,
    suite,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.importers.model import Imported

LISTS = frozenset({"attrname", "attr1"})
"""Attributes that are lists in some contexts of the suite."""


TYPES = {
    "bool": FlagType.BOOLEAN,
    "int": FlagType.INTEGER,
    "double": FlagType.FLOAT,
    "string": FlagType.STRING,
    "any": None,
}


def combinations(parameters: list[Any]) -> Iterator[dict[str, Any]]:
    if parameters and isinstance(parameters[0], list):
        for parts in itertools.product(*parameters):
            yield {name: value for part in parts for name, value in part.items()}
    else:
        yield from parameters or [{}]


def filled(value: Any, constants: dict[str, Any]) -> Any:
    """The template with each `<NAME>` replaced: a whole text by the value, else by its text."""
    if isinstance(value, dict):
        return {filled(key, constants): filled(item, constants) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, constants) for item in value]
    if isinstance(value, str):
        for name, constant in constants.items():
            if value == f"<{name}>":
                return filled(constant, constants)
            value = value.replace(f"<{name}>", str(constant))
    return value


def context_of(context: dict[str, Any]) -> dict[str, Any]:
    """The context as an application gives it to OpenFeature: a user is all of it, other kinds are within."""
    if context.get("kind") == "multi":
        parts = {kind: part for kind, part in context.items() if kind != "kind"}
    else:
        custom = context.get("custom") or {}
        own = {name: value for name, value in context.items() if name not in ("kind", "custom")}
        parts = {context.get("kind", "user"): {**own, **custom}}
    user = dict(parts.pop("user", {}))
    return {**({"targetingKey": user.pop("key")} if "key" in user else {}), **user, **parts}


def tally_of(**options: Any) -> Tally:
    tally = Tally()
    for file in sorted(suite("launchdarkly").glob("*.yml")):
        for cases in read_yaml(file):
            for parameters in combinations(cases.get("parameters") or []):
                whole = filled(cases, {**(cases.get("constants") or {}), **parameters})
                run_cases(file.stem, whole, tally, **options)
    return tally


def test_the_cases_of_sdk_test_harness() -> None:
    tally_of().assert_published("LaunchDarkly, sdk-test-harness")


def test_short_versions_alone_differ_once_they_are_allowed() -> None:
    tally_of(allowed=frozenset({"short-versions"})).assert_published(
        "the same with `--allow short-versions`",
        "operators-semver-equal: 2.0-rc semVerEqual",
        "operators-semver-equal: 2-rc semVerEqual",
    )


def run_cases(name: str, cases: dict[str, Any], tally: Tally, **options: Any) -> None:
    what = imported("launchdarkly", cases["sdkData"], lists=LISTS, **options)
    flags = compiled(what)
    for case in cases["evaluations"]:
        key, default = case["flagKey"], case.get("default")

        def ask(key: str = key, case: dict[str, Any] = case, default: Any = default) -> Any:
            value = value_of(
                flags, key, context_of(case["context"]), wanted=TYPES[case.get("valueType", "any")]
            )
            return default if value == CODE else value

        tally.count(
            f"{name}: {case.get('name')} {json.dumps(case['context'])}",
            what,
            key,
            case["expect"]["value"],
            ask,
        )


def flags_of(*flags: dict[str, Any], **options: Any) -> Imported:
    return imported("launchdarkly", {"flags": {flag["key"]: flag for flag in flags}}, **options)


def flag(*clauses: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A flag that gives "yes" where the clauses match, and "no" elsewhere."""
    rules = [{"variation": 0, "clauses": list(clauses)}] if clauses else []
    return {
        "key": "new",
        "on": True,
        "variations": ["yes", "no", "off"],
        "offVariation": 2,
        "fallthrough": {"variation": 1},
        "rules": rules,
        **fields,
    }


def clause(operator: str, *values: Any, attribute: str = "plan", **fields: Any) -> dict[str, Any]:
    return {"attribute": attribute, "op": operator, "values": list(values), **fields}


def answer_of(one: dict[str, Any], **context: Any) -> Any:
    return value_of(compiled(flags_of(one)), "new", {"targetingKey": "ann", **context})


@pytest.mark.parametrize("operator", ["in", "startsWith", "contains", "lessThan"])
def test_a_missing_attribute_matches_nothing_also_where_it_is_negated(operator: str) -> None:
    value = 5 if operator == "lessThan" else "gold"
    assert answer_of(flag(clause(operator, value))) == "no"
    assert answer_of(flag(clause(operator, value, negate=True))) == "no"
    assert answer_of(flag(clause(operator, value, negate=True)), plan="basic") == "yes"


def test_a_number_is_less_than_no_text_and_a_missing_one_is_not_zero() -> None:
    younger = flag(clause("lessThan", 5))
    assert answer_of(younger, plan=4) == "yes"
    assert answer_of(younger, plan="4") == "no"
    assert answer_of(younger, plan=True) == "no"
    assert answer_of(younger) == "no"


def test_a_flag_that_is_off_gives_the_off_variation_and_no_target_another() -> None:
    targeted = flag(on=False, targets=[{"variation": 0, "values": ["ann"]}])
    assert answer_of(targeted) == "off"
    assert answer_of({**targeted, "on": True}) == "yes"
    assert answer_of({**targeted, "offVariation": None}) == CODE


def test_targets_come_before_rules_and_any_rule_before_the_fallthrough() -> None:
    one = flag(clause("in", "gold"), targets=[{"variation": 2, "values": ["ann"]}])
    assert answer_of(one, plan="gold") == "off"
    assert answer_of(one, targetingKey="bob", plan="gold") == "yes"
    assert answer_of(one, targetingKey="bob") == "no"


def test_a_prerequisite_that_is_off_is_not_met_whatever_it_serves() -> None:
    needed = {**flag(), "key": "needed", "on": False, "offVariation": 0}
    one = flag(prerequisites=[{"key": "needed", "variation": 0}])
    off = compiled(flags_of(one, needed))
    on = compiled(flags_of(one, {**needed, "on": True, "fallthrough": {"variation": 0}}))
    assert value_of(off, "new", {"targetingKey": "ann"}) == "off"
    assert value_of(on, "new", {"targetingKey": "ann"}) == "no"


def test_the_excluded_are_in_no_segment_unless_they_are_included() -> None:
    segment = {
        "key": "beta", "included": ["ann"], "excluded": ["ann", "bob"],
        "rules": [{"clauses": [clause("in", "gold")]}],
    }  # fmt: skip
    one = flag(clause("segmentMatch", "beta", attribute=""))
    flags = compiled(imported("launchdarkly", {"flags": {"new": one}, "segments": {"beta": segment}}))
    answers = {
        key: value_of(flags, "new", {"targetingKey": key, "plan": "gold"}) for key in ("ann", "bob", "eve")
    }
    assert answers == {"ann": "yes", "bob": "no", "eve": "yes"}


def test_lists_count_by_their_items_once_their_attribute_is_named() -> None:
    one = flag(clause("in", "gold"))
    context = {"targetingKey": "ann", "plan": ["basic", "gold"]}
    assert value_of(compiled(flags_of(one)), "new", context) == "no"
    assert value_of(compiled(flags_of(one, lists=frozenset({"plan"}))), "new", context) == "yes"


def test_a_context_of_another_kind_is_an_attribute_of_its_name() -> None:
    one = flag(clause("in", "acme", attribute="key", contextKind="organization"))
    assert answer_of(one, organization={"key": "acme"}) == "yes"
    assert answer_of(one, organization={"key": "other"}) == "no"


def test_users_without_the_attribute_of_a_rollout_get_its_first_variation() -> None:
    shares = [{"variation": 0, "weight": 40_000}, {"variation": 1, "weight": 60_000}]
    one = flag(fallthrough={"rollout": {"variations": shares, "bucketBy": "team", "contextKind": "user"}})
    assert answer_of(one) == "yes"
    answers = {answer_of(one, team=f"team-{number}") for number in range(20)}
    assert answers == {"yes", "no"}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (flag(clause("matches", "^g")), "a clause matches by a regular expression"),
        (flag(clause("before", 3)), "dates in contexts may be texts"),
        (flag(clause("in", ["a"])), "a list or an object cannot be compared"),
        (flag(clause("in", "a", attribute="a.b")), 'the attribute "a.b" has a dot'),
        (flag(fallthrough={"variation": 9}), "there is no variation 9"),
        (flag(fallthrough={"rollout": {"variations": []}}), "a rollout without variations"),
        (flag(prerequisites=[{"key": "gone", "variation": 0}]), 'it needs the flag "gone"'),
        (flag(archived=True), "it is archived in LaunchDarkly"),
        (flag(variations="yes"), "has a text, which this format does not have there"),
        (flag(variations=["yes", 1, "off"]), "make all variants of one type"),
    ],
)  # fmt: skip
def test_what_has_no_exact_form_is_refused_with_the_reason(one: dict[str, Any], message: str) -> None:
    (refusal,) = flags_of(one).refusals
    assert refusal.name == "new"
    assert refusal.place.startswith("file0.json:flags.new")
    assert message in refusal.message


def test_a_big_segment_is_refused_with_the_flags_that_need_it() -> None:
    one = flag(clause("segmentMatch", "beta", attribute=""))
    segment = {"key": "beta", "unbounded": True}
    what = imported("launchdarkly", {"flags": {"new": one}, "segments": {"beta": segment}})
    assert [(refusal.name, refusal.segment) for refusal in what.refusals] == [("beta", True), ("new", False)]
    assert 'needs the segment "beta", which is refused' in what.refusals[1].message


def test_spoiled_files_never_fail() -> None:
    one = flag(clause("in", "gold"), clause("segmentMatch", "beta", attribute=""), targets=[
        {"variation": 0, "values": ["ann"]}], prerequisites=[{"key": "needed", "variation": 0}])  # fmt: skip
    segment = {"key": "beta", "included": ["ann"], "rules": [{"clauses": [clause("in", 1)], "weight": 5}]}
    content = {"flags": {"new": one, "needed": {**flag(), "key": "needed"}}, "segments": {"beta": segment}}
    assert_never_fails("launchdarkly", content)
