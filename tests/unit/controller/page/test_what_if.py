"""Contexts as people enter them, and the answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.page.what_if import InvalidContextError, attributes_of, read_context, what_if
from tests.worlds.page import flag, shown_set

TENTH = {"fractional": [["on", 10], ["off", 90]]}
RULE = {
    "if": [{"and": [{"==": [{"var": "address.city"}, "Bern"]}, {">": [{"var": "age"}, 17]}]}, "on", TENTH]
}
SET = shown_set({"one": flag(targeting=RULE), "off": flag(state="DISABLED")})


@pytest.mark.parametrize(
    ("form", "context"),
    [
        ({"targetingKey": " 42 ", "attribute.age": "18"}, {"targetingKey": "42", "age": 18}),
        ({"attribute.address.city": "Bern"}, {"address": {"city": "Bern"}}),
        ({"attribute.version": "2.4.0", "attribute.plan": '"7"'}, {"version": "2.4.0", "plan": "7"}),
        (
            {"attribute.roles": '["a"]', "attribute.beta": "true", "attribute.x": " "},
            {"roles": ["a"], "beta": True},
        ),
        ({"others": '{"plan": "pro", "age": 1}', "attribute.age": "2"}, {"plan": "pro", "age": 2}),
        ({"others": '{"address": 1}', "attribute.address.city": "Bern"}, {"address": 1}),
        ({"attribute.n": "NaN"}, {"n": "NaN"}),
    ],
)
def test_a_form_is_read_as_a_context(form: dict[str, str], context: dict[str, Any]) -> None:
    assert read_context(form) == context


NESTED = {"if": [{"in": ["x", {"var": "a.a"}]}, "on", "off"]}


@given(st.integers(0, 1_000), st.sampled_from(["attribute.a.a", "attribute.x", "others"]))
def test_a_context_of_any_depth_is_evaluated_or_refused(levels: int, field: str) -> None:
    text = "[" * levels + "]" * levels
    shown = shown_set({"one": flag(targeting=NESTED)})
    form = {field: text if field != "others" else f'{{"a": {{"a": {text or 1}}}}}'}
    if levels > 64:
        with pytest.raises(InvalidContextError):
            read_context(form)
    elif levels < 62:
        assert what_if(shown.served, "one", read_context(form), 0).steps


@pytest.mark.parametrize("others", ["{", "[1]", "7", "x" * 50_001])
def test_what_is_no_context_is_refused(others: str) -> None:
    with pytest.raises(InvalidContextError):
        read_context({"others": others})


def test_an_answer_has_its_bucket_and_steps_in_words() -> None:
    answer = what_if(SET.served, "one", {"targetingKey": "user-1", "age": 3}, 0)
    (bucket,) = answer.buckets
    assert bucket.startswith("user-1 is in bucket ")
    assert bucket.endswith(" of 100; on is 0 to 9; off is 10 to 99")
    words = [step.words for step in answer.steps]
    assert "address.city is not given" in words
    assert "address.city is Bern: no" in words


def test_a_condition_that_decides_needs_no_bucket() -> None:
    answer = what_if(SET.served, "one", {"address": {"city": "Bern"}, "age": 18}, 0)
    assert (answer.variant, answer.value, answer.buckets, answer.reason) == (
        "on",
        True,
        (),
        "TARGETING_MATCH",
    )


def test_a_disabled_flag_gives_the_default_of_the_code() -> None:
    answer = what_if(SET.served, "off", {}, 0)
    assert (answer.variant, answer.shows_value, answer.reason) == ("", False, "DISABLED")


def test_the_attributes_of_a_rule_are_asked_for() -> None:
    assert attributes_of(SET.flag_set.flags["one"], SET.served) == ["address.city", "age"]
