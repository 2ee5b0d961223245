"""Which names are free for the flags of a workload."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.objects.meta import ObjectKey, Resource
from controller.pods.direct_sets.name_check import name_refusal
from controller.pods.settings.well_known import DIRECT_SET
from controller.runtime.objects.cache import Cache

CHECKOUT = ObjectKey("Deployment", "shop", "checkout")


def cached(kind: str, name: str = "checkout", namespace: str = "shop", **fields: Any) -> Cache:
    cache = Cache()
    cache.learn(Resource(ObjectKey(kind, namespace, name), "u", 1, "1", **fields))
    return cache


def configuration(kind: str, owner: str) -> Cache:
    owners = ({"kind": owner, "name": "checkout", "uid": "w"},)
    return cached("FeatureFlagConfiguration", labels={DIRECT_SET: kind}, owners=owners)


@pytest.mark.parametrize(
    "objects",
    [
        Cache(),
        configuration("Deployment", "Deployment"),
        cached("FeatureFlagConfiguration", namespace="pay"),
        cached("FlagSet", spec={"target": {"name": "other"}}),
        cached("FlagSet", "other", spec={"target": "checkout"}),
    ],
)
def test_name_is_free(objects: Cache) -> None:
    assert name_refusal(objects, CHECKOUT) == ""


@pytest.mark.parametrize(
    ("objects", "holder"),
    [
        (cached("FeatureFlagConfiguration"), "another FeatureFlagConfiguration"),
        (cached("FeatureFlag"), "a FeatureFlag"),
        (cached("FlagSet"), "FlagSet checkout"),
        (cached("FlagSet", "other", spec={"target": {"name": "checkout"}}), "FlagSet other"),
        (configuration("StatefulSet", "StatefulSet"), "StatefulSet checkout with flags of its own"),
        (configuration("Deployment", "Pod"), "Deployment checkout with flags of its own"),
    ],
)
def test_name_that_is_taken_is_refused_with_its_holder_and_what_to_do(objects: Cache, holder: str) -> None:
    assert name_refusal(objects, CHECKOUT) == (
        f"the flags of Deployment checkout are served under its name, which {holder} has already; rename one "
        "of the two, or remove the annotation and follow what is there with flagstaff.dev/flagset"
    )
