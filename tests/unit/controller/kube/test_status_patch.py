"""What is sent of a status."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.kube.requests import status_patch

names = st.sampled_from("abc")
values = st.recursive(
    st.booleans() | st.integers(0, 3) | st.lists(st.integers(0, 1), max_size=2),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
statuses = st.dictionaries(names, values, max_size=3)


def apply_patch(document: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, as far as we use it: `test` of the uid, `add` and `remove` of what is one or two
    names deep.
    """
    for step in patch:
        *parents, last = step["path"].split("/")[1:]
        place = document
        for name in parents:
            place = place[name]
        if step["op"] == "add":
            place[last] = step["value"]
        elif step["op"] == "remove":
            del place[last]
        else:
            assert place[last] == step["value"]
    return document


@given(statuses, statuses)
def test_what_is_sent_makes_the_one_status_of_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    document = {"metadata": {"uid": "u"}} | ({"status": dict(before)} if before else {})
    found = apply_patch(document, status_patch("u", before, after))
    assert found["status"] == after


@given(statuses, statuses)
def test_a_field_that_is_equal_is_not_sent(before: dict[str, Any], after: dict[str, Any]) -> None:
    sent = {step["path"].removeprefix("/status/") for step in status_patch("u", before, after)}
    assert not before or not sent & {name for name in before if before[name] == after.get(name)}
