"""The metrics of quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api.meta import ObjectKey, Resource
from controller.runtime.objects.cache import Cache
from controller.runtime.tenancy.limits import Limits, NamespaceLimits
from controller.wiring.tenancy.quotas import QuotaMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_each_use_is_shown_beside_its_limit() -> None:
    objects, limits = Cache(), Limits(NamespaceLimits(sources=5, flags=100))
    limits.replace({"free": "sources: 0\nflags: 0\nartifactBytes: 1000"})

    def put(kind: str, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        key = ObjectKey(kind, namespace, name)
        objects.learn(Resource(key, str(key), 1, "1", status=status))

    put("FlagSource", "shop", "a", {"artifact": {"size": 300}})
    put("FlagSource", "shop", "b", {})
    put("FlagSource", "free", "a", {"artifact": {"size": 300}})
    put("FlagSet", "shop", "a", {"flags": 7})
    put("FlagSet", "free", "a", {"flags": 7})
    values = {
        (family.name, sample.labels["namespace"], sample.labels["quota"]): sample.value
        for family in QuotaMetrics(objects, limits).collect()
        for sample in family.samples
    }
    assert values == {
        ("flagstaff_quota_used", "shop", "sources"): 2,
        ("flagstaff_quota_limit", "shop", "sources"): 5,
        ("flagstaff_quota_used", "shop", "flags"): 7,
        ("flagstaff_quota_limit", "shop", "flags"): 100,
        ("flagstaff_quota_used", "free", "artifactBytes"): 300,
        ("flagstaff_quota_limit", "free", "artifactBytes"): 1000,
    }
