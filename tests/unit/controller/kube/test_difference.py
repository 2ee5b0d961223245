"""What is sent of a status."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.kube.client import difference

names = st.sampled_from("abc")
values = st.recursive(
    st.booleans() | st.integers(0, 3) | st.lists(st.integers(0, 1), max_size=2),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
statuses = st.dictionaries(names, values, max_size=3)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, as it is written there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(statuses, statuses)
def test_what_is_sent_makes_the_one_status_of_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert merged(before, difference(before, after)) == after


@given(statuses)
def test_of_what_is_equal_nothing_is_sent(status: dict[str, Any]) -> None:
    assert difference(status, status) == {}


def test_a_nested_field_that_went_is_told() -> None:
    before = {"artifact": {"revision": "1", "metadata": {"author": "Ada"}}, "kept": [1]}
    after = {"artifact": {"revision": "2", "metadata": {}}, "kept": [1]}
    assert difference(before, after) == {"artifact": {"revision": "2", "metadata": {"author": None}}}  # fmt: skip
