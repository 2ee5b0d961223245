"""Prerequisites: `{"flag": [key, variant]}` in a rule is written out as flagd's own operators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluator.flags.layer import read_layer
from evaluator.flags.merge import Parsed, merge, parse
from evaluator.flags.model import Bucketing
from evaluator.resolving.resolve import compile_flag_set, resolve

ON_OFF = {"on": True, "off": False}


def flag(targeting: Any = None, default: str | None = "off", **fields: Any) -> dict[str, Any]:
    rule = {} if targeting is None else {"targeting": targeting}
    return {"state": "ENABLED", "variants": ON_OFF, "defaultVariant": default, **rule, **fields}


def needs(key: str, variant: str = "on") -> dict[str, Any]:
    return {"flag": [key, variant]}


def parsed(flags: dict[str, Any], **sections: Any) -> Parsed:
    return parse(json.dumps({"flags": flags, **sections}).encode(), file="flags.json")


def variant(found: Parsed, key: str, user: str = "", **context: Any) -> str | None:
    asked = {**context, "targetingKey": user} if user else context
    return resolve(compile_flag_set(found.flag_set), key, None, asked, 0).variant


def codes(found: Parsed) -> list[str]:
    return [problem.code for problem in found.problems]


def test_a_user_is_in_the_same_bucket_as_in_the_flag_that_is_needed() -> None:
    halves = {"fractional": [["on", 50], ["off", 50]]}
    found = parsed({"cart": flag(halves), "pay": flag({"if": [needs("cart"), "on", "off"]})})
    answers = [(variant(found, "cart", f"u{n}"), variant(found, "pay", f"u{n}")) for n in range(500)]
    assert {cart for cart, _ in answers} == {"on", "off"}
    assert all(cart == pay for cart, pay in answers)


def test_no_operator_of_ours_is_left_in_the_rule() -> None:
    found = parsed({"cart": flag(None, "on"), "pay": flag({"if": [needs("cart"), "on"]})})
    assert found.flag_set.flags["pay"].targeting == {"if": [True, "on"]}
    assert found.needs == {"pay": ("cart",)}


@pytest.mark.parametrize(
    ("cart", "gives"),
    [
        pytest.param(flag(None, "on"), True, id="its default variant"),
        pytest.param(flag(None, "off"), False, id="another default variant"),
        pytest.param(flag(None, None), False, id="no default variant"),
        pytest.param(flag(None, "on", state="DISABLED"), False, id="disabled"),
        pytest.param(
            flag({"if": [{"==": [{"var": "tier"}, "x"]}, "off"]}, "on"), True, id="no branch, default"
        ),
        pytest.param(flag({"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}), True, id="a branch"),
        pytest.param(flag({"var": "absent"}, "on"), True, id="null, so the default"),
        pytest.param(flag({"var": "tier"}, "on"), False, id="no variant, an error"),
    ],
)
def test_state_and_default_variant_of_the_needed_flag_count(cart: dict[str, Any], *, gives: bool) -> None:
    found = parsed({"cart": cart, "pay": flag({"if": [needs("cart"), "on", "off"]})})
    assert variant(found, "pay", "u", tier="gold") == ("on" if gives else "off")


def test_a_whole_rule_may_be_a_prerequisite() -> None:
    named = {"true": "yes", "false": "no"}
    found = parsed({"cart": flag(None, "on"), "pay": flag(needs("cart"), "false", variants=named)})
    assert variant(found, "pay") == "true"


def test_flags_that_need_each_other_are_refused_with_the_cycle() -> None:
    found = parsed({
        "a": flag({"if": [needs("b"), "on"]}),
        "b": flag({"if": [needs("c"), "on"]}),
        "c": flag({"if": [needs("a"), "on"]}),
        "after": flag({"if": [needs("a"), "on"]}),
        "own": flag({"if": [needs("own"), "on"]}),
    })  # fmt: skip
    messages = {problem.flag: problem.message for problem in found.problems}
    assert '"a" needs "b" needs "c" needs "a"' in messages["a"]
    assert '"own" needs "own"' in messages["own"]
    assert messages["after"] == 'the flag "a" has an error, so no flag can need it; correct it first'
    assert not found.flag_set.flags


def test_the_removal_of_a_needed_flag_is_an_error_at_the_rule_that_needs_it() -> None:
    base = b"flags:\n  cart: {state: ENABLED, variants: {on: true}, defaultVariant: on}\n"
    pay = (
        b"flags:\n  pay:\n    state: ENABLED\n    variants: {on: true, off: false}\n"
        b"    defaultVariant: off\n    targeting:\n      if: [{flag: [cart, on]}, on]\n"
    )
    layers = [("base.yaml", base), ("pay.yaml", pay), ("top.yaml", b"flags: {cart: null}")]
    found = merge([read_layer([file]) for file in layers])
    (problem,) = found.problems
    assert (problem.file, problem.line, problem.code) == ("pay.yaml", 7, "unknown-prerequisite")
    assert 'needs the flag "cart", which is not defined' in problem.message
    assert found.bad == {"pay"}


def test_a_flag_of_another_layer_may_be_needed() -> None:
    above = json.dumps({"flags": {"pay": {"targeting": {"if": [needs("cart"), "on"]}}}}).encode()
    base = json.dumps({"flags": {"cart": flag(None, "on"), "pay": flag()}}).encode()
    found = merge([read_layer([("base.json", base)]), read_layer([("top.json", above)])])
    assert variant(found, "pay") == "on"


def test_a_variant_that_the_needed_flag_lacks_is_an_error() -> None:
    found = parsed({"cart": flag(None, "on"), "pay": flag({"if": [needs("cart", "no"), "on"]})})
    assert codes(found) == ["unknown-prerequisite"]
    assert 'has no variant "no"' in found.problems[0].message


def test_a_flag_that_needs_one_with_a_warning_has_a_warning() -> None:
    found = parsed({"cart": flag({"if": [{"oops": []}, "on"]}), "pay": flag({"if": [needs("cart"), "on"]})})
    assert found.warned == {"cart", "pay"}


def test_a_prerequisite_within_a_loop_is_refused() -> None:
    rule = {"if": [{"some": [{"var": "xs"}, needs("cart")]}, "on"]}
    assert codes(parsed({"cart": flag(), "pay": flag(rule)})) == ["bad-prerequisite"]


def test_what_a_prerequisite_takes_is_checked() -> None:
    found = parsed({"pay": flag({"if": [{"flag": "cart"}, "on"]})})
    assert codes(found) == ["bad-argument"]
    assert (
        'flag takes the key of a flag and a variant: ["new-cart", "on"], not "cart"'
        in found.problems[0].message
    )


def test_shared_rules_may_have_prerequisites_and_are_then_written_out() -> None:
    ready = {"if": [needs("cart"), True, False]}
    found = parsed(
        {"cart": flag(None, "on"), "pay": flag({"if": [{"$ref": "ready"}, "on"]})},
        **{"$evaluators": {"ready": ready}},
    )
    assert not found.problems
    assert "ready" not in found.flag_set.evaluators
    assert variant(found, "pay") == "on"


def test_the_rule_of_a_needed_flag_may_refer_to_shared_rules() -> None:
    gold = {"==": [{"var": "tier"}, "gold"]}
    found = parsed(
        {"cart": flag({"if": [{"$ref": "gold"}, "on"]}), "pay": flag({"if": [needs("cart"), "on"]})},
        **{"$evaluators": {"gold": gold}},
    )
    assert (variant(found, "pay", tier="gold"), variant(found, "pay", tier="tin")) == ("on", "off")


def test_flags_that_double_each_other_end_at_the_bound_of_a_rule() -> None:
    flags = {"f0": flag({"if": [{"var": "x"}, "on"]})}
    for number in range(1, 40):
        flags[f"f{number}"] = flag({"if": [{"and": [needs(f"f{number - 1}")] * 4}, "on"]})
    found = parsed(flags)
    assert "rule-too-large" in codes(found)
    assert "f1" in found.flag_set.flags
    assert "f39" not in found.flag_set.flags


def test_bucketing_v3_refuses_a_flag_that_divides_users_by_its_own_key() -> None:
    flags = {
        "cart": flag({"fractional": [["on", 1], ["off", 1]]}),
        "pay": flag({"if": [needs("cart"), "on"]}),
    }
    layer = read_layer([("flags.json", json.dumps({"flags": flags}).encode())])
    assert codes(merge([layer], bucketing=Bucketing.V3)) == ["bad-prerequisite"]
    assert codes(merge([layer])) == []


def a_long_list(*after: Any) -> dict[str, Any]:
    users = {"in": [{"var": "targetingKey"}, [f"u{number}" for number in range(2_000)]]}
    return {"beta": {"if": [users, *after]} if after else users}


def test_a_long_list_that_prerequisites_share_is_written_out_nowhere() -> None:
    flags = {"cart": flag({"if": [{"$ref": "beta"}, "on"]}), "pay": flag({"if": [needs("cart"), "on"]})}
    found = parsed(flags, **{"$evaluators": a_long_list()})
    assert len(json.dumps(found.flag_set.flags["pay"].targeting)) < 100
    assert [variant(found, "pay", user) for user in ("u7", "v7")] == ["on", "off"]


def test_a_long_list_beside_buckets_of_the_flag_itself_is_written_out_within_the_bounds() -> None:
    halves = {"fractional": [["on", 50], ["off", 50]]}
    flags = {"cart": flag({"$ref": "beta"}), "pay": flag({"if": [needs("cart"), "on", "off"]})}
    found = parsed(flags, **{"$evaluators": a_long_list(halves)})
    answers = [(variant(found, "cart", f"u{n}"), variant(found, "pay", f"u{n}")) for n in range(200)]
    assert {cart for cart, _ in answers} == {"on", "off"}
    assert all(cart == pay for cart, pay in answers)
