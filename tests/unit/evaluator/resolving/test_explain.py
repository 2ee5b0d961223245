"""The trace shows what the evaluation did, and never changes it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing
from evaluator.flags.overrides import Override
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve
from evaluator.targeting.values import variant_name
from tests.contract.generated_flags import contexts, definitions
from tests.rollout_sets import NEW, PLAIN, rolled_out
from tests.worlds.flags import flag_set_of

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.resolving.resolution import Resolution

ROLLOUT = {"fractional": [["on", 25], ["off", 75]]}
RULES: dict[str, Any] = {
    "rollout": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", ROLLOUT]},
    "broken": {"nonsense": [1]},
    "loop": {"if": [{"some": [{"var": "list"}, {"==": [{"var": ""}, 1]}]}, "on"]},
    "plain": None,
}


def flag_set(bucketing: Bucketing = Bucketing.V2) -> CompiledFlagSet:
    flags: dict[str, Any] = {}
    for key, rule in RULES.items():
        flags[key] = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}
        if rule is not None:
            flags[key]["targeting"] = rule
    parsed = parse(json.dumps({"flags": flags}).encode(), file="flags.json")
    return compile_flag_set(parsed.flag_set, bucketing=bucketing)


def steps_of(key: str, context: dict[str, Any], bucketing: Bucketing = Bucketing.V2) -> list[str]:
    return [str(step) for step in explain(flag_set(bucketing), key, None, context, 0).steps]


def test_each_variable_and_operator_shows_its_value() -> None:
    assert steps_of("rollout", {"tier": "gold"}) == [
        'targeting.if[0].==[0].var: "tier" is "gold"',
        "targeting.if[0].==: true",
        'targeting.if: "on"',
        'flag: TARGETING_MATCH: a variant, "on"',
    ]


@pytest.mark.parametrize("bucketing", list(Bucketing))
@pytest.mark.parametrize("context", [{}, {"targetingKey": ""}, {"targetingKey": 7}])
def test_a_rollout_without_a_targeting_key_says_so(bucketing: Bucketing, context: dict[str, Any]) -> None:
    steps = steps_of("rollout", context, bucketing)
    assert "targeting.if[2].fractional: null, since the context has no targetingKey" in steps


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ([{"var": "id"}, ["on", 1]], "the context has no targetingKey"),
        ([{"var": "number"}, ["on", 1]], "what it hashes is no text"),
        ([{"var": "word"}, ["on", "x"]], "its buckets are not valid"),
        ([], "its buckets are not valid"),
    ],
)
def test_a_rollout_without_a_result_says_why(rule: list[Any], why: str) -> None:
    flags = {"r": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "on"}}
    flags["r"]["targeting"] = {"fractional": rule}
    compiled = compile_flag_set(flag_set_of({"flags": flags}))
    steps = explain(compiled, "r", None, {"number": 7, "word": "w"}, 0).steps
    assert str(steps[-2]) == f"targeting.fractional: null, since {why}"


@pytest.mark.parametrize("bucketing", list(Bucketing))
def test_a_rollout_shows_its_bucket_of_how_many_and_what_was_hashed(bucketing: Bucketing) -> None:
    steps = steps_of("rollout", {"targetingKey": "user-1"}, bucketing)
    (found,) = [step for step in steps if step.startswith("targeting.if[2].fractional")]
    assert "bucket " in found
    assert " of 100 (hash of " in found


@pytest.mark.parametrize(
    ("key", "context", "last"),
    [
        ("nobody", {}, "flag: no flag has this key"),
        ("plain", {}, 'flag: STATIC: the default variant, "off"'),
        ("broken", {}, "flag: PARSE_ERROR: unknown operator 'nonsense'"),
        ("loop", {"list": [0, 1]}, 'flag: TARGETING_MATCH: a variant, "on"'),
    ],
)
def test_the_last_step_says_the_outcome(key: str, context: dict[str, Any], last: str) -> None:
    assert steps_of(key, context)[-1] == last


@pytest.mark.parametrize("key", [*RULES, "nobody"])
def test_the_answer_is_the_one_that_resolve_gives(key: str) -> None:
    flags = flag_set()
    context = {"targetingKey": "user-1", "list": [1]}
    assert explain(flags, key, None, context, 0).resolution is resolve(flags, key, None, context, 0)


@given(definitions(), contexts, st.sampled_from(Bucketing))
def test_an_explanation_never_contradicts_the_answer(
    document: dict[str, Any], drawn: tuple[str | None, dict[str, Any]], bucketing: Bucketing
) -> None:
    parsed = parse(json.dumps(document).encode(), file="flags.json")
    assert parsed.flag_set is not None
    explained, resolved = (compile_flag_set(parsed.flag_set, bucketing=bucketing) for _ in range(2))
    targeting_key, attributes = drawn
    context = {**attributes, "targetingKey": targeting_key}
    for key in document["flags"]:
        explanation = explain(explained, key, None, context, 0)
        assert explanation.resolution is resolve(explained, key, None, context, 0)
        assert parts(explanation.resolution) == parts(resolve(resolved, key, None, context, 0))
        steps = explanation.steps[:-1]
        if steps and len(steps[-1].path) == 1 and explanation.resolution.reason == "TARGETING_MATCH":
            assert variant_name(steps[-1].value) == explanation.resolution.variant


def parts(resolution: Resolution) -> tuple[Any, ...]:
    return tuple(str(getattr(resolution, each.name)) for each in fields(resolution))


def test_a_long_bucketing_key_is_explained_as_it_is_served() -> None:
    rule = {"fractional": [{"var": "key"}, ["on", 1]]}
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off", "targeting": rule}
    parsed = parse(json.dumps({"flags": {"long": flag}}).encode(), file="flags.json")
    assert parsed.flag_set is not None
    explanation = explain(compile_flag_set(parsed.flag_set), "long", None, {"key": "k" * 900_000}, 0)
    assert explanation.resolution.reason == "TARGETING_MATCH"
    assert str(explanation.steps[-2]).startswith('targeting.fractional: "on", bucket 0 of 1')


@pytest.mark.parametrize(
    ("served", "context", "text"),
    [
        (
            rolled_out(100, step="2/4"),
            {"targetingKey": "u"},
            '"checkout": step 2/4, 100% of users: this user gets the new definition (arm candidate)',
        ),
        (
            rolled_out(0, step=""),
            {"targetingKey": "u"},
            '"checkout": nobody gets the new definition: this user gets the promoted definition',
        ),
        (rolled_out(10), {}, "(arm excluded)"),
    ],
)
def test_a_trace_names_the_rollout_and_the_arm(served: FlagSet, context: dict[str, Any], text: str) -> None:
    steps = explain(compile_flag_set(served), NEW.key, None, context, 0).steps
    assert [str(step) for step in steps if text in str(step)]
    plain = explain(compile_flag_set(served), PLAIN.key, None, context, 0).steps
    assert not [step for step in plain if "rollout" in str(step)]


@pytest.mark.parametrize(
    ("variant", "expires", "until"), [("off", 7_200, " until 1970-01-01T02:00:00Z"), (None, None, "")]
)
def test_a_trace_names_the_override_and_its_end(variant: str | None, expires: int | None, until: str) -> None:
    override = Override("pay-off", NEW.key, variant, "INC-1: payments fail", expires)
    compiled = compile_flag_set(rolled_out(10, overrides=(override,)))
    text = f'flag: override "pay-off" is in force{until}: "INC-1: payments fail"'
    assert text in map(str, explain(compiled, NEW.key, None, {"targetingKey": "u"}, 0).steps)
    assert not [step for step in explain(compiled, PLAIN.key, None, {}, 0).steps if "override" in str(step)]


@pytest.mark.parametrize("overrides", [(), (Override("aside", NEW.key, "off", "x", None, {"var": "staff"}),)])
def test_the_conditions_of_rollouts_and_overrides_are_told_from_the_rules_of_the_flag(
    overrides: tuple[Override, ...],
) -> None:
    new, old = (
        replace(NEW, targeting={"if": [{"==": [{"var": "tier"}, tier]}, variant]})
        for tier, variant in (("gold", "on"), ("silver", "off"))
    )
    for share, definition in ((100, "new"), (0.01, "promoted")):
        served = compile_flag_set(rolled_out(share, old=old, new=new, overrides=overrides))
        steps = explain(served, NEW.key, None, {"targetingKey": "u", "tier": "gold"}, 0).steps
        own = [str(step) for step in steps if step.path and not step.layer]
        assert own[0] == f'{definition} definition, targeting.if[0].==[0].var: "tier" is "gold"'
        assert not [text for text in own if "targetingKey" in text or "checkout/" in text]
        assert [step.document()["layer"] for step in steps if step.layer]
    plain = explain(compile_flag_set(rolled_out(10)), PLAIN.key, None, {}, 0).steps
    assert not [step for step in plain if "layer" in step.document()]
