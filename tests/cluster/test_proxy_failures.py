"""What subscribers get while the API server is away, a watch is lost, a proxy dies or leaves, and a
certificate is replaced.
"""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import evaluator
from tests.cluster.api import Api, path_of
from tests.cluster.assets import find
from tests.cluster.patience import within
from tests.cluster.plane import Plane, run_plane
from tests.cluster.plugin import install
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy
from tests.cluster.relay import Relay, relay
from tests.cluster.test_proxy import subscribe, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

NAMESPACE = "shop"


class FailingProxies:
    """A control plane of its own, and a proxy that sees it through a network that can break."""

    def __init__(self, plane: Plane, network: Relay, process: ProxyProcess, channel: grpc.Channel) -> None:
        self.plane = plane
        self.network = network
        self.proxy = process
        self.stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)

    def restart_api_server(self) -> None:
        """It forgets its recent events: a watch from before is answered 410."""
        self.plane.end("kube-apiserver", signal.SIGKILL)
        self.plane.run("kube-apiserver")
        self.plane.wait_ready()


@pytest.fixture(scope="module")
def plane(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One that may be hurt; `cluster` is asked for since there is none without it."""
    assets = find()
    assert assets == cluster.assets
    with run_plane(cluster.assets, tmp_path_factory.mktemp("plane")) as made:
        install(made)
        made.kubectl("create", "namespace", NAMESPACE)
        yield made


@pytest.fixture
def world(plane: Plane, tmp_path: Path) -> Iterator[FailingProxies]:
    with (
        relay(plane.port) as network,
        proxy(plane, tmp_path, via=f"https://127.0.0.1:{network.port}") as process,
        grpc.insecure_channel(process.target) as channel,
    ):
        yield FailingProxies(plane, network, process, channel)


def put(world: FailingProxies, name: str, text: str) -> None:
    apply(world.plane, manifest(NAMESPACE, name, flags(text)))


def test_with_the_api_server_away_flags_are_served_and_their_age_is_shown(world: FailingProxies) -> None:
    put(world, "outage", "one")
    stream = subscribe(world.stub, f"{NAMESPACE}/outage")
    assert value(next(stream)) == "one"
    world.network.cut()
    within(lambda: not world.proxy.readyz()[1]["watches"][0]["connected"])
    late = subscribe(world.stub, f"{NAMESPACE}/outage")
    assert (value(next(late)), world.proxy.readyz()[0]) == ("one", 200)
    age = 'flagstaff_watch_age_seconds{kind="featureflagconfigurations"}'
    within(lambda: world.proxy.metric(age) > 1)
    put(world, "outage", "two")
    world.network.mend()
    assert [value(next(each)) for each in (stream, late)] == ["two", "two"]
    within(lambda: world.proxy.readyz()[1]["watches"][0]["connected"])


def test_a_watch_that_cannot_be_resumed_finds_what_changed_what_came_and_what_went(
    world: FailingProxies,
) -> None:
    for name in ("changed", "deleted"):
        put(world, name, "before")
    streams = {name: subscribe(world.stub, f"{NAMESPACE}/{name}") for name in ("changed", "deleted", "new")}
    assert [value(next(streams[name])) for name in ("changed", "deleted")] == ["before"] * 2
    world.network.cut()
    put(world, "changed", "after")
    put(world, "new", "after")
    world.plane.kubectl("delete", "featureflagconfiguration", "deleted", "-n", NAMESPACE)
    world.restart_api_server()
    world.network.mend()
    assert [value(next(streams[name])) for name in ("changed", "new")] == ["after"] * 2
    with pytest.raises(grpc.RpcError) as gone:
        next(streams["deleted"])
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND
    assert "listed again" in world.proxy.log_text()


def test_an_object_that_was_made_again_meanwhile_is_sent(world: FailingProxies) -> None:
    put(world, "again", "one")
    stream = subscribe(world.stub, f"{NAMESPACE}/again")
    next(stream)
    world.network.cut()
    world.plane.kubectl("delete", "featureflagconfiguration", "again", "-n", NAMESPACE)
    put(world, "again", "two")
    world.network.mend()
    codes = []
    try:
        received = value(next(stream))
    except grpc.RpcError as error:
        codes.append(error.code())
        received = value(next(subscribe(world.stub, f"{NAMESPACE}/again")))
    assert received == "two"
    assert codes in ([], [grpc.StatusCode.NOT_FOUND])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["leaves", "dies"])
def test_when_a_proxy_goes_its_subscribers_are_served_by_another(
    plane: Plane, tmp_path: Path, number: signal.Signals
) -> None:
    name = f"moving-{number.name.lower()}"
    apply(plane, manifest(NAMESPACE, name, flags("1")))
    with (
        proxy(plane, tmp_path / "a", "--drain-seconds", "1") as first,
        proxy(plane, tmp_path / "b") as second,
        relay(first.sync) as service,
    ):
        source = {"uri": f"127.0.0.1:{service.port}", "selector": f"{NAMESPACE}/{name}", "provider": "grpc"}
        with evaluator("--sources", json.dumps([source]), cwd=tmp_path) as follower:
            follower.next_event("flags served")
            service.target = second.sync
            assert service.accepted == 1
            first.end(number)
            within(lambda: second.metric("flagstaff_proxy_streams") == 1)
            # The first try to subscribe anew, a fifth of a second later at most, was also the last;
            # a receipt that was on its way when the connection broke may have dialled once, too.
            assert service.accepted in (2, 3)
            apply(plane, manifest(NAMESPACE, name, flags("2")))
            follower.next_event("flags served")


def test_a_proxy_that_is_asked_to_go_says_so_and_ends_well(plane: Plane, tmp_path: Path) -> None:
    apply(plane, manifest(NAMESPACE, "leaving", flags("1")))
    with (
        proxy(plane, tmp_path, "--drain-delay", "2", "--drain-seconds", "1") as process,
        grpc.insecure_channel(process.target) as channel,
    ):
        stream = subscribe(sync_pb2_grpc.FlagSyncServiceStub(channel), f"{NAMESPACE}/leaving")
        next(stream)
        process.send(signal.SIGTERM)
        within(lambda: process.readyz()[0] == 503)
        apply(plane, manifest(NAMESPACE, "leaving", flags("2")))
        assert value(next(stream)) == "2"
        with pytest.raises(grpc.RpcError) as moved:
            next(stream)
        assert moved.value.code() is grpc.StatusCode.UNAVAILABLE
        assert process.wait() == 0


def test_a_thousand_streams_of_a_proxy_that_is_killed_all_end_at_the_newest_value(
    plane: Plane, tmp_path: Path
) -> None:
    apply(plane, manifest(NAMESPACE, "many", flags("1")))
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(proxy(plane, tmp_path))
        service = stack.enter_context(relay(process.sync))
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{service.port}", options)) for _ in range(5)
        ]
        before = set(receipts(plane))
        first = streams(channels)
        assert [value(next(each)) for each in first] == ["1"] * 1000
        wait_counted(plane, process, before)
        before = set(receipts(plane))
        process.end(signal.SIGKILL)
        apply(plane, manifest(NAMESPACE, "many", flags("2")))
        process.start()
        service.target = process.sync
        second = streams(channels)
        assert [value(next(each)) for each in second] == ["2"] * 1000
        assert {code(each) for each in first} == {grpc.StatusCode.UNAVAILABLE}
        wait_counted(plane, process, before)
        apply(plane, manifest(NAMESPACE, "many", flags("3")))
        assert [value(next(each)) for each in second] == ["3"] * 1000


def streams(channels: list[grpc.Channel]) -> list[Any]:
    """A thousand, opened at once."""
    request = sync_pb2.SyncFlagsRequest(selector=f"{NAMESPACE}/many")
    stubs: list[Any] = [sync_pb2_grpc.FlagSyncServiceStub(each) for each in channels]
    return [stub.SyncFlags(request, timeout=60, wait_for_ready=True) for stub in stubs for _ in range(200)]


def code(ended: Any) -> grpc.StatusCode:
    """How a stream that says nothing more ended."""
    with pytest.raises(grpc.RpcError) as raised:
        next(ended)
    found: grpc.StatusCode = raised.value.code()
    return found


def receipts(plane: Plane) -> dict[str, int]:
    """Streams by the FlagReceipt that counts them."""
    found = Api(plane).items(path_of("flagreceipt", NAMESPACE))
    return {
        each["metadata"]["name"]: each["status"]["delivered"]
        for each in found
        if each["spec"]["configuration"] == "many"
    }


def wait_counted(plane: Plane, process: ProxyProcess, others: set[str]) -> None:
    """Wait until the proxy counts a thousand, and its FlagReceipt, which is none of the `others`, says so."""
    within(lambda: process.metric("flagstaff_proxy_streams") == 1000)
    within(lambda: [n for name, n in receipts(plane).items() if name not in others] == [1000])
