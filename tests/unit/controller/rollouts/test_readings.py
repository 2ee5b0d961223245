"""The number in an answer, and what an answer without one says."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rollouts.metric_values import (
    NoValueError,
    UnusableError,
    datadog_value,
    json_value,
    prometheus_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "data", "result", "resultType", "value", "series", "pointlist", "errorType", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def vector(*values: Any) -> dict[str, Any]:
    series = [{"metric": {"pod": str(number)}, "value": [1.0, value]} for number, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


def scalar(value: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [1.0, value]}}


def datadog(*series: list[Any]) -> dict[str, Any]:
    return {"status": "ok", "series": [{"pointlist": points} for points in series]}


@pytest.mark.parametrize(
    ("read", "answer", "value"),
    [
        (prometheus_value, vector("0.25"), 0.25),
        (prometheus_value, vector("1e-3"), 0.001),
        (prometheus_value, scalar("3"), 3.0),
        (datadog_value, datadog([[1, 0.5], [2, 0.25]]), 0.25),
        (datadog_value, datadog([[1, 0.5], [2, None]]), 0.5),
        (lambda content: json_value(content, "$.data[0].value"), {"data": [{"value": 4}]}, 4.0),
        (lambda content: json_value(content, "$['error ratio'][-1]"), {"error ratio": [1, "0.5"]}, 0.5),
        (lambda content: json_value(content, "$"), 7, 7.0),
    ],
)
def test_the_value_is_read(read: Callable[[bytes], float], answer: Any, value: float) -> None:
    assert read(json.dumps(answer).encode()) == value


@pytest.mark.parametrize(
    ("read", "answer", "why"),
    [
        (prometheus_value, vector(), "no result"),
        (prometheus_value, vector("NaN"), "NaN"),
        (datadog_value, datadog(), "no series"),
        (datadog_value, datadog([]), "no points"),
        (datadog_value, datadog([[1, None]]), "no points"),
        (lambda content: json_value(content, "$.value"), {"value": None}, "nothing at"),
        (lambda content: json_value(content, "$.a[3]"), {"a": [1]}, "nothing at"),
    ],
)
def test_no_value_is_no_error(read: Callable[[bytes], float], answer: Any, why: str) -> None:
    with pytest.raises(NoValueError, match=why):
        read(json.dumps(answer).encode())


MATRIX = {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, "1"]]}]}}


@pytest.mark.parametrize(
    ("read", "answer", "why"),
    [
        (prometheus_value, vector("1", "2"), "2 series; sum them"),
        (prometheus_value, vector("+Inf"), "infinite"),
        (prometheus_value, vector("-Inf"), "infinite"),
        (prometheus_value, MATRIX, "a matrix, not a vector"),
        (prometheus_value, vector("x"), "no number"),
        (prometheus_value, vector(True), "no number"),
        (prometheus_value, {"status": "error", "errorType": "bad_data"}, "not that of Prometheus"),
        (prometheus_value, [1], "not that of Prometheus"),
        (datadog_value, datadog([[1, 1]], [[1, 1]]), "2 series"),
        (datadog_value, {"status": "error", "series": []}, "refuses the query"),
        (datadog_value, {"errors": ["Forbidden"]}, "refuses the query"),
        (lambda content: json_value(content, "$.a"), {"a": {}}, "no number"),
        (lambda content: json_value(content, "$.a"), {"a": False}, "no number"),
        (lambda content: json_value(content, "a.b"), {}, "jsonPath must be"),
        (lambda content: json_value(content, "$.a[?(@.b)]"), {}, "jsonPath must be"),
    ],
)
def test_what_cannot_be_used_is_an_error(read: Callable[[bytes], float], answer: Any, why: str) -> None:
    with pytest.raises(UnusableError, match=why):
        read(json.dumps(answer).encode())


@given(JSON.map(lambda answer: json.dumps(answer).encode()) | st.binary(max_size=60))
def test_any_answer_is_a_finite_number_or_one_of_two_errors(content: bytes) -> None:
    for read in (prometheus_value, datadog_value, lambda text: json_value(text, "$.data.result[0]")):
        with contextlib.suppress(NoValueError, UnusableError):
            assert math.isfinite(read(content))


def test_no_text_of_an_answer_is_repeated() -> None:
    content = "the content of another server"
    answer = {"status": "success", "data": {"resultType": content, "result": [content]}}
    with pytest.raises(UnusableError) as caught:
        prometheus_value(json.dumps(answer).encode())
    assert content not in str(caught.value)
