"""A real Prometheus tells who asks for flags that a revision deletes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, start_http_server

from controller.api.fields import read
from controller.api.flagset import DeletionGuard
from controller.authoring.request_queries import last_request_query, selector_of
from controller.rollouts.deleted_flags import DeletedFlags
from controller.runtime.clock import now
from tests.cluster.patience import within
from tests.cluster.plane import free_ports
from tests.cluster.prometheus import run_prometheus
from tests.worlds.metrics import metric_world

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.authoring.request_queries import FlagRequests


async def _ask(address: str) -> Mapping[str, FlagRequests] | str:
    spec = {
        "requestedWithin": "1h",
        "provider": {"type": "prometheus", "address": address},
        "labels": {"pod": "web-1"},
    }
    async with metric_world() as world:
        keys = ("asked", 'odd "key"}', "begun", "elsewhere", "never")
        return await DeletedFlags(world.servers).ask("shop", read(DeletionGuard, spec), keys, now())


def test_requests_are_counted_from_the_first_one_of_the_flags_and_labels_that_are_meant(
    tmp_path: Path,
) -> None:
    registry = CollectorRegistry()
    counter = Counter(
        "feature_flag_flagd_impression",
        "Evaluations of a flag.",
        ("feature_flag_key", "namespace", "pod"),
        registry=registry,
    )
    (port,) = free_ports(1)
    server, thread = start_http_server(port, "127.0.0.1", registry)
    (tmp_path / "rules.yml").write_text("groups: []\n")
    asked = counter.labels("asked", "shop", "web-1")
    asked.inc(5)
    counter.labels("elsewhere", "shop", "other-1").inc()
    counter.labels('odd "key"}', "shop", "web-1").inc(2)
    try:
        with run_prometheus(tmp_path, tmp_path / "rules.yml", {"shop": [port]}) as prometheus:
            selector = selector_of(["asked"], {})
            within(lambda: prometheus.query(f"feature_flag_flagd_impression_total{selector} == 5"))
            asked.inc(3)
            counter.labels("begun", "shop", "web-1").inc()
            within(lambda: prometheus.query('feature_flag_flagd_impression_total{feature_flag_key="begun"}'))
            within(lambda: prometheus.query(f"feature_flag_flagd_impression_total{selector} == 8"))
            found = asyncio.run(_ask(prometheus.address))
            # Steps as long as a scrape, instead of five minutes.
            short = last_request_query(3600, selector)
            for written, instead in (("10m", "4s"), ("5m", "2s"), ("1h", "1m")):
                short = short.replace(written, instead)
            (last,) = within(lambda: prometheus.query(short))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not isinstance(found, str), found
    assert {key: requests.total for key, requests in found.items()} == {
        "asked": 8,
        'odd "key"}': 2,
        "begun": 1,
    }
    assert [who for who, _ in found["asked"].by] == ["shop/web-1"]
    assert abs(float(last["value"][1]) - now().timestamp()) < 60
