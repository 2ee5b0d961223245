"""Which names are free for the flags of a workload."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.meta import ObjectKey
from controller.pods.installation import DIRECT_SET
from controller.pods.marked_workloads import MANAGER, name_refusal
from controller.runtime.cache import Cache
from tests.worlds.objects import cache_of, thing

CHECKOUT = ObjectKey("Deployment", "shop", "checkout")


def cache_with(kind: str, name: str = "checkout", spec: Any = None, **metadata: Any) -> Cache:
    return cache_of(thing(kind, name, spec, **metadata))


def kept(*managers: str) -> Cache:
    """A set without owners: it was kept, or somebody wrote the label."""
    labels = {DIRECT_SET: "Deployment"}
    return cache_with(
        "FeatureFlagConfiguration", labels=labels, managedFields=[{"manager": each} for each in managers]
    )


def configuration(kind: str, owner: str) -> Cache:
    owners = [{"kind": owner, "name": "checkout", "uid": "w"}]
    return cache_with("FeatureFlagConfiguration", labels={DIRECT_SET: kind}, ownerReferences=owners)


@pytest.mark.parametrize(
    "objects",
    [
        Cache(),
        configuration("Deployment", "Deployment"),
        kept(MANAGER),
        cache_with("FeatureFlagConfiguration", namespace="pay"),
        cache_with("FlagSet", spec={"target": {"name": "other"}}),
        cache_with("FlagSet", "other", spec={"target": "checkout"}),
    ],
)
def test_name_is_free(objects: Cache) -> None:
    assert name_refusal(objects, CHECKOUT) == ""


@pytest.mark.parametrize(
    ("objects", "holder"),
    [
        (cache_with("FeatureFlagConfiguration"), "another FeatureFlagConfiguration"),
        (cache_with("FeatureFlag"), "a FeatureFlag"),
        (cache_with("FlagSet"), "FlagSet checkout"),
        (cache_with("FlagSet", "other", spec={"target": {"name": "checkout"}}), "FlagSet other"),
        (configuration("StatefulSet", "StatefulSet"), "StatefulSet checkout with flags of its own"),
        (configuration("Deployment", "Pod"), "Deployment checkout with flags of its own"),
        (kept("kubectl"), "Deployment checkout with flags of its own"),
    ],
)
def test_name_that_is_taken_is_refused_with_its_holder_and_what_to_do(objects: Cache, holder: str) -> None:
    assert name_refusal(objects, CHECKOUT) == (
        f"the flags of Deployment checkout are served under its name, which {holder} has already; rename one "
        "of the two, or remove the annotation and follow what is there with flagstaff.dev/flagset"
    )
