from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.targeting import RuleError
from evaluator.targeting.fractional import encode

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=30), inner),
    max_leaves=20,
)


def integral(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [integral(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = float(value)
    fits = number.is_integer() and -(2**63) <= number <= 2**64 - 1
    return int(number) if fits else number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"), (23, "17"), (24, "1818"), (100, "1864"), (1000, "1903e8"), (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"), (18446744073709549568, "1bfffffffffffff800"), (-1, "20"),
        (-100, "3863"), (-9223372036854775808, "3b7fffffffffffffff"), (1.1, "fb3ff199999999999a"),
        (1.5, "f93e00"), (5.960464477539063e-8, "f90001"), (3.4028234663852886e38, "fa7f7fffff"),
        (1.0e300, "fb7e37e43c8800759c"), (float("inf"), "f97c00"), (float("nan"), "f97e00"), (False, "f4"),
        (True, "f5"), (None, "f6"), ("", "60"), ("IETF", "6449455446"), ("ü", "62c3bc"), ("水", "63e6b0b4"),
        ([1, [2, 3], [4, 5]], "8301820203820405"), ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
        ("-" * 300, "79012c" + "2d" * 300), (65504.0, "19ffe0"), (-0.0, "00"), (2.0**64, "fa5f800000"),
        (2**64, "fa5f800000"), (2**64 - 1, "fa5f800000"), (2**53 + 1, "1b0020000000000000"),
        ({"bb": 1, "c": 2}, "a261630262626201"),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_encoded_as_rfc_8949_shows(value: Any, expected: str) -> None:
    assert encode(value).hex() == expected


@given(JSON)
def test_another_encoder_agrees(value: Any) -> None:
    assert encode(value) == cbor2.dumps(integral(value), canonical=True)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([0] * 20_000, id="too many values"),
        pytest.param("\ud800", id="half a character"),
        pytest.param(10**400, id="a number beyond floats"),
    ],
)
def test_what_cannot_be_a_key_is_refused(value: Any) -> None:
    with pytest.raises(RuleError):
        encode(value)


def test_deep_values_are_refused() -> None:
    value: Any = 0
    for _ in range(5000):
        value = [value]
    with pytest.raises(RuleError):
        encode(value)


@given(st.integers(-(2**70), 2**70))
def test_an_integer_and_the_float_that_a_protocol_makes_of_it_are_encoded_alike(value: int) -> None:
    assert encode(value) == encode(float(value))
