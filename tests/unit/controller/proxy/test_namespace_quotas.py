"""What callers of one namespace may have of a proxy, asked for by stock gRPC clients."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from controller.app.namespace_limits import QuotaMetrics
from controller.app.proxy_process import LIMITS
from controller.runtime.limits import NamespaceLimits
from evaluator.http.listener import Listener
from evaluator.wire.delivery import REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest, ReportResponse
from tests.worlds.proxy import Scene, flags

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHOP, OTHER = (f"system:serviceaccount:{each}:app" for each in ("shop", "other"))
PATIENCE = 60


class Served:
    """A proxy on a port, and clients of it."""

    def __init__(self, auth: str = "enforce") -> None:
        self.limits = NamespaceLimits(streams=2, receipts=2)
        self.scene = Scene(auth, limits=self.limits)
        self.scene.learn("shop/flags", flags())
        for user in (SHOP, OTHER):
            self.scene.reviews.rights[user] = {("shop", "flags")}
        self.channels = contextlib.AsyncExitStack()
        self.port = 0

    async def channel(self) -> Any:
        """Of another client each time."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        made = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options)
        return await self.channels.enter_async_context(made)

    async def stream(self, token: str) -> Any:
        """An open stream that has its first message. Raises AioRpcError."""
        stub = sync_pb2_grpc.FlagSyncServiceStub(await self.channel())
        request = sync_pb2.SyncFlagsRequest(selector="shop/flags")
        stream = stub.SyncFlags(request, metadata=bearer(token), timeout=PATIENCE)
        assert isinstance(await stream.read(), sync_pb2.SyncFlagsResponse)
        return stream

    async def report(self, token: str) -> None:
        """Again where the token was not reviewed yet. Raises AioRpcError."""
        ask = (await self.channel()).unary_unary(
            REPORT, ReportRequest.SerializeToString, ReportResponse.FromString
        )
        request = ReportRequest(member=Member(instance="i"), selector="shop/flags", digest="sha256:x")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await ask(request, metadata=bearer(token))
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                else:
                    return


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def scrape(proxy: Served) -> dict[tuple[str, str, str], float]:
    return {
        (family.name, sample.labels["namespace"], sample.labels["quota"]): sample.value
        for family in QuotaMetrics(proxy.limits, proxy.scene.proxy.usage).collect()
        for sample in family.samples
    }


async def run_proxy(auth: str) -> AsyncIterator[Served]:
    found = Served(auth)
    listener = Listener(found.scene.routes, LIMITS, name="sync")
    found.port = await listener.start("127.0.0.1", 0)
    async with found.channels:
        yield found
    await listener.drain(1.0)
    found.scene.proxy.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Served]:
    async for each in run_proxy("enforce"):
        yield each


@pytest.fixture
async def open_to_all() -> AsyncIterator[Served]:
    async for each in run_proxy("off"):
        yield each


async def test_streams_beyond_the_quota_are_refused_and_others_do_not_notice(proxy: Served) -> None:
    others = await proxy.stream(OTHER)
    streams = [await proxy.stream(SHOP) for _ in range(2)]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await proxy.stream(SHOP)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details() == (
        "streams of namespace shop: all 2 of its quota are taken here (--quota-streams)"
    )
    await proxy.stream(OTHER)
    assert scrape(proxy) == {
        ("flagstaff_quota_used", "shop", "streams"): 2,
        ("flagstaff_quota_limit", "shop", "streams"): 2,
        ("flagstaff_quota_used", "other", "streams"): 2,
        ("flagstaff_quota_limit", "other", "streams"): 2,
    }
    proxy.scene.learn("shop/flags", flags("next"))
    for each in (others, *streams):
        message = await each.read()
        assert "next" in message.flag_configuration
    # One that ends makes room.
    streams[0].cancel()
    async with asyncio.timeout(PATIENCE):
        while proxy.scene.proxy.authorizer.limits.taken > 3:  # noqa: ASYNC110 - the server hears of it
            await asyncio.sleep(0.01)
    await proxy.stream(SHOP)


async def test_streams_without_a_known_client_count_for_no_namespace(open_to_all: Served) -> None:
    for _ in range(3):
        await open_to_all.stream(SHOP)


async def test_receipts_beyond_the_quota_are_refused_and_others_do_not_notice(proxy: Served) -> None:
    for pod in ("pod-a", "pod-b"):
        await proxy.report(f"{SHOP}#{pod}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await proxy.report(f"{SHOP}#pod-c")
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details() == (
        "receipts of namespace shop: all 2 of its quota are taken here (--quota-receipts)"
    )
    # Those that are known, and those of others, go on.
    await proxy.report(f"{SHOP}#pod-a")
    await proxy.report(f"{OTHER}#pod-d")
    assert scrape(proxy)["flagstaff_quota_used", "shop", "receipts"] == 2
    assert scrape(proxy)["flagstaff_quota_limit", "other", "receipts"] == 2
    [counts] = proxy.scene.proxy.receipts.counts()
    assert counts.served + counts.lagging == 3
    # A pod that goes makes room.
    proxy.scene.proxy.receipts.pod_gone("u-pod-a")
    proxy.scene.proxy.receipts.tick(1.0)
    await proxy.report(f"{SHOP}#pod-c")
    with pytest.raises(grpc.aio.AioRpcError):
        await proxy.report(f"{SHOP}#pod-e")
