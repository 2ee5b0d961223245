"""What the cluster's scenarios compare by: a comparison that lets everything pass would show nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.scenarios.manifests import difference, part


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ([{"a": 1}, {"b": 2}], [{"a": 1, "c": 3}, {"b": 2}]),
        ([], []),
        ("x", "x"),
    ],
)
def test_members_may_be_more_and_items_may_not(wanted: Any, found: Any) -> None:
    assert difference(wanted, found) == ""


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ".a.b: wanted 1, found 2"),
        ({"a": 1}, {}, ".a: wanted 1, found None"),
        ({"a": [1]}, {"a": [1, 2]}, ".a: wanted [1], found [1, 2]"),
        ({"a": [1, 2]}, {"a": [2, 1]}, ".a[0]: wanted 1, found 2"),
        ({"a": True}, {"a": 1}, ".a: wanted True, found 1"),
        ({"a": "8013"}, {"a": 8013}, ".a: wanted '8013', found 8013"),
        ({"a": {}}, {"a": []}, ".a: wanted {}, found []"),
    ],
)
def test_the_first_difference_is_named_by_its_place(wanted: Any, found: Any, said: str) -> None:
    assert difference(wanted, found) == said


def test_a_part_is_of_the_namespace_that_asks_for_it() -> None:
    (route,) = part("flagd", "found-routes", "shop")
    assert {rule["backendRefs"][0]["namespace"] for rule in route["spec"]["rules"]} == {"shop"}
