from __future__ import annotations

import asyncio
import json
import resource
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc

from evaluator.http import h2_frames
from evaluator.settings import Settings
from evaluator.store.store import Store
from evaluator.wiring import Serving, allow_connections, serve
from tests.stores import swap
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, flag_set

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0)


async def start(settings: Settings = LOOPBACK) -> tuple[Store, Serving]:
    store = Store()
    serving = await serve(store, settings, clock=lambda: NOW)
    swap(store, flag_set(*fakes.ALL), now=NOW)
    return store, serving


async def get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_each_port_answers_what_is_its_own() -> None:
    _, serving = await start()
    status, body = await get(serving.ports.management, "/readyz")
    elsewhere, _ = await get(serving.ports.ofrep, "/readyz")
    await serving.stop()
    assert (status, json.loads(body)["ready"], elsewhere) == (200, True, 404)


async def test_the_management_port_may_have_an_address_of_its_own() -> None:
    _, serving = await start(replace(LOOPBACK, host="127.0.0.2", management_host="127.0.0.1"))
    status, _ = await get(serving.ports.management, "/readyz")
    with pytest.raises(ConnectionRefusedError):
        await get(serving.ports.ofrep, "/readyz")
    await serving.stop()
    assert status == 200


async def test_without_flags_an_application_may_start_after_the_deadline() -> None:
    statuses = []
    for deadline in (0.0, 0.001):
        serving = await serve(Store(), replace(LOOPBACK, start_deadline=deadline), clock=lambda: NOW)
        await asyncio.sleep(0.01)
        statuses.append((await get(serving.ports.management, "/startz"))[0])
        await serving.stop()
    assert statuses == [412, 200]


async def test_a_socket_may_be_opened_to_all_that_reach_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    _, serving = await start(replace(LOOPBACK, socket_path=str(path), socket_mode="0666"))
    mode = path.stat().st_mode
    await serving.stop()
    assert mode & 0o777 == 0o666


async def ping(port: int) -> bytes:
    """The answer to a client that pings four times at once and waits for four answers, or the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    pings = h2_frames.frame(h2_frames.PING, 0, 0, b"keepaliv")
    writer.write(h2_frames.PREFACE + h2_frames.settings_frame({}) + 4 * pings)
    said = b""
    while said.count(b"keepaliv") < 4 and (piece := await reader.read(1_000)):
        said += piece
    writer.close()
    return said


async def test_the_least_time_between_pings_is_of_the_sync_port_alone() -> None:
    _, serving = await start(replace(LOOPBACK, keep_alive_min_time=30.0))
    found = [await ping(port) for port in (serving.ports.sync, serving.ports.grpc)]
    await serving.stop()
    assert [b"too_many_pings" in said for said in found] == [True, False]


async def test_a_port_that_is_taken_leaves_none_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        settings = Settings(
            host="127.0.0.1", port=port, management_port=taken.getsockname()[1], ofrep_port=0, sync_port=0
        )
        with pytest.raises(OSError, match=f"port {settings.management_port} .*with --management-port, or 0"):
            await start(settings)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_v1s_bulk_and_events_reach_a_grpc_client_up_to_the_goodbye() -> None:
    store, serving = await start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.ports.grpc}") as channel:
        stub = v1_grpc.ServiceStub(channel)
        everything = await stub.ResolveAll(v1.ResolveAllRequest(), timeout=10)
        events: Any = aiter(stub.EventStream(v1.EventStreamRequest(), timeout=20))
        kinds = [(await anext(events)).type]
        swap(store, flag_set(fakes.BOOLEAN), now=NOW)
        kinds.append((await anext(events)).type)
        stopping = asyncio.create_task(serving.stop())
        kinds.append((await anext(events)).type)
        assert [event async for event in events] == []
    await stopping
    assert kinds == ["provider_ready", "configuration_change", "provider_shutdown"]
    assert everything.flags["string"].string_value == "alpha"


async def test_a_stream_deadline_reaches_a_grpc_client_as_its_status() -> None:
    _, serving = await start(
        Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0, stream_deadline=0.05)
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.ports.grpc}") as channel:
        events = v1_grpc.ServiceStub(channel).EventStream(v1.EventStreamRequest(), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError, match="stream deadline exceeded") as caught:
            [event async for event in events]
    await serving.stop()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        allow_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
