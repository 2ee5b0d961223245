"""One evaluator for the pods of a node, and a proxy: both real, over TCP. Addresses of the loopback are the
pods', and a token of the proxy's world is its user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc.aio
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from controller.proxy.access import VERDICT_SECONDS
from controller.proxy.node_pods import NodePod
from controller.proxy.receipt_service import fleet
from evaluator.http.listener import Listener
from evaluator.node.node_process import serve_node
from evaluator.node.pod_addresses import AGAIN
from evaluator.settings import Settings
from evaluator.settings.settings import PodName
from evaluator.sync.config import Provider, SourceConfig
from evaluator.wire.delivery import IDENTIFY
from evaluator.wiring import unix_time
from tests.worlds.proxy import Scene, flags

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from evaluator.http.listener import Listener as Port

USER = "system:serviceaccount:flagstaff-system:flagstaff-node-evaluator"
SHOP, BANK, STRANGER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
SHOPS, BANKS = "system:serviceaccount:shop:default", "system:serviceaccount:bank:default"


def node_pod(namespace: str, name: str, address: str, *flag_sets: str) -> NodePod:
    return NodePod(namespace, name, f"u-{name}", "default", frozenset({address}), flag_sets)


async def ask(port: int, address: str, selector: str = "") -> tuple[int, dict[str, Any]]:
    """The flag `hello` by OFREP, from a pod's address."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    chosen = f"flagd-selector: {selector}\r\n" if selector else ""
    writer.write(
        f"POST /ofrep/v1/evaluate/flags/hello HTTP/1.1\r\nhost: node\r\n{chosen}"
        "content-type: application/json\r\n"
        'content-length: 14\r\nconnection: close\r\n\r\n{"context":{}}'.encode()
    )
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body or b"{}")


@dataclass
class Node:
    """A proxy, and the evaluator of its node `n1`."""

    scene: Scene
    proxy: Port
    settings: Any
    ports: Any = None
    stop: Callable[[], None] = lambda: None
    task: asyncio.Task[None] | None = None
    ahead: float = 0.0
    """Seconds by which the clock is ahead."""
    again: float = AGAIN
    """Seconds until the proxy is asked about all pods again."""

    async def start(self) -> None:
        stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
        clock = lambda: unix_time() + self.ahead  # noqa: E731
        serving = serve_node(self.settings, stop, clock, opened.set_result, self.again)
        self.task = asyncio.create_task(serving)
        self.ports, self.stop = await asyncio.wait_for(opened, 10), stop.set

    async def end(self) -> None:
        if self.task is not None:
            self.stop()
            await self.task

    async def hello(self, address: str, selector: str = "") -> tuple[int, Any]:
        status, body = await ask(self.ports.ofrep, address, selector)
        return status, body.get("value", body.get("errorDetails"))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path) as made:
        yield made


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Node]:
    scene = Scene("enforce", node_evaluators="flagstaff-system/flagstaff-node-evaluator")
    scene.learn("shop/checkout", flags("of the shop"))
    scene.learn("bank/ledger", flags("of the bank"))
    places = {("shop", "checkout"), ("bank", "ledger")}
    scene.reviews.rights = {USER: places, SHOPS: {("shop", "checkout")}, BANKS: places}
    scene.nodes.pods = {
        "n1": [
            node_pod("shop", "checkout-1", SHOP, "shop/checkout"),
            node_pod("bank", "ledger-1", BANK, "bank/ledger"),
        ],
        "n2": [node_pod("bank", "elsewhere", STRANGER, "bank/ledger")],
    }
    proxy = Listener(scene.routes, name="sync")
    port = await proxy.start("127.0.0.1", 0)
    source = SourceConfig(f"127.0.0.1:{port}", Provider.GRPC, bearer_token=f"{USER}#pod-n1")
    settings = Settings(
        host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0, pods_from=source,
        state_dir=folder, pod=PodName(node="n1"), shutdown_seconds=0.1,
    )  # fmt: skip
    made = Node(scene, proxy, settings)
    try:
        await made.start()
        yield made
    finally:
        await made.end()
        scene.proxy.close()
        await proxy.drain(0)


