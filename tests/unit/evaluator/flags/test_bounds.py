"""References that multiply each other: known by arithmetic, never by building what they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from evaluator.flags.known_operators import NODES
from evaluator.flags.references import Expander, RuleTooLarge, check_cycles
from evaluator.flags.rules import check_rule


def doubling_chain(length: int) -> dict[str, Any]:
    chain: dict[str, Any] = {
        f"e{at}": {"or": [{"$ref": f"e{at + 1}"}, {"$ref": f"e{at + 1}"}]} for at in range(length)
    }
    return {**chain, f"e{length}": True}


def test_doubling_references_are_known_to_be_too_large_without_being_expanded() -> None:
    # 40 doublings: 2^40 leaves, were they built.
    assert Expander(doubling_chain(40)).extent({"!": {"$ref": "e0"}}).nodes > 2**40
    codes = [each.code for each in Expander(doubling_chain(40)).check({"!": {"$ref": "e0"}})]
    assert codes == ["rule-too-large"]


def test_expanding_doubling_references_is_refused() -> None:
    with pytest.raises(RuleTooLarge):
        Expander(doubling_chain(40)).expand({"$ref": "e0"})


def test_each_evaluator_of_a_refused_chain_that_is_small_enough_still_expands() -> None:
    expander = Expander(doubling_chain(40))
    assert expander.extent({"$ref": "e35"}).nodes == 94
    assert expander.expand({"$ref": "e39"}) == {"or": [True, True]}


def test_sizes_stop_growing_before_their_numbers_do() -> None:
    assert Expander(doubling_chain(3000)).extent({"$ref": "e0"}).nodes.bit_length() < 64


def test_a_chain_longer_than_the_stack_is_followed() -> None:
    chain: dict[str, Any] = {f"e{at}": {"$ref": f"e{at + 1}"} for at in range(20_000)}
    chain["e20000"] = {"var": "a"}
    assert Expander(chain).expand({"!": {"$ref": "e0"}}) == {"!": {"var": "a"}}


def test_a_cycle_longer_than_the_stack_is_reported() -> None:
    ring = {f"e{at}": {"!": {"$ref": f"e{(at + 1) % 5_000}"}} for at in range(5_000)}
    found = check_cycles(ring)
    assert len(found) == 5_000
    assert {each.code for _, each in found} == {"reference-cycle"}


def test_a_chain_of_evaluators_that_nest_is_too_deep() -> None:
    chain: dict[str, Any] = {f"e{at}": {"!": {"$ref": f"e{at + 1}"}} for at in range(100)}
    codes = [each.code for each in Expander(chain).check({"!": {"$ref": "e0"}})]
    assert codes == ["rule-too-deep"]


def test_an_evaluator_too_large_by_itself_makes_the_rules_that_use_it_too_large() -> None:
    expander = Expander({"big": {"+": [1] * NODES}})
    assert [each.code for each in expander.check({"!": {"$ref": "big"}})] == ["rule-too-large"]


def test_one_array_shared_by_many_places_is_counted_at_each() -> None:
    # As YAML's aliases make it: 10^9 places from nine arrays.
    value: Any = [1] * 10
    for _ in range(8):
        value = [value] * 10
    codes = [each.code for each in check_rule({"merge": [value]}, evaluators={})]
    assert codes == ["rule-too-large"]
