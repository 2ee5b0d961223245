"""gRPC calls as grpcio's client sees them."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from evaluator.http.grpc_framing import MESSAGE_CHARACTERS, takes_gzip, zipped
from evaluator.http.limits import Limits
from evaluator.http.messages import Call, Code, MessageStream, RpcError, Zipped
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.serving import ROUTES, run_listener, say_the_last
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def channel(routes: Routes = ROUTES, limits: Limits | None = None) -> AsyncIterator[grpc.Channel]:
    """A blocking channel: its calls belong into a thread."""
    async with run_listener(routes, limits) as (_, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
            yield opened


async def unary(opened: grpc.Channel, path: str, message: bytes = b"", **options: object) -> bytes:
    call = opened.unary_unary(path, None, None)
    return await asyncio.to_thread(call, message, timeout=20, **options)  # type: ignore[arg-type] # options of the call


def stream_call(opened: grpc.Channel, path: str) -> Any:
    return opened.unary_stream(path, None, None)


async def failure(opened: grpc.Channel, path: str, message: bytes = b"") -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        await unary(opened, path, message)
    return caught.value.code().name, caught.value.details() or ""


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("size", [0, 1, 16_384, 900_000])
async def test_a_message_comes_back(size: int, compression: grpc.Compression) -> None:
    async with channel() as opened:
        message = bytes(size)
        assert await unary(opened, "/t.T/Echo", message, compression=compression) == message


@pytest.mark.parametrize("size", [0, 1, 16_384, 4_000_000])
async def test_a_stream_has_compressed_and_plain_messages_for_a_client_that_takes_gzip(size: int) -> None:
    message = random.Random(size).randbytes(size)

    def send(_: Call, __: bytes, stream: MessageStream) -> None:
        messages: list[bytes | Zipped] = [zipped(message), message, zipped(message)]

        def go_on() -> None:
            while messages and stream.writable:
                stream.send(messages.pop(0))
            if not messages:
                stream.close()

        stream.on_writable = go_on
        go_on()

    async with channel(Routes(streams={"/t.T/S": send})) as opened:
        call = stream_call(opened, "/t.T/S")
        received = await asyncio.to_thread(lambda: list(call(b"", timeout=20)))
    assert received == [message] * 3


@pytest.mark.parametrize(
    ("accepted", "gzip"),
    [
        (None, False),
        ("identity", False),
        ("identity, deflate, gzip", True),
        ("gzip", True),
        ("gzipped", False),
    ],
)
def test_a_stream_may_be_compressed_where_the_client_names_gzip(accepted: str | None, gzip: bool) -> None:
    assert takes_gzip(() if accepted is None else (("grpc-accept-encoding", accepted),)) is gzip


async def test_an_unknown_encoding_is_unimplemented() -> None:
    async with channel() as opened:
        with pytest.raises(grpc.RpcError) as caught:
            await unary(opened, "/t.T/Echo", bytes(1000), compression=grpc.Compression.Deflate)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_hundred_calls_at_once_are_each_answered() -> None:
    async with channel() as opened:
        messages = [b"%d" % number for number in range(100)]
        assert await asyncio.gather(*(unary(opened, "/t.T/Echo", m) for m in messages)) == messages


@pytest.mark.parametrize(
    ("path", "message", "expected"),
    [
        ("/t.T/Refuse", b"", ("NOT_FOUND", "flag 'ß' is 100% missing\n")),
        ("/t.T/Fail", b"", ("INTERNAL", "internal error")),
        ("/t.T/No", b"", ("UNIMPLEMENTED", "unknown method /t.T/No")),
        ("/t.T/Echo", bytes(5000), ("RESOURCE_EXHAUSTED", "request too large")),
    ],
)
async def test_a_failed_call_has_its_status(
    path: str, message: bytes, expected: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with channel(limits=Limits(body_bytes=1000)) as opened:
        assert await failure(opened, path, message) == expected
        assert await unary(opened, "/t.T/Echo", b"on it goes") == b"on it goes"
    assert ("ValueError: a bug" in caplog.text) is (path == "/t.T/Fail")


RETRIES = {
    "maxAttempts": 4, "initialBackoff": "0.2s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNKNOWN", "UNAVAILABLE"],
}  # fmt: skip


@pytest.mark.parametrize("code", [Code.UNKNOWN, Code.UNAVAILABLE])
async def test_a_failed_call_is_not_repeated_by_a_client_with_a_retry_policy(code: Code) -> None:
    calls: list[bytes] = []

    def refuse_with(call: Call, message: bytes) -> bytes:
        calls.append(message)
        raise RpcError(code, "no")

    policy = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": RETRIES}]})
    async with run_listener(Routes(unary={"/t.T/No": refuse_with})) as (_, port):
        options = [("grpc.service_config", policy), ("grpc.enable_retries", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as opened:
            found = await failure(opened, "/t.T/No")
    assert (found, len(calls)) == ((code.name, "no"), 1)


async def test_a_bomb_is_not_inflated() -> None:
    async with channel(limits=Limits(body_bytes=100_000)) as opened:
        with pytest.raises(grpc.RpcError) as caught:
            await unary(opened, "/t.T/Echo", bytes(3_000_000), compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_status_message_is_cut_to_what_clients_take() -> None:
    def verbose(call: Call, message: bytes) -> bytes:
        raise RpcError(Code.INVALID_ARGUMENT, "x" * 100_000)

    async with channel(Routes(unary={"/t.T/Verbose": verbose})) as opened:
        code, details = await failure(opened, "/t.T/Verbose")
    assert (code, len(details)) == ("INVALID_ARGUMENT", MESSAGE_CHARACTERS)


async def test_a_stream_sends_its_messages_and_ends() -> None:
    async with channel() as opened:
        call = stream_call(opened, "/t.T/Count")
        received = await asyncio.to_thread(lambda: list(call(b"abc", timeout=20)))
    assert received == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (RpcError(Code.UNAVAILABLE, "later"), grpc.StatusCode.UNAVAILABLE),
        (ValueError("a bug"), grpc.StatusCode.INTERNAL),
    ],
)
@pytest.mark.parametrize("sent", [0, 1])
async def test_a_stream_that_its_handler_refuses_has_its_status(
    raised: Exception, code: grpc.StatusCode, sent: int
) -> None:
    def start(call: Call, message: bytes, stream: MessageStream) -> None:
        for _ in range(sent):
            stream.send(b"x")
        raise raised

    logging.disable()
    async with channel(Routes(streams={"/t.T/S": start})) as opened:
        call = stream_call(opened, "/t.T/S")
        with pytest.raises(grpc.RpcError) as caught:
            await asyncio.to_thread(lambda: list(call(b"", timeout=20)))
    logging.disable(logging.NOTSET)
    assert caught.value.code() is code


async def test_a_client_that_cancels_ends_its_stream() -> None:
    ended = asyncio.Event()

    def start(call: Call, message: bytes, stream: MessageStream) -> None:
        stream.on_closed = ended.set
        stream.send(b"hello")

    async with channel(Routes(streams={"/t.T/S": start})) as opened:
        call = stream_call(opened, "/t.T/S")(b"", timeout=20)
        assert await asyncio.to_thread(next, call) == b"hello"
        call.cancel()
        async with asyncio.timeout(20):
            await ended.wait()


async def test_a_client_that_does_not_read_gets_only_the_newest_then() -> None:
    streams: list[MessageStream] = []
    async with channel(Routes(streams={"/t.T/S": lambda *call: streams.append(call[2])})) as opened:
        call = stream_call(opened, "/t.T/S")(b"", timeout=20)
        await until(lambda: streams)
        stream, state = streams[0], 0
        while stream.writable:
            state += 1
            stream.send(b"%d " % state + bytes(50_000))
            await asyncio.sleep(0.005)
        stream.on_writable = partial(say_the_last, stream)
        received = await asyncio.to_thread(lambda: [message.split()[0] for message in call])
    assert received == [*(b"%d" % number for number in range(1, state + 1)), b"newest"]


async def test_a_restart_under_load_loses_no_call_and_serves_none_twice() -> None:
    served: Counter[bytes] = Counter()

    def count_and_echo(call: Call, message: bytes) -> bytes:
        served[message] += 1
        return message

    routes = Routes(unary={"/t.T/Echo": count_and_echo})
    async with run_listener(routes) as (old, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
            calls = [
                asyncio.create_task(unary(opened, "/t.T/Echo", b"%d" % n, wait_for_ready=True))
                for n in range(2000)
            ]
            await until(lambda: len(served) >= 500)
            drained = asyncio.create_task(old.drain(10))
            await asyncio.sleep(0)
            async with run_listener(routes, port=port):
                answers = await asyncio.gather(*calls)
            await drained
    assert answers == [b"%d" % n for n in range(2000)]
    assert set(served.values()) == {1}
