"""What a proxy says of itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.proxy.metrics import ProxyMetrics, ReceiptMetrics, served_after_histogram
from controller.runtime.watch_health import WatchHealth
from tests.worlds.proxy import FEATURE_FLAG, Scene, flags


class FakeWatch:
    fault = "it was cut"

    def age(self) -> float:
        return 7.5


async def scrape() -> dict[str, float]:
    """Series of a proxy in which everything is there that can be: a stream, a conflict, an unfit object,
    flags held and left out.
    """
    scene = Scene("warn")
    bad = {"variants": {"on": 1}, "defaultVariant": "none"}
    scene.learn("shop/web", flags("1"))
    scene.open("shop/web")
    scene.learn("shop/web", {"flags": {"hello": bad, "new": bad}})
    scene.learn("shop/web", flags("1"), FEATURE_FLAG)
    scene.learn("shop/bad", {"flags": 7})
    scene.open("shop/bad")
    await scene.rest()
    registry = CollectorRegistry()
    served_after_histogram(registry)
    watches = WatchHealth(lambda: 0.0)
    watches.follow("flagshards", "/flagshards", FakeWatch())
    registry.register(ProxyMetrics(scene.proxy, watches, lambda: 1))
    registry.register(ReceiptMetrics(scene.proxy.receipts, lambda: 3))
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


async def test_open_held_unfit_and_old_streams_are_counted() -> None:
    found = await scrape()
    expected = {
        "flagstaff_proxy_streams[]": 2,
        "flagstaff_watch_age_seconds['flagshards']": 7.5,
        "flagstaff_watch_connected['flagshards']": 0,
        "flagstaff_proxy_flags_held['shop', 'web']": 1,
        "flagstaff_proxy_flags_left_out['shop', 'web']": 1,
        "flagstaff_proxy_set_unfit['InvalidFlags', 'bad', 'shop']": 1,
        "flagstaff_proxy_conflict['FeatureFlag', 'Shadowed', 'shop', 'web']": 1,
        "flagstaff_proxy_auth_total['no_token']": 2,
        "flagstaff_proxy_set_members['delivered', 'shop', 'web']": 1,
        "flagstaff_proxy_receipt_writes_total[]": 3,
    }
    assert {name: found.get(name) for name in expected} == expected
