"""What is read of a proxy's management port does not hold its loop."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.app.proxy_process import open_proxy
from controller.app.settings import ProxySettings
from controller.proxy import receipt_service
from tests.stub_api import stub_api

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from controller.proxy.receipts import Receipts


class Seen(Collector):
    """Keeps in which threads it was scraped."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def collect(self) -> Iterator[Metric]:
        self.threads.add(threading.get_ident())
        yield GaugeMetricFamily("seen", "A scrape.", value=1.0)


def read(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


async def test_metrics_and_the_fleet_are_made_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, threads, made = Seen(), set[int](), receipt_service.fleet

    def note_thread(receipts: Receipts) -> dict[str, object]:
        threads.add(threading.get_ident())
        return made(receipts)

    monkeypatch.setattr(receipt_service, "fleet", note_thread)
    with stub_api(tmp_path) as stub:
        settings = ProxySettings(
            kubeconfig=str(stub.kubeconfig), host="127.0.0.1", sync_port=0, management_port=0, drain_seconds=1
        )
        async with open_proxy(settings) as process:
            process.registry.register(seen)
            text = await asyncio.to_thread(read, process.ports["management"], "/metrics")
            members = await asyncio.to_thread(read, process.ports["management"], "/fleet")
            await process.sync.drain(1.0)
    assert "\nseen 1.0" in text
    assert "flagstaff_proxy_streams 0.0" in text
    assert json.loads(members) == {"flagSets": []}
    assert seen.threads
    assert threads
    assert threading.get_ident() not in seen.threads | threads