async def test_each_pod_gets_the_flags_that_it_was_given(node: Node) -> None:
    assert await node.hello(SHOP) == (200, "of the shop")
    assert await node.hello(BANK) == (200, "of the bank")


async def test_a_pod_may_ask_for_a_set_that_its_account_may_get(node: Node) -> None:
    assert await node.hello(BANK, "shop/checkout") == (200, "of the shop")


async def test_a_pod_cannot_read_the_set_of_another(node: Node) -> None:
    await node.hello(BANK)
    status, why = await node.hello(SHOP, "bank/ledger")
    assert (status, why) == (403, f"{SHOPS} may not get bank/ledger")
    status, why = await node.hello(SHOP, "source=bank/ledger")
    assert status == 403


async def test_an_address_that_is_no_pod_of_the_node_gets_nothing(node: Node) -> None:
    for address in (STRANGER, "127.0.0.9"):
        assert await node.hello(address) == (403, "no pod of this node has this address by itself")


async def test_a_pod_that_was_given_to_no_evaluator_of_a_node_gets_nothing(node: Node) -> None:
    node.scene.nodes.pods["n1"].append(node_pod("shop", "plain", STRANGER))
    status, why = await node.hello(STRANGER)
    assert status == 403
    assert "set the annotation flagstaff.dev/evaluator to node" in why


async def test_two_pods_with_one_address_are_not_told_apart(node: Node) -> None:
    node.scene.nodes.pods["n1"].append(node_pod("bank", "late", SHOP, "bank/ledger"))
    assert (await node.hello(SHOP))[0] == 403


async def test_a_stock_client_by_grpc_is_known_by_its_address(node: Node) -> None:
    """It connects from 127.0.0.1, which is a pod here; the first call waits until the pod is known."""
    node.scene.nodes.pods["n1"].append(node_pod("shop", "checkout-2", "127.0.0.1", "shop/checkout"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.ports.grpc}") as channel:
        answer = await v1_grpc.ServiceStub(channel).ResolveString(v1.ResolveStringRequest(flag_key="hello"))
    assert answer.value == "of the shop"


async def test_an_address_that_another_pod_has_later_gets_the_flags_of_that_pod(node: Node) -> None:
    assert await node.hello(SHOP) == (200, "of the shop")
    node.ahead = 6.0
    node.scene.nodes.pods["n1"] = [node_pod("bank", "ledger-2", SHOP, "bank/ledger")]
    assert await node.hello(SHOP) == (200, "of the bank")


async def grpc_values(node: Node, selector: str) -> AsyncGenerator[str]:
    """Yield what `hello` says whenever a stock client's EventStream tells of a change."""
    told = (("flagd-selector", selector),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.ports.grpc}") as channel:
        stub = v1_grpc.ServiceStub(channel)
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for event in stub.EventStream(v1.EventStreamRequest(), metadata=told):
                if event.type != "keep_alive":
                    asked = v1.ResolveStringRequest(flag_key="hello")
                    yield (await stub.ResolveString(asked, metadata=told)).value


async def synced_values(node: Node, selector: str) -> AsyncGenerator[str]:
    """Yield what `hello` says in each message of a stock client's SyncFlags."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.ports.sync}") as channel:
        request = sync_pb2.SyncFlagsRequest(selector=selector)
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for message in sync_pb2_grpc.FlagSyncServiceStub(channel).SyncFlags(request):
                yield json.loads(message.flag_configuration)["flags"]["hello"]["variants"]["on"]


async def sse_values(node: Node, selector: str, address: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Yield what `hello` says whenever OFREP's event stream tells the pod at an address of a change."""
    headers = {"flagd-selector": selector}
    url = f"http://127.0.0.1:{node.ports.ofrep}/ofrep/v1"
    own = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=own, headers=headers, raise_for_status=True) as session:
        # Its connection is known from now on, and the stream takes the same one.
        async with session.post(f"{url}/evaluate/flags/hello", json={"context": {}}) as answer:
            await answer.read()
        async with session.get(f"{url}/sse") as stream:
            async for line in stream.content:
                if line.startswith(b"data:"):
                    async with session.post(f"{url}/evaluate/flags/hello", json={"context": {}}) as answer:
                        yield (await answer.json())["value"]


