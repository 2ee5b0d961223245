"""What an editor is told of definitions."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.cursor import spots
from controller.authoring.flag_test_files import read_flag_tests
from controller.authoring.writing_help import (
    Name,
    Written,
    evaluator_words,
    field_words,
    flag_words,
    name_at,
    places,
    suggestions,
    uses,
)
from controller.cli.json_schemas import json_schemas
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge

BASE: Final = b"""\
$evaluators:
  staff: {"in": [{"var": "team"}, [shop, pay]]}
flags:
  cart:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: "off"
    metadata: {owner: shop, expires: "2099-12-31"}
    targeting: {"if": [{"==": [{"var": "tier"}, gold]}, "on", {"fractional": [["on", 10], ["off", 90]]}]}
  pay:
    state: ENABLED
    variants: {"x": 1, "y": 2}
    defaultVariant: "x"
    targeting: {"if": [{"flag": ["cart", "on"]}, "y", {"$ref": staff}, "x"]}
  gone: {state: DISABLED, variants: {"a": 1}, defaultVariant: "a"}
  odd:
    state: ENABLED
    variants: {"a": 1, "b": 2}
    defaultVariant: "a"
    targeting: {"if": [{"fractional": [["a", 1], ["b", 1]]}, "a"]}
  secret:
    state: ENABLED
    variants: {"a": 1}
    defaultVariant: "a"
    metadata: {flagstaff.dev/secret: true}
    targeting: {"if": [{"==": [{"var": "name"}, Ada]}, "a"]}
"""
OVERLAY: Final = b"""\
flags:
  cart: {variants: {dark: null}, defaultVariant: 'on'}
  broken: {variants: {q: 1}, defaultVariant: z}
"""
TESTS: Final = b"""\
tests:
  - {name: a, flag: cart, matrix: {n: [1, 2]}, expect: {variant: "on"}}
  - {name: b, evaluator: staff, expect: {value: true}}
"""
SCHEMAS: Final = json_schemas()


@pytest.fixture(scope="module")
def written() -> Written:
    layers = [read_layer([("base.yaml", BASE)]), read_layer([("overlay.yaml", OVERLAY)])]
    needed = merge(
        [read_layer([("other.yaml", b"flags: {far: {state: ENABLED, variants: {v: 1}}}")])]
    ).flag_set
    tests = read_flag_tests([[("f.flagtest.yaml", TESTS)]]).cases
    return Written(layers, merge(layers).flag_set, [needed], tests)


def suggested(text: str, written: Written, file: str = "f.yaml", schema: str = "layer") -> set[str]:
    """What may stand at `|`, without what a field's type says."""
    before, _, after = text.partition("|")
    found = spots(before + after, len(before), file)
    return {one.text for spot in found for one in suggestions(spot, file, SCHEMAS[schema], written)}


FIELDS: Final = {"state", "variants", "defaultVariant", "targeting", "metadata"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("flags:\n  a:\n    |", FIELDS),
        ("flags:\n  a:\n    state: ENABLED\n    |", FIELDS - {"state"}),
        ("flags:\n  a: {state: |", {"ENABLED", "DISABLED"}),
        ("flags:\n  - key: a\n    |", FIELDS),
        ("flags:\n  cart:\n    defaultVariant: |", {"on", "off"}),
        ("flags:\n  - key: cart\n    defaultVariant: |", {"on", "off"}),
        ("flags:\n  new:\n    variants: {blue: 1}\n    defaultVariant: |", {"blue"}),
        ("flags:\n  broken:\n    defaultVariant: |", {"q"}),
        ("flags:\n  cart:\n    targeting: |", {"on", "off"}),
        ('flags: {cart: {targeting: {"if": [{}, "|', {"on", "off"}),
        ('flags: {cart: {targeting: {"if": [{}, {"if": [1, 2, |', {"on", "off"}),
        ('flags: {cart: {targeting: {"fractional": [[|', {"on", "off"}),
        ('flags: {cart: {targeting: {"fractional": [["on", |', set()),
        ('flags: {cart: {targeting: {"if": [|', set()),
        ('flags: {cart: {targeting: {"if": [{"flag": [|', {"pay", "gone", "odd", "secret", "broken", "far"}),
        ('flags: {pay: {targeting: {"if": [{"flag": [cart, |', {"on", "off"}),
        ('flags: {pay: {targeting: {"if": [{"flag": [far, |', {"v"}),
        ('flags: {pay: {targeting: {"if": [{"flag": [nowhere, |', set()),
        ('flags: {pay: {variants: {x: {"flag": [|', set()),
        ('flags: {pay: {targeting: {"$ref": |', {"staff"}),
        ('$evaluators: {x: {"and": [{"$ref": |', {"staff"}),
        ('$evaluators: {x: {"and": [{"flag": [cart, |', {"on", "off"}),
        ('flags: {pay: {targeting: {"sem_ver": [1, |', {"=", "!=", ">", "<", ">=", "<=", "~", "^"}),
        ("flags: {a: {metadata: {type: |", {"release", "experiment", "ops", "permission"}),
        (
            "flags: {a: {metadata: {owner: x, |",
            {"description", "type", "expires", "permanent", "ticket", "defaultValue"},
        ),
        ("spec:\n  flagSpec:\n    flags:\n      cart:\n        defaultVariant: |", {"on", "off"}),
        ("spec:\n  flagSpec:\n    flags:\n      cart:\n        |", FIELDS),
    ],
)
def test_what_may_stand_in_definitions(text: str, names: set[str], written: Written) -> None:
    assert suggested(text, written) == names


