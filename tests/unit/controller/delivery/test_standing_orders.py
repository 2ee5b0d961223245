"""What an annotation or label orders, which pods have the same orders, and how a selector says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.delivery.standing_orders import (
    InvalidOrderError,
    Order,
    OrderedPods,
    asks_for_order,
    order_of,
    workload_of_pod,
)

names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
namespaces = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
kinds = st.sampled_from(["Deployment", "Job", "Rollout"])
own_orders = st.none() | st.builds(Order, namespaces, names)
ordered = st.one_of(
    st.builds(OrderedPods, namespaces, own=own_orders),
    st.builds(OrderedPods, namespaces, kinds, names, own_orders),
)


@given(ordered)
def test_a_selector_names_the_pods_that_it_was_made_of(pods: OrderedPods) -> None:
    assert OrderedPods.parse(str(pods)) == pods


@given(st.text(alphabet="flagstaff.dev/orders=+ABab", max_size=40))
def test_any_text_is_a_selector_or_none(text: str) -> None:
    parsed = OrderedPods.parse(text)
    assert parsed is None or str(parsed) == text


@pytest.mark.parametrize(
    "text",
    ["shop", "flagstaff.dev/orders=", "flagstaff.dev/orders=shop/Deployment", "flagstaff.dev/orders=shop+",
     "flagstaff.dev/orders=shop+x", "flagstaff.dev/orders=shop/deployment/x", "flagstaff.dev/orders=a b",
     "flagstaff.dev/orders=shop/Deployment/web+platform/x/y", "flagstaff.dev/orders=shop/Deployment/web/x"],
)  # fmt: skip
def test_a_malformed_selector_is_none(text: str) -> None:
    assert OrderedPods.parse(text) is None


@pytest.mark.parametrize(
    ("annotations", "order"),
    [
        ({}, None),
        ({"openfeature.dev/standing-orders": "kill"}, Order("shop", "kill")),
        (
            {
                "openfeature.dev/standing-orders": "kill",
                "openfeature.dev/standing-orders-namespace": "platform",
            },
            Order("platform", "kill"),
        ),
        ({"openfeature.io/standingorder": "custom-resource-1"}, Order("shop", "custom-resource-1")),
        (
            {
                "openfeature.agent/standing-orders-resource": "custom-resource-one",
                "openfeature.agent/standing-orders-resource-namespace": "default",
            },
            Order("default", "custom-resource-one"),
        ),
        (
            {"openfeature.io/standingorder": "kill", "openfeature.dev/standing-orders": "kill"},
            Order("shop", "kill"),
        ),
    ],
)
def test_an_order_is_read_in_our_spelling_and_in_the_proposals(
    annotations: dict[str, str], order: Order | None
) -> None:
    assert order_of(annotations, "shop") == order
    assert asks_for_order(annotations) == (order is not None)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"openfeature.dev/standing-orders": "Kill Switches"}, "'Kill Switches' is no object's name"),
        (
            {"openfeature.dev/standing-orders": "a", "openfeature.dev/standing-orders-namespace": "a.b"},
            "openfeature.dev/standing-orders-namespace: 'a.b' is no namespace",
        ),
        (
            {"openfeature.dev/standing-orders": "a", "openfeature.io/standingorder": "b"},
            "name different objects; remove one of them",
        ),
    ],
)
def test_a_malformed_order_is_refused_with_what_to_write(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOrderError, match=message):
        order_of(annotations, "shop")


def owned_by(kind: str, name: str, **labels: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    return {"name": "p", "labels": {key.replace("_", "-"): text for key, text in labels.items()},
            "ownerReferences": [owner]}  # fmt: skip


@pytest.mark.parametrize(
    ("meta", "workload"),
    [
        ({"name": "p"}, ("", "")),
        (owned_by("ReplicaSet", "web-5d9", pod_template_hash="5d9"), ("Deployment", "web")),
        (owned_by("ReplicaSet", "web-5d9"), ("ReplicaSet", "web-5d9")),
        (owned_by("StatefulSet", "db"), ("StatefulSet", "db")),
        (owned_by("Job", "night-28391"), ("Job", "night-28391")),
    ],
)
def test_the_workload_of_a_pod_is_found_by_its_owner(meta: dict[str, Any], workload: tuple[str, str]) -> None:
    assert workload_of_pod(meta) == workload