def test_a_right_that_is_withdrawn_is_known_within_the_time_that_the_page_says() -> None:
    assert AGAIN + VERDICT_SECONDS <= 120


@pytest.mark.parametrize("values", [grpc_values, synced_values, sse_values])
async def test_a_stream_follows_its_set_until_the_pod_may_not_get_it(
    node: Node, values: Callable[[Node, str], AsyncGenerator[str]]
) -> None:
    """A client from 127.0.0.1, which is a pod here, asks for a set that another pod keeps."""
    await node.end()
    node.again = 0.1
    await node.start()
    node.scene.nodes.pods["n1"].append(node_pod("shop", "checkout-2", "127.0.0.1", "shop/checkout"))
    told = values(node, "shop/checkout")
    async with asyncio.timeout(20):
        assert await anext(told) == "of the shop"
        node.scene.learn("shop/checkout", flags("changed"))
        assert await anext(told) == "changed"
        others = sse_values(node, "shop/checkout", BANK)
        assert await anext(others) == "changed"
        node.scene.reviews.rights[SHOPS] = set()
        # The proxy asks about a right again once its verdict is too old.
        node.scene.now += VERDICT_SECONDS
        assert [value async for value in told] == []
    assert await node.hello("127.0.0.1", "shop/checkout") == (403, f"{SHOPS} may not get shop/checkout")
    node.scene.learn("shop/checkout", flags("changed again"))
    assert await anext(others) == "changed again"
    await others.aclose()


async def test_receipts_count_pods(node: Node) -> None:
    node.scene.nodes.pods["n1"].append(node_pod("shop", "checkout-2", STRANGER, "shop/checkout"))
    for address in (SHOP, STRANGER, BANK):
        await node.hello(address)
    sets: dict[str, Any] = {}
    for _ in range(100):
        sets = {entry["name"]: entry for entry in fleet(node.scene.proxy.receipts)["flagSets"]}
        if sets.get("checkout", {}).get("served") == 2 and sets.get("ledger", {}).get("served") == 1:
            break
        await asyncio.sleep(0.1)
    members = [(member["name"], member["verified"]) for member in sets["checkout"]["members"]]
    assert members == [("shop/checkout-1", True), ("shop/checkout-2", True)], sets
    assert [member["name"] for member in sets["ledger"]["members"]] == ["bank/ledger-1"]


async def test_a_restart_without_the_proxy_serves_the_last_good_flags_to_known_pods(node: Node) -> None:
    await node.hello(SHOP)
    await asyncio.sleep(0.3)
    await node.end()
    await node.proxy.drain(0)
    await node.start()
    assert await node.hello(SHOP) == (200, "of the shop")
    status, why = await node.hello(BANK)
    assert status == 503
    assert "the proxy cannot be asked" in why


async def test_no_more_sets_are_kept_than_the_option_says(node: Node) -> None:
    await node.end()
    node.settings = replace(node.settings, max_flag_sets=1)
    await node.start()
    await node.hello(SHOP)
    status, why = await node.hello(BANK)
    assert status == 429
    assert "--max-flag-sets" in why


async def test_another_account_is_not_told_which_pods_there_are(node: Node) -> None:
    node.scene.reviews.rights["mallory"] = set()
    async with grpc.aio.insecure_channel(node.settings.pods_from.uri) as channel:
        call = channel.unary_unary(IDENTIFY, None, None)(
            b"", metadata=(("authorization", "Bearer mallory#pod-n1"),)
        )
        with pytest.raises(grpc.aio.AioRpcError, match="mallory is no evaluator of a node"):
            await call
