from __future__ import annotations

from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.known_operators import MOST_WEIGHT
from evaluator.flags.model import Bucketing
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.fractional import bucket_of, read_buckets

V2, V3 = Bucketing.V2, Bucketing.V3
HALVES = [["a", 50], ["b", 50]]


def fractional(values: Any, context: dict[str, Any], bucketing: Bucketing = V2) -> Any:
    rule = {"fractional": values}
    return compile_rule(rule, bucketing=bucketing, flag_key="flag")(context)


@given(st.text(max_size=20), st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_a_bucket_is_the_scaled_hash_and_owns_its_range(key: str, weights: list[int]) -> None:
    if not sum(weights):
        return
    scaled = mmh3.hash(key.encode(), 0, signed=False) * sum(weights) // 2**32
    owner = next(i for i in range(len(weights)) if scaled < sum(weights[: i + 1]))
    entries = [[index, weight] for index, weight in enumerate(weights)]
    assert bucket_of(key, sum(weights)) == scaled
    assert fractional([key, *entries], {}) == owner


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="no entries"),
        pytest.param(["a"], id="an entry that is no list"),
        pytest.param([[]], id="an empty entry"),
        pytest.param([[["a"], 1]], id="a list as result"),
        pytest.param([[{"a": 1, "b": 2}, 1]], id="an object as result"),
        pytest.param([["a", "1"]], id="text as weight"),
        pytest.param([["a", True]], id="a boolean as weight"),
        pytest.param([["a", 0.5]], id="a fraction as weight"),
        pytest.param([["a", float("nan")]], id="no number as weight"),
        pytest.param([["a", MOST_WEIGHT + 1]], id="a weight too large"),
        pytest.param([["a", MOST_WEIGHT], ["b", 1]], id="a sum too large"),
        pytest.param([["a", 0], ["b", -5]], id="no weight at all"),
        pytest.param([["a", 1], ["b", -1e19]], id="a weight too small"),
    ],
)
def test_invalid_entries_come_to_null(entries: list[Any]) -> None:
    assert read_buckets(entries) is None
    assert fractional(["key", *entries], {}) is None
    assert fractional(["key", *entries], {}, V3) is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(["a"], "a", id="a weight defaults to 1"),
        pytest.param(["a", None], "a", id="null is the default too"),
        pytest.param(["a", 2.0], "a", id="an integral float"),
        pytest.param([True, 1], True, id="a boolean as result"),
        pytest.param([7, 1], 7, id="a number as result"),
        pytest.param([{"var": "colour"}, {"var": "weight"}], "red", id="rules inside"),
        pytest.param(["a", MOST_WEIGHT], "a", id="the greatest weight"),
    ],
)
def test_an_entry_alone_wins(entry: list[Any], expected: Any) -> None:
    context = {"colour": "red", "weight": 3}
    assert fractional(["key", entry], context) == expected
    assert fractional(["key", entry, ["never", -1]], context, V3) == expected


KEYED = {"targetingKey": "user-1"}


@pytest.mark.parametrize(
    ("values", "context", "hashed"),
    [
        pytest.param(HALVES, KEYED, "flaguser-1", id="shorthand"),
        pytest.param([None, *HALVES], KEYED, "flaguser-1", id="null is dropped"),
        pytest.param([{"var": "gone"}, *HALVES], KEYED, "flaguser-1", id="missing is dropped"),
        pytest.param([{"var": "name"}, *HALVES], {"name": "ann"}, "ann", id="text as it is"),
        pytest.param(["", *HALVES], {}, "", id="empty text as it is"),
        pytest.param(HALVES, {}, None, id="no targeting key"),
        pytest.param(HALVES, {"targetingKey": ""}, None, id="an empty targeting key"),
        pytest.param(HALVES, {"targetingKey": 5}, None, id="a number as targeting key"),
        pytest.param([{"var": "id"}, *HALVES], {**KEYED, "id": 5}, None, id="a number as key"),
        pytest.param([{"var": "id"}, *HALVES], {**KEYED, "id": True}, None, id="a boolean as key"),
    ],
)
def test_the_second_generation_hashes_text(values: Any, context: Any, hashed: str | None) -> None:
    expected = None if hashed is None else "ab"[bucket_of(hashed, 100) // 50]
    assert fractional(values, context) == expected


@pytest.mark.parametrize(
    ("values", "context", "hashed"),
    [
        pytest.param(HALVES, KEYED, "8264666c616766757365722d31", id="shorthand"),
        pytest.param([{"var": "name"}, *HALVES], {"name": "ann"}, "63616e6e", id="text"),
        pytest.param([{"var": "id"}, *HALVES], {"id": 5}, "05", id="an integer"),
        pytest.param([{"var": "id"}, *HALVES], {"id": 5.0}, "05", id="an integral float"),
        pytest.param([{"var": "id"}, *HALVES], {"id": False}, "f4", id="a boolean"),
        pytest.param([{"var": "id"}, *HALVES], {"id": {"a": 1, "b": 2}}, "a2616101616202", id="map"),
        pytest.param([{"var": "gone"}, *HALVES], KEYED, None, id="null"),
        pytest.param([{"var": "gone"}, *HALVES], {}, None, id="null without a targeting key"),
        pytest.param(HALVES, {}, None, id="no targeting key"),
    ],
)
def test_the_third_generation_hashes_cbor(values: Any, context: Any, hashed: str | None) -> None:
    expected = None
    if hashed is not None:
        expected = "ab"[bucket_of(bytes.fromhex(hashed), 100) // 50]
    assert fractional(values, context, V3) == expected


@pytest.mark.parametrize("nested", [False, True])
@given(st.integers(2**53, 2**70).flatmap(lambda n: st.sampled_from([n, -n])))
def test_an_integer_has_the_bucket_of_the_float_that_grpc_brings(nested: bool, identifier: int) -> None:
    buckets = [[str(number), 1] for number in range(1000)]
    entries = [{"var": "id"}, *buckets]
    of_integer, of_float = (
        fractional(entries, {"id": {"number": [value]} if nested else value}, V3)
        for value in (identifier, float(identifier))
    )
    assert of_integer == of_float


def test_arguments_that_are_no_list_come_to_null() -> None:
    assert fractional("text", KEYED) is None
    assert fractional([], KEYED) is None


def test_within_a_loop_the_element_is_the_context() -> None:
    rule = {"map": [{"var": "users"}, {"fractional": HALVES}]}
    compiled = compile_rule(rule, bucketing=V2, flag_key="flag")
    expected = "ab"[bucket_of("user-1", 100) // 50]
    assert compiled({"users": [KEYED, {}, 5]}) == [expected, None, None]


@pytest.mark.parametrize("bucketing", Bucketing)
def test_text_that_is_no_unicode_is_the_rules_error(bucketing: Bucketing) -> None:
    with pytest.raises(RuleError, match="Unicode"):
        fractional([{"var": "key"}, *HALVES], {"key": "\ud800"}, bucketing)


@given(st.text(max_size=8), st.none() | st.text(max_size=20) | st.integers(), st.sampled_from(Bucketing))
def test_literal_buckets_give_a_user_what_an_explanation_shows(
    flag_key: str, unit: Any, bucketing: Bucketing
) -> None:
    rule = compile_rule({"fractional": HALVES}, bucketing=bucketing, flag_key=flag_key)
    assert rule({"targetingKey": unit}) == rule({"targetingKey": unit}, lambda *_: None)
