"""What is written of receipts: no more than a second's worth, nothing when idle, and all of it again when it
was dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagreceipt import PROXY_LABEL, receipt_name
from controller.api.meta import ObjectKey, Resource
from controller.proxy.receipts import ExpectedDigest
from controller.proxy.recording import SETTLE, Recorder, RecorderTiming
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Failed
from tests.waiting import run_beside
from tests.worlds.proxy import OWNER, PLACE, ReceiptScene, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from controller.delivery.claims import Place


@dataclass
class Cluster:
    """Keeps what is written; `down` refuses all of it."""

    applied: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[tuple[str, str]] = field(default_factory=list)
    there: dict[tuple[str, str], str] = field(default_factory=dict)
    """uids by kind and name."""
    down: bool = False
    late: bool = False
    """What is refused was done all the same."""
    refused: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        del manager
        self.asked.set()
        key = (manifest["kind"], manifest["metadata"]["name"])
        if self.down and self.late:
            self.there.setdefault(key, "uid-late")
        self._reach()
        self.applied.append(dict(manifest))
        uid = self.there.setdefault(key, f"uid-{len(self.applied)}")
        return {"metadata": {"uid": uid}}, ""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        del api_version, namespace, uid
        self.asked.set()
        if not self.down or self.late:
            self.there.pop((kind, name), None)
        self._reach()
        self.deleted.append((kind, name))

    def _reach(self) -> None:
        if self.down:
            self.refused += 1
            raise Failed("ApiServerUnavailable", "down")

    @property
    def receipts(self) -> set[str]:
        """Names of those that are there."""
        return {name for kind, name in self.there if kind == "FlagReceipt"}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.applied if each["kind"] == kind]

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not enough():
                self.asked.clear()
                await self.asked.wait()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def world() -> ReceiptScene:
    return ReceiptScene()


QUICK = RecorderTiming(tick=0.05, renew=0.05, pace=0.2)


@contextlib.asynccontextmanager
async def run_recorder(
    world: ReceiptScene, cluster: Cluster, timing: RecorderTiming = QUICK
) -> AsyncIterator[Recorder]:
    queue: KeyedQueue[Place] = KeyedQueue(asyncio.get_running_loop().time, lambda: 0.0)
    receipts = world.receipts(lambda place: queue.put(place, SETTLE))
    recorder = Recorder(
        receipts,
        cluster,
        "proxy-1",
        "flagstaff-system",
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        queue,
        timing,
    )
    async with run_beside(recorder.run()):
        yield recorder


@contextlib.asynccontextmanager
async def run_followed(world: ReceiptScene, cluster: Cluster) -> AsyncIterator[Recorder]:
    """Somebody follows, and the receipt is there."""
    async with run_recorder(world, cluster) as recorder:
        report(recorder.receipts)
        await cluster.until(lambda: bool(cluster.receipts))
        yield recorder


async def test_a_receipt_is_owned_by_what_it_is_about(world: ReceiptScene, cluster: Cluster) -> None:
    async with run_followed(world, cluster):
        pass
    (written,) = cluster.of("FlagReceipt")
    assert written["metadata"]["name"] == receipt_name("flags", "proxy-1")
    assert written["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid
    assert written["spec"] == {"configuration": "flags", "proxy": "proxy-1"}
    assert written["status"]["digest"] == "sha256:new"


async def test_a_receipt_has_the_label_of_the_shard_that_sums_it_up(
    world: ReceiptScene, cluster: Cluster
) -> None:
    owner = replace(OWNER, labels={"flagstaff.dev/flagset": "flags", "team": "shop"})
    world.expected = ExpectedDigest(owner, "sha256:new", 990.0)
    async with run_followed(world, cluster):
        pass
    (written,) = cluster.of("FlagReceipt")
    assert written["metadata"]["labels"] == {**PROXY_LABEL, "team": "shop"}


async def test_a_burst_of_receipts_is_one_write_and_heartbeats_are_none(
    world: ReceiptScene, cluster: Cluster
) -> None:
    async with run_recorder(world, cluster) as recorder:
        for _ in range(20):
            for number in range(10):
                report(recorder.receipts, pod=f"p{number}")
            await asyncio.sleep(0.03)
    assert len(cluster.of("FlagReceipt")) == 1


async def test_writes_of_one_flag_set_are_apart(world: ReceiptScene, cluster: Cluster) -> None:
    clock = asyncio.get_running_loop().time
    async with run_recorder(world, cluster) as recorder:
        began, number = clock(), 0
        while clock() - began < 1.0:
            report(recorder.receipts, pod=f"p{number}")
            number += 1
            await asyncio.sleep(0.01)
    assert 2 <= len(cluster.of("FlagReceipt")) <= 6


async def test_one_that_failed_is_written_again(world: ReceiptScene, cluster: Cluster) -> None:
    cluster.down = True
    async with run_recorder(world, cluster) as recorder:
        report(recorder.receipts)
        await cluster.until(lambda: cluster.refused > 1)
        cluster.down = False
        await cluster.until(lambda: bool(cluster.of("FlagReceipt")))


async def test_without_an_owner_nothing_is_written(world: ReceiptScene, cluster: Cluster) -> None:
    world.expected = None
    async with run_recorder(world, cluster) as recorder:
        report(recorder.receipts)
        await asyncio.sleep(0.3)
    assert cluster.of("FlagReceipt") == []


@pytest.mark.parametrize(("kind", "writes"), [("FeatureFlag", 0), ("FeatureFlagConfiguration", 1)])
async def test_receipts_are_of_feature_flag_configurations(
    world: ReceiptScene, cluster: Cluster, kind: str, writes: int
) -> None:
    world.expected = ExpectedDigest(Resource(ObjectKey(kind, *PLACE), "uid", 1, "1"), "sha256:new")
    async with run_recorder(world, cluster) as recorder:
        report(recorder.receipts)
        await asyncio.sleep(0.3)
    assert len(cluster.of("FlagReceipt")) == writes


async def test_an_object_that_was_made_again_has_a_receipt_again(
    world: ReceiptScene, cluster: Cluster
) -> None:
    async with run_recorder(world, cluster) as recorder:
        report(recorder.receipts)
        await cluster.until(lambda: len(cluster.of("FlagReceipt")) == 1)
        world.expected = ExpectedDigest(Resource(OWNER.key, "another", 1, "1"), "sha256:new", 990.0)
        await cluster.until(lambda: len(cluster.of("FlagReceipt")) == 2)
    assert cluster.of("FlagReceipt")[1]["metadata"]["ownerReferences"][0]["uid"] == "another"


async def test_without_subscribers_the_receipt_is_removed(world: ReceiptScene, cluster: Cluster) -> None:
    async with run_followed(world, cluster) as recorder:
        recorder.receipts.pod_gone("u-checkout-1")
        await cluster.until(lambda: bool(cluster.deleted))
    assert cluster.deleted == [("FlagReceipt", receipt_name("flags", "proxy-1"))]


async def test_one_that_could_not_be_removed_is_removed_later(world: ReceiptScene, cluster: Cluster) -> None:
    async with run_followed(world, cluster) as recorder:
        cluster.down = True
        recorder.receipts.pod_gone("u-checkout-1")
        await cluster.until(lambda: cluster.refused > 0)
        cluster.down = False
        await cluster.until(lambda: not cluster.receipts)


async def test_a_receipt_written_by_an_unanswered_request_is_removed_too(
    world: ReceiptScene, cluster: Cluster
) -> None:
    cluster.down = cluster.late = True
    async with run_followed(world, cluster) as recorder:
        recorder.receipts.pod_gone("u-checkout-1")
        cluster.down = False
        await cluster.until(lambda: not cluster.receipts)


async def test_a_receipt_removed_by_an_unanswered_request_is_written_for_a_new_subscriber(
    world: ReceiptScene, cluster: Cluster
) -> None:
    async with run_followed(world, cluster) as recorder:
        cluster.down = cluster.late = True
        recorder.receipts.pod_gone("u-checkout-1")
        await cluster.until(lambda: not cluster.receipts)
        cluster.down = False
        report(recorder.receipts)
        await cluster.until(lambda: bool(cluster.receipts))


async def test_the_lease_is_renewed_and_given_up(world: ReceiptScene, cluster: Cluster) -> None:
    async with run_recorder(world, cluster) as recorder:
        await cluster.until(lambda: len(cluster.of("Lease")) >= 2)
        await recorder.close()
    assert cluster.of("Lease")[0]["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    assert cluster.deleted == [("Lease", "flagstaff-proxy-proxy-1")]


async def test_a_receipt_that_was_deleted_while_nothing_changes_is_applied_again(
    world: ReceiptScene, cluster: Cluster
) -> None:
    async with run_recorder(world, cluster, replace(QUICK, again=0.3)) as recorder:
        report(recorder.receipts)
        await cluster.until(lambda: len(cluster.of("FlagReceipt")) > 2)
        assert recorder.writes == 1
        cluster.there.pop(("FlagReceipt", receipt_name("flags", "proxy-1")))
        await cluster.until(lambda: bool(cluster.receipts))


@pytest.mark.parametrize("lost", ["deleted", "late"])
async def test_a_proxy_that_lost_its_lease_writes_all_of_it_again(
    world: ReceiptScene, cluster: Cluster, lost: str
) -> None:
    timing = replace(QUICK, late=0.1)
    async with run_recorder(world, cluster, timing) as recorder:
        report(recorder.receipts)
        await cluster.until(lambda: len(cluster.of("FlagReceipt")) == 1)
        if lost == "deleted":
            cluster.there.pop(("Lease", "flagstaff-proxy-proxy-1"))
        else:
            cluster.down = True
            await asyncio.sleep(0.3)
            cluster.down = False
        await cluster.until(lambda: len(cluster.of("FlagReceipt")) == 2)


async def test_when_all_is_written_again_receipts_without_subscribers_are_removed(
    world: ReceiptScene, cluster: Cluster
) -> None:
    async with run_followed(world, cluster) as recorder:
        cluster.down = True
        recorder.receipts.pod_gone("u-checkout-1")
        recorder.receipts.tick(1.0)
        await cluster.until(lambda: cluster.refused > 0)
        recorder.queue.forget(PLACE)
        cluster.there.pop(("Lease", "flagstaff-proxy-proxy-1"))
        cluster.down = False
        await cluster.until(lambda: not cluster.receipts)
