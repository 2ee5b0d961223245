"""Expressions that users write: what they may say, where they are wrong, and that none holds us up."""

from __future__ import annotations

import tracemalloc
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.expression_syntax import ExpressionError
from controller.runtime.expressions import Expression

EVENT: Final[dict[str, Any]] = {
    "reason": "Applied", "severity": "info", "message": "x" * 2000,
    "flags": [f"banner-{number}" for number in range(50)], "labels": {"team": "checkout"}, "failures": 3,
}  # fmt: skip
KNOWN: Final = frozenset({"event"})


def holds(text: str) -> bool:
    return Expression.of(text, KNOWN).holds({"event": EVENT})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('event.reason == "Applied"', True),
        ('event.reason != "Applied" || event.failures > 2', True),
        ('event.reason == "Applied" && event.failures * 2 < 6', False),
        ('event.severity in ["error", "warning"]', False),
        ('event.flags.exists(flag, flag.startsWith("banner-4"))', True),
        ('event.flags.all(flag, flag.matches("^banner-[0-9]+$"))', True),
        ('event.flags.filter(flag, flag.endsWith("7")).size() == 5', True),
        ('event.flags.exists_one(flag, flag == "banner-1")', True),
        ("event.flags.map(flag, size(flag))[0] == 8", True),
        ("[1.0, 2.5, 2.5].isSorted() && ![2, 1].isSorted()", True),
        ('timestamp("2026-12-24T12:00:00+01:00") < timestamp("2026-12-24T12:00:00Z")', True),
        ('[timestamp("2026-12-24T12:00:00Z")].isSorted() && [].isSorted()', True),
        ('has(event.labels.team) && event.labels["team"].contains("check")', True),
        ("has(event.labels.owner)", False),
        ('!has(event.labels.owner) ? event.failures == 3 : "no" == "yes"', True),
        ('event.labels.owner == "nobody" || true', True),
        ('string(event.failures) + "!" == "3!"', True),
    ],
)
def test_an_expression_holds_or_not(text: str, want: bool) -> None:
    assert holds(text) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "1:1: "),
        ("event.reason == ", "1:"),
        ('event.reason ==\n  "a" "b"', "2:7: this is not understood"),
        ('evnt.reason == "a"', '1:1: "evnt" is not known; there is event'),
        ("event.flags.all(flag, other == flag)", '1:23: "other" is not known; there is event, flag'),
        ("event.flags.reduce(a, b, 0, a) == 0", '1:1: there is no method "reduce"'),
        ("true && duration(event.reason) == 1", '1:9: there is no function "duration"'),
        ("event.flags.exists(1, true)", "1:1: exists() takes a name and an expression"),
        ("event.flags.all(flag)", "1:1: all() takes a name and an expression"),
        ("has(event)", "1:1: has() takes a field"),
        ("has()", "1:1: has() takes a field"),
        (".event.reason == 'a'", "1:1: messages and names"),
        ('google.protobuf.StringValue{value: "a"} == "a"', "1:1: messages"),
        ("(" * 300 + "true" + ")" * 300, "it is nested too deeply"),
        ("true" + " || true" * 200, "it has more than 1024 characters"),
        *(
            (
                f"true &&\n event.reason == {quote}{backslashes}{after}",
                "2:18: the text that begins here does not end",
            )
            for quote in ("'", '"', "'''", '"""')
            for backslashes in ("\\\\" * 50, "\\'\\\"" * 50, "\\\\" * 50 + "\\")
            for after in ("", "\n")
        ),
        ("r'a\\' == event.reason", "1:2: the text that begins here does not end"),
    ],
)
def test_a_mistake_is_reported_with_its_place_when_it_is_read(text: str, want: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        Expression.of(text, KNOWN)
    assert want in str(raised.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("true &&\n event.nothing == 1", "2:2: no such member in mapping: 'nothing'"),
        ("event.reason", "gives a string, and must give true or false"),
        ('event.failures < "a"', "these types cannot be combined"),
        ('event.message.matches("(")', "these types cannot be combined"),
        ("event.failures / 0 == 1", "divide by zero"),
        ("event.flags[1000] == 'a'", "1:1: "),
    ],
)
def test_an_access_that_an_event_does_not_allow_is_reported(text: str, want: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        holds(text)
    assert want in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "event.flags.all(a, event.flags.all(b, event.flags.all(c, event.flags.all(d, a == b))))",
        "[event.message]" + ".map(a, a + a)" * 40 + ' == [""]',
        "[event.flags].map(a, [a, a]).map(a, [a, a]).map(a, [a, a]).map(a, [a, a]).map(a, [a, a]) == []",
        "event.flags.exists(a, event.message + event.message + event.message + event.message == a)",
        "event.flags.exists(f, event.message.matches('((.{30}){9}){2}y'))",
        "event.flags.exists(f, 'a'.matches('(.{30}){20}' + f))",
        "event.flags.exists(f, event.message.contains(f + 'z') || event.message.contains(f + 'y'))",
    ],
)
def test_what_would_take_too_long_ends(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"too many steps|nested too deeply"):
        holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "['', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', ''].exists(f, f + 1 == 2)",
        "['', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', ''].all(f, f + 1 == 2)",
        "||".join("1" * 18),
        "&&".join("1" * 18),
    ],
)
def test_the_error_of_many_operands_is_no_larger_than_that_of_two(text: str) -> None:
    expression = Expression.of(text, KNOWN)
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError, match="these types cannot be combined"):
            expression.holds({"event": EVENT})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Where each operand doubles it, it is several MB.
    assert most < 1_000_000


def test_the_error_of_a_field_does_not_hold_the_value() -> None:
    expression = Expression.of("event.big.x == 1 || event.big.y == 1", KNOWN)
    big = {"big": "x" * 500_000}
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError, match="these types cannot be combined"):
            expression.holds({"event": big})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One StringType of it is half a megabyte.
    assert most < 1_000_000


@pytest.mark.parametrize(
    "text", ['"a" * 1000000000 == ""', '"%1000000000d" % 5 == ""', "[1] * 100000000 == []"]
)
def test_arithmetic_is_of_numbers_alone(text: str) -> None:
    with pytest.raises(ExpressionError, match="these types cannot be combined"):
        holds(text)


_WORDS: Final = st.sampled_from(
    ["event", ".flags", ".message", ".all(a, ", ".map(a, ", ".exists(", "(", ")", "[", "]", "{", "}", "a",
     "1", "0.5", '"x"', "+", "-", "*", "/", "%", "==", "<", "in", "&&", "||", "!", "?", ":", ",", "has(",
     "size(", "int(", " ", "null", "true", ".matches(", "\n", "b'x'", "1u", ".size()", "string("]
)  # fmt: skip


@given(st.lists(_WORDS, max_size=40).map("".join) | st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_every_text_is_true_or_false_or_an_error_with_a_place(text: str) -> None:
    try:
        found = holds(text)
    except ExpressionError as error:
        outcome = str(error)
    else:
        outcome = f"1:1: {found}"
    assert outcome.split(":")[0].isdigit()


@pytest.mark.parametrize("text", ['timestamp("2026")', "timestamp(event.failures)"])
def test_a_timestamp_is_a_time_with_a_zone(text: str) -> None:
    with pytest.raises(ExpressionError, match="timestamp\\(\\) takes a time such as 2026-12-24T12:00:00Z"):
        holds(f"{text} == {text}")
