"""The port itself, over sockets: which protocol, how many connections, who slows whom, how it ends."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.http import h2_frames
from evaluator.http.h2_frames import frame
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.routes import Routes
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.serving import ROUTES, exchange, run_listener, say_the_last
from tests.unit.evaluator.http.test_http2 import call, states
from tests.waiting import until

if TYPE_CHECKING:
    from evaluator.http.messages import Call, MessageStream

GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"

MOST = 2**26
"""For a client that is to find something far along."""


async def test_both_protocols_share_a_port() -> None:
    async with run_listener() as (_, port):
        assert (await exchange(port, GET + LAST)).count(b"200 OK") == 2
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire.GREETING + call(1, "/t.T/Echo", b"hello"))
        assert b"hello" in await reader.readuntil(b"hello")
        writer.close()


async def test_the_preface_is_known_however_it_is_cut() -> None:
    async with run_listener() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in wire.GREETING + call(1, "/t.T/Echo", b"hello"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert b"hello" in await reader.readuntil(b"hello")
        writer.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge"])
async def test_curl_is_served(version: str) -> None:
    async with run_listener() as (_, port):
        url = f"http://127.0.0.1:{port}/"
        command = ["curl", "-sS", version, "--data-binary", "x" * 5000, url, "-w", "%{http_code}"]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    assert ran.stdout == b"x" * 5000 + b"200"


async def test_nagle_is_off() -> None:
    async with run_listener() as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: listener.connections)
        (peer,) = listener.peers
        accepted = peer.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_a_connection_too_many_is_closed_and_the_others_live() -> None:
    async with run_listener(limits=Limits(connections=2)) as (listener, port):
        first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: listener.connections == 2)
        with suppress(ConnectionResetError):
            assert await exchange(port, b"") == b""
        first[0][1].write(GET)
        assert await first[0][0].readline() == b"HTTP/1.1 200 OK\r\n"
        for _, opened in first:
            opened.close()


@given(garbage=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_garbage_affects_no_other_connection(garbage: list[bytes]) -> None:
    async with run_listener() as (_, port):
        hostile = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for start, (_, writer) in zip((b"", h2_frames.PREFACE, wire.GREETING), hostile, strict=True):
            writer.writelines([start, *garbage])
        assert b"200 OK" in await exchange(port, LAST)
        for _, writer in hostile:
            writer.close()


@pytest.mark.parametrize(
    "start", [b"", b"P", b"PRI * HT", b"GET / HTTP/1.1\r\n"], ids=["silent", "P", "preface", "head"]
)
async def test_a_client_that_begins_and_stops_is_closed(start: bytes) -> None:
    async with run_listener(limits=Limits(header_seconds=3, idle_seconds=30)) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        await until(lambda: listener.connections)
        later = asyncio.get_running_loop().time() + (4 if start else 31)
        reading = asyncio.create_task(reader.read())

        def has_ended() -> bool:
            listener.sweep(later)
            return reading.done()

        await until(has_ended)
        with suppress(ConnectionResetError):
            assert start == b"GET / HTTP/1.1\r\n" or await reading == b""
        writer.close()


async def test_the_sweep_runs_by_itself() -> None:
    async with run_listener(limits=Limits(idle_seconds=0)) as (_, port):
        assert (await exchange(port, GET)).startswith(b"HTTP/1.1 200")


async def test_a_reader_that_stops_gets_only_the_newest_when_it_goes_on() -> None:
    opened: list[MessageStream] = []
    routes = Routes(streams={"/t.T/S": lambda *args: opened.append(args[2])})
    async with run_listener(routes) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        window = h2_frames.settings_frame({h2_frames.Setting.INITIAL_WINDOW_SIZE: 2**30})
        wide = frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30))
        writer.write(wire.GREETING + window + wide + call(1, "/t.T/S", b""))
        await until(lambda: opened)
        stream, state = opened[0], 0
        while stream.writable:
            state += 1
            stream.send(b"%d" % state + bytes(10_000))
            await asyncio.sleep(0)
        stream.on_writable = partial(say_the_last, stream)
        received = b""
        while b"newest" not in received:
            received += await reader.read(100_000)
        writer.close()
    assert received.count(bytes(9_000)) == state


async def test_a_thousand_streams_are_open_at_once() -> None:
    opened: list[MessageStream] = []
    routes = Routes(streams={"/t.T/S": lambda *args: opened.append(args[2])})
    async with run_listener(routes, Limits(streams_per_connection=1000)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MOST)
        calls = b"".join(call(number, "/t.T/S", b"") for number in range(1, 2000, 2))
        writer.write(wire.GREETING + calls)
        await until(lambda: len(opened) == 1000)
        for number, stream in enumerate(opened):
            stream.send(b"last" if number == 999 else b"next")
        received = await reader.readuntil(b"last")
        writer.close()
    assert states(received).count(b"next") == 999


async def test_draining_waits_for_what_is_in_flight_and_refuses_what_is_new() -> None:
    async with run_listener() as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LAST[:20])
        await until(lambda: listener.connections)
        draining = asyncio.create_task(listener.drain(20))
        await asyncio.sleep(0)
        with pytest.raises(OSError, match=r"Connect|refused"):
            await asyncio.open_connection("127.0.0.1", port)
        writer.write(LAST[20:])
        assert b"200 OK" in await reader.read()
        writer.close()
        await draining
        assert listener.connections == 0


async def test_a_stream_that_outlasts_the_drain_ends_with_unavailable() -> None:
    ended = asyncio.Event()

    def start(call: Call, message: bytes, stream: MessageStream) -> None:
        stream.on_closed = ended.set

    async with run_listener(Routes(streams={"/t.T/S": start})) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire.GREETING + call(1, "/t.T/S", b""))
        await reader.readuntil(b"application/grpc")
        await listener.drain(0.05)
        assert b"shutting down" in await reader.read()
        assert ended.is_set()
        writer.close()


async def test_a_restart_under_load_loses_no_request() -> None:
    answered = 0
    async with run_listener() as (old, port):

        async def client() -> None:
            nonlocal answered
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(100):
                writer.write(GET)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                answered += 1
                if b"connection: close" in head:
                    writer.close()
                    reader, writer = await reconnect(port)
            writer.close()

        clients = [asyncio.create_task(client()) for _ in range(10)]
        await until(lambda: answered > 200)
        draining = asyncio.create_task(old.drain(10))
        await asyncio.sleep(0)
        async with run_listener(port=port):
            await asyncio.gather(*clients)
        await draining
    assert answered == 1000


async def reconnect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Between two listeners there is a moment without one."""
    while True:
        with suppress(ConnectionRefusedError):
            return await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.001)


async def test_a_limit_on_headers_is_always_kept() -> None:
    with pytest.raises(ValueError, match="header_bytes"):
        Listener(ROUTES, Limits(header_bytes=0), name="grpc")


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with run_listener() as (_, port):
        with pytest.raises(OSError, match="in use"):
            await Listener(ROUTES, name="grpc").start("127.0.0.1", port)