def test_a_rule_begins_with_an_operator(written: Written) -> None:
    text = 'flags: {pay: {targeting: {"if": [{"|'
    assert {"fractional", "sem_ver", "==", "flag", "between", "$ref"} <= suggested(text, written)
    (spot,) = spots(text.replace("|", ""), text.index("|"), "f.yaml")
    kinds = {one.kind for one in suggestions(spot, "f.yaml", SCHEMAS["layer"], written)}
    assert kinds == {"operator"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tests: [{flag: |", {"cart", "pay", "gone", "odd", "secret", "broken", "far"}),
        ("tests: [{evaluator: |", {"staff"}),
        ("tests: [{flag: cart, expect: {variant: |", {"on", "off"}),
        ("tests: [{flag: cart, distribution: {|", {"on", "off"}),
        ("tests: [{expect: {variant: |", set()),
        ("tests: [{flag: cart, expect: {|", {"variant", "value", "reason", "errorCode", "metadata"}),
        ("|", {"tests", "$schema"}),
    ],
)
def test_what_may_stand_in_tests(text: str, names: set[str], written: Written) -> None:
    assert suggested(text, written, "f.flagtest.yaml", "flagtest") == names


def test_what_may_stand_in_a_policy(written: Written) -> None:
    file = "x.flagpolicy.yaml"
    assert suggested("action: |", written, file, "policy") == {"Deny", "Hold", "Warn"}
    fields = {"expression", "message", "messageExpression"}
    assert suggested("validations:\n  - |", written, file, "policy") == fields


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (
            "cart",
            [
                "cart: on = true, off = false",
                "where tier is gold: on",
                "where tier is not gold: off 90 %, on 10 %",
                "owner: shop",
                "expires: 2099-12-31",
            ],
        ),
        ("gone", ["gone: a = 1, disabled", "everybody: the default of the code"]),
        ("odd", ["odd: a = 1, b = 2", "everybody: a (of 10,000 synthetic contexts)"]),
        ("secret", ["secret: a = 1"]),
        ("far", ["far: v = 1", "everybody: the default of the code"]),
        ("broken", ["broken: it has a problem"]),
        ("nowhere", ["nowhere: no such flag here"]),
    ],
)
def test_a_flag_is_told_in_words(key: str, lines: list[str], written: Written) -> None:
    assert [*flag_words(key, written, 0)] == lines


def test_an_evaluator_and_a_field_are_told_in_words(written: Written) -> None:
    assert evaluator_words("staff", written) == "staff: for users whose team is shop or pay: true; else false"
    assert evaluator_words("nobody", written) == ""
    text = "flags: {a: {targeting: {fractional: ["
    (spot,) = spots(text, text.index("actional"), "f.yaml")
    assert "Percentages" in field_words(spot, SCHEMAS["layer"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flags:\n  ca|rt: {}", Name("cart")),
        ("flags:\n  - key: ca|rt", Name("cart")),
        ("$evaluators:\n  sta|ff: {}", Name("staff", of_evaluator=True)),
        ('flags: {a: {targeting: {"flag": [ca|rt, on]}}}', Name("cart")),
        ('flags: {a: {targeting: {"$ref": sta|ff}}}', Name("staff", of_evaluator=True)),
        ("flags: {a: {sta|te: x}}", None),
        ("flags: {a: {state: ENA|BLED}}", None),
        ("flags: {a: {variants: {x: {key: ca|rt}}}}", None),
    ],
)
def test_a_name_is_known_by_its_place(text: str, name: Name | None) -> None:
    before, _, after = text.partition("|")
    assert name_at(spots(before + after, len(before), "f.yaml")[-1], "f.yaml") == name


def test_a_name_in_a_test_is_known() -> None:
    text = "tests: [{flag: cart, evaluator: staff}]"
    found = [
        name_at(spots(text, text.index(word), "f.flagtest.yaml")[0], "f.flagtest.yaml")
        for word in ("cart", "staff")
    ]
    assert found == [Name("cart"), Name("staff", of_evaluator=True)]


def listed(found: Any) -> list[str]:
    return [f"{document.file}:{document.place(path)[0]}" for document, path in found]


def test_definitions_and_uses_are_found(written: Written) -> None:
    assert listed(places(Name("cart"), written)) == ["overlay.yaml:2", "base.yaml:5"]
    assert listed(places(Name("staff", of_evaluator=True), written)) == ["base.yaml:2"]
    assert listed(uses(Name("cart"), written)) == ["base.yaml:14", "f.flagtest.yaml:2"]
    assert listed(uses(Name("staff", of_evaluator=True), written)) == ["f.flagtest.yaml:3"]


@given(st.integers(0, len(BASE)), st.sampled_from(sorted(SCHEMAS)))
def test_every_cut_text_has_an_answer(end: int, schema: str) -> None:
    layer = read_layer([("f.yaml", BASE)])
    known = Written([layer], merge([layer]).flag_set)
    for spot in spots(BASE[:end].decode(), end, "f.yaml"):
        assert all(one.text for one in suggestions(spot, "f.yaml", SCHEMAS[schema], known))
        field_words(spot, SCHEMAS[schema])
        if (name := name_at(spot, "f.yaml")) is not None:
            assert [*flag_words(name.text, known, 0)]
