"""grpc.health.v1, by the published messages and a stock client."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from evaluator.http.messages import Code, Response, RpcError
from evaluator.http.routes import Routes, merge
from evaluator.server import health
from evaluator.server.health import HealthService
from evaluator.settings import Settings
from evaluator.store.store import Store
from evaluator.wiring import serve
from tests.stores import fail, swap
from tests.worlds.evaluator import BOOLEAN, NOW, FakeStream, answer_of, call, flag_set

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
BESIDE = Routes(unary={"/a.B/One": lambda _, message: message}, streams={"/c.D/Many": lambda *_: None})


class HealthScene:
    """A health service beside others, and its store."""

    def __init__(self, *, serving: bool = True) -> None:
        self.store = Store()
        self.health = HealthService(self.store)
        self.routes = health.routes(self.health, BESIDE)
        if serving:
            self.swap()

    def swap(self) -> None:
        swap(self.store, flag_set(BOOLEAN), now=NOW)

    def check(self, message: bytes = b"") -> int:
        return read(answer_of(self.routes.unary["/grpc.health.v1.Health/Check"](call(), message)))

    def watch(self, service: str = "", *, writable: bool = True) -> FakeStream:
        stream = FakeStream(writable=writable)
        self.routes.streams["/grpc.health.v1.Health/Watch"](call(), health_request(service), stream)
        return stream


def health_request(service: str) -> bytes:
    message: bytes = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    return message


def read(message: bytes) -> int:
    status: int = health_pb2.HealthCheckResponse.FromString(message).status
    return status


def statuses(stream: FakeStream) -> list[int]:
    return [read(message) for message in stream.sent]


@pytest.mark.parametrize("service", ["", "a.B", "c.D", "grpc.health.v1.Health"])
def test_what_the_port_answers_is_serving_once_there_are_flags(service: str) -> None:
    world = HealthScene(serving=False)
    assert world.check(health_request(service)) == NOT_SERVING
    world.swap()
    assert world.check(health_request(service)) == SERVING
    world.health.close()
    assert world.check(health_request(service)) == NOT_SERVING


def test_stale_flags_are_served_so_it_is_serving() -> None:
    world = HealthScene()
    fail(world.store, "the source is gone", NOW)
    assert world.check() == SERVING


@pytest.mark.parametrize("service", ["a", "a.B.C", "A.B", "ß" * 1000])
def test_a_service_that_is_not_here_is_not_found(service: str) -> None:
    with pytest.raises(RpcError) as error:
        HealthScene().check(health_request(service))
    assert error.value.code is Code.NOT_FOUND


@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\x05a", b"\x0a\x01\xff", b"\xff"])
def test_bytes_that_are_no_request_are_invalid(message: bytes) -> None:
    with pytest.raises(RpcError) as error:
        HealthScene().check(message)
    assert error.value.code is Code.INVALID_ARGUMENT


def test_a_field_that_is_not_known_yet_is_skipped() -> None:
    assert HealthScene().check(b"\x10\x01" + health_request("a.B")) == SERVING


def test_a_watch_gets_the_status_at_once_and_then_every_change() -> None:
    world = HealthScene(serving=False)
    stream = world.watch("a.B")
    assert statuses(stream) == [NOT_SERVING]
    world.swap()
    world.swap()
    assert statuses(stream) == [NOT_SERVING, SERVING]
    world.health.close()
    assert statuses(stream) == [NOT_SERVING, SERVING, NOT_SERVING]
    assert stream.ended == (Code.UNAVAILABLE, "shutting down")


def test_a_watch_of_a_service_that_is_not_here_stays_open() -> None:
    world = HealthScene(serving=False)
    stream = world.watch("nobody")
    world.swap()
    assert (statuses(stream), stream.closed) == ([UNKNOWN], False)
    world.health.close()
    assert (statuses(stream), stream.closed) == ([UNKNOWN], True)


def test_a_watch_that_was_not_writable_gets_the_newest_status() -> None:
    world = HealthScene(serving=False)
    stream = world.watch(writable=False)
    world.swap()
    assert statuses(stream) == []
    stream.read()
    assert statuses(stream) == [SERVING]


def test_a_watch_that_has_ended_is_forgotten() -> None:
    world = HealthScene(serving=False)
    stream = world.watch()
    stream.hang_up()
    world.swap()
    world.health.close()
    assert (statuses(stream), stream.ended) == ([NOT_SERVING], None)


def test_no_watch_begins_while_shutting_down() -> None:
    world = HealthScene()
    world.health.close()
    with pytest.raises(RpcError) as error:
        world.watch()
    assert error.value.code is Code.UNAVAILABLE


async def test_a_stock_client_reads_it_on_both_ports() -> None:
    store = Store()
    settings = Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0)
    serving = await serve(store, settings, clock=lambda: NOW)
    for port in (serving.ports.grpc, serving.ports.management):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            client: Any = health_pb2_grpc.HealthStub(channel)
            for service in ("", "flagd.evaluation.v1.Service", "flagd.evaluation.v2.Service"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await client.Check(request)).status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await client.Check(health_pb2.HealthCheckRequest(service="nobody"))
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
    await serving.stop()


async def test_a_stock_client_watches_a_start_and_an_end() -> None:
    store = Store()
    settings = Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0)
    serving = await serve(store, settings, clock=lambda: NOW)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.ports.management}") as channel:
        client: Any = health_pb2_grpc.HealthStub(channel)
        watch = client.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == NOT_SERVING
        swap(store, flag_set(BOOLEAN), now=NOW)
        assert (await watch.read()).status == SERVING
        await serving.stop()
        assert (await watch.read()).status == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await watch.read()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


# -- merging -------------------------------------------------------------------------------------------------


def test_merged_routes_answer_what_each_answered() -> None:
    world = HealthScene()
    both = merge(BESIDE, world.routes)
    assert dict(both.unary) == {**BESIDE.unary, **world.routes.unary}
    assert dict(both.streams) == {**BESIDE.streams, **world.routes.streams}


@pytest.mark.parametrize(
    "other",
    [
        Routes(unary=BESIDE.unary),
        Routes(streams={"/a.B/One": lambda *_: None}),
        Routes(http={("GET", "/"): lambda _: Response(200)}),
    ],
    ids=["unary", "stream", "http"],
)
def test_a_path_that_two_answer_is_an_error_that_names_it(other: Routes) -> None:
    ours = merge(BESIDE, Routes(http={("GET", "/"): lambda _: Response(200)}))
    with pytest.raises(ValueError, match=r"/a\.B/One|GET"):
        merge(ours, other)
