"""Requests that are malformed, huge or slow get the protocol's error, and a well-behaved client beside them
notices nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hpack import Decoder, Encoder
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2_grpc as v2_grpc

from tests.clients.server import until
from tests.clients.up import banner, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
PROTOCOL_ERROR, FRAME_SIZE_ERROR, CANCEL, CALM = 1, 6, 8, 11
RESOLVE = "/flagd.evaluation.v2.Service/ResolveString"
QUESTION = b"POST /ofrep/v1/evaluate/flags/banner HTTP/1.1\r\nhost: x\r\n"
PATIENCE = 20.0


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    repository = Repository(tmp_path_factory.mktemp("repository"))
    repository.commit(flags__json=banner("plain"))
    with up(repository) as running:
        found = running.ready()
        yield found
        assert running.process.poll() is None
        # A busy machine holds the loop up, too.
        logged = [line for line in running.stop().splitlines() if "evaluator.host.loop_lag" not in line]
        assert not logged, "nothing that a peer sends is an error of ours"


@dataclass
class WellBehaved:
    """A client that asks on one connection each for gRPC and OFREP, over and over."""

    ports: dict[str, int]
    answers: int = 0
    failures: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["ofrep"], timeout=PATIENCE)
        channel = grpc.insecure_channel(f"127.0.0.1:{self.ports['grpc']}")
        asked = v2.ResolveStringRequest(flag_key="banner")
        with contextlib.closing(connection), channel:
            stub = v2_grpc.ServiceStub(channel)
            while not self.over.wait(0.005):
                try:
                    connection.request("POST", "/ofrep/v1/evaluate/flags/banner", body="{}")
                    over_ofrep = json.load(connection.getresponse())["value"]
                    over_grpc = stub.ResolveString(asked, timeout=PATIENCE).value
                    assert (over_ofrep, over_grpc) == ("Welcome", "Welcome")
                except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                    self.failures.append(repr(error))
                    return
                self.answers += 1


@pytest.fixture(autouse=True)
def well_behaved(ports: dict[str, int]) -> Iterator[WellBehaved]:
    """Served before, during and after whatever the test does, on the same two connections."""
    client = WellBehaved(ports)
    thread = threading.Thread(target=client.run)
    thread.start()
    until(lambda: client.answers or client.failures)
    yield client
    so_far = client.answers
    until(lambda: client.answers > so_far + 1 or client.failures)
    client.over.set()
    thread.join()
    assert client.failures == []
    assert client.answers > so_far


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """RFC 9113, 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


GREETING = PREFACE + frame(SETTINGS, 0, 0)


def block(path: str = RESOLVE, content_type: str = "application/grpc", **more: str) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
    fields += [("content-type", content_type), ("te", "trailers")]
    fields += [(name.replace("_", "-"), value) for name, value in more.items()]
    encoded: bytes = Encoder().encode(fields)
    return encoded


def call(body: bytes, **more: str) -> bytes:
    """A gRPC call whose body is `body`."""
    return (
        GREETING
        + frame(HEADERS, END_HEADERS, 1, block(**more))
        + frame(DATA, END_STREAM, 1, body)
    )  # fmt: skip


def message(content: bytes, *, length: int | None = None, compressed: int = 0) -> bytes:
    size = len(content) if length is None else length
    return struct.pack(">BI", compressed, size) + content


class Line:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self) -> int:
        """Of the next HTTP/1.1 response."""
        line = await asyncio.wait_for(self.reader.readline(), PATIENCE)
        return int(line.split()[1])

    async def frames(self) -> AsyncIterator[tuple[int, int, bytes]]:
        """Kind, stream and payload of each frame that comes, until the connection ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await asyncio.wait_for(self.reader.readexactly(9), PATIENCE)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                yield head[3], int.from_bytes(head[5:9], "big"), payload

    async def first(self, kind: int) -> bytes:
        """The payload of the first frame of `kind`."""
        async for found, _, payload in self.frames():
            if found == kind:
                return payload
        raise AssertionError(f"the connection ended without a frame of kind {kind}")

    async def went_away(self) -> int:
        """The error code of the GOAWAY that ends the connection."""
        return int.from_bytes((await self.first(GOAWAY))[4:8], "big")

    async def drip(self, piece: bytes) -> None:
        """Send `piece` five times a second, for as long as the connection takes it."""
        with contextlib.suppress(ConnectionError):
            while not self.writer.is_closing():
                self.send(piece)
                await self.writer.drain()
                await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def line(port: int, first: bytes = b"") -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(first)
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


STREAM = RESOLVE.replace("ResolveString", "EventStream")
CALLS = [
    pytest.param(call(b""), 13, id="no-message"),
    pytest.param(call(b"\0\0"), 13, id="half-a-prefix"),
    pytest.param(call(message(b"abc", length=4_000_000_000)), 13, id="length-too-long"),
    pytest.param(call(message(b"") * 2), 13, id="two-messages"),
    pytest.param(call(message(b"x", compressed=1)), 13, id="compressed-by-nothing"),
    pytest.param(call(message(b"x", compressed=1), grpc_encoding="gzip"), 13, id="no-gzip"),
    pytest.param(call(message(b"x", compressed=1), grpc_encoding="zip"), 12, id="unknown-encoding"),
    pytest.param(call(message(b"\xff" * 20)), 3, id="no-protobuf"),
    pytest.param(call(message(b"\x0a\x02\xff\xfe")), 3, id="a-key-that-is-not-UTF-8"),
    pytest.param(call(message(b""), path="/flagd.evaluation.v2.Service/Nope"), 12, id="no-method"),
    pytest.param(call(message(b""), grpc_timeout="soon", path=STREAM), 13, id="no-timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "status"), CALLS)
async def test_a_malformed_call_ends_with_a_status_and_its_connection_goes_on(
    ports: dict[str, int], sent: bytes, status: int
) -> None:
    async with line(ports["grpc"], sent) as hostile:
        decoder = Decoder()
        fields: dict[Any, Any] = dict(decoder.decode(await hostile.first(HEADERS)))
        if "grpc-status" not in fields:
            # The trailers: headers come first, so that no client tries again.
            fields = dict(decoder.decode(await hostile.first(HEADERS)))
        assert fields["grpc-status"] == str(status)
        hostile.send(frame(PING, 0, 0, b"12345678"))
        assert await hostile.first(PING) == b"12345678"


async def test_a_context_of_very_many_values_is_refused_and_holds_up_nobody(
    ports: dict[str, int], well_behaved: WellBehaved
) -> None:
    asked = v2.ResolveStringRequest(flag_key="banner")
    asked.context.update({f"k{number}": 1 for number in range(40_000)})
    text = json.dumps({"context": {"l": [[]] * 200_000}}).encode()
    huge = QUESTION + b"content-length: %d\r\n\r\n%s" % (len(text), text)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
        so_far = well_behaved.answers
        for _ in range(5):
            with pytest.raises(grpc.aio.AioRpcError, match="more than 10,000 values") as raised:
                await v2_grpc.ServiceStub(channel).ResolveString(asked, timeout=PATIENCE)
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            async with line(ports["ofrep"], huge) as hostile:
                assert await hostile.status() == 400
        await asyncio.to_thread(until, lambda: well_behaved.answers > so_far + 5)


@pytest.mark.parametrize("name", ["grpc", "ofrep", "management"])
@pytest.mark.parametrize("greeting", [b"", GREETING, QUESTION], ids=["none", "http2", "http1"])
async def test_garbage_ends_its_connection_on_every_port(
    ports: dict[str, int], name: str, greeting: bytes
) -> None:
    noise = random.Random(name).randbytes(50_000)
    async with line(ports[name], greeting + b"\0\xff" + noise) as hostile:
        if greeting == GREETING:
            assert await hostile.went_away() in {PROTOCOL_ERROR, FRAME_SIZE_ERROR}
        else:
            assert await hostile.status() == 400
        await asyncio.wait_for(hostile.reader.read(), PATIENCE)


async def test_200_idle_connections_on_each_port_are_kept_and_slow_no_other(
    ports: dict[str, int], well_behaved: WellBehaved
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        idle = [
            await stack.enter_async_context(line(port, first))
            for port in ports.values()
            for first in (b"", GREETING) * 100
        ]
        so_far = well_behaved.answers
        await asyncio.to_thread(until, lambda: well_behaved.answers > so_far + 20)
        for each in idle[1::2]:
            each.send(frame(PING, 0, 0, b"12345678"))
            assert await each.first(PING) == b"12345678"


async def test_a_client_that_asks_much_and_reads_nothing_delays_no_other(
    ports: dict[str, int], well_behaved: WellBehaved
) -> None:
    bulk = b"POST /ofrep/v1/evaluate/flags HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            greedy = await stack.enter_async_context(line(ports["ofrep"], bulk * 5_000))
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined] # of ReadTransport
        so_far = well_behaved.answers
        await asyncio.to_thread(until, lambda: well_behaved.answers > so_far + 20)


@dataclass(frozen=True, slots=True)
class Slow:
    """A request that never ends: what comes at once, and what then drips."""

    port: str
    first: bytes
    piece: bytes
    ending: Callable[[Line], Any]
    wanted: object


def part(content: bytes) -> bytes:
    return frame(CONTINUATION, 0, 1, content)


async def reset(hostile: Line) -> int:
    return int.from_bytes(await hostile.first(RST_STREAM), "big")


async def nothing(hostile: Line) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(hostile.reader.read(), PATIENCE)
    return b""


CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
CALLED = frame(HEADERS, END_HEADERS, 1, block())
SLOW = {
    "head": Slow("ofrep", QUESTION + b"x: ", b"y", Line.status, 408),
    "headers": Slow("ofrep", QUESTION, b"x: y\r\n", Line.status, 408),
    "body": Slow("ofrep", QUESTION + b"content-length: 900\r\n\r\n", b" ", Line.status, 408),
    "chunks": Slow("ofrep", QUESTION + CHUNKED, b"1\r\n \r\n", Line.status, 408),
    "preface": Slow("grpc", PREFACE[:3], b"", nothing, b""),
    "block": Slow("grpc", GREETING + frame(HEADERS, 0, 1, block()[:9]), part(b""), Line.went_away, CALM),
    "frame": Slow("grpc", GREETING + CALLED[:12], b"\x82", Line.went_away, CALM),
    "message": Slow("grpc", GREETING + CALLED, frame(DATA, 0, 1, b"\0"), reset, CANCEL),
}


async def wait_for_end(ports: dict[str, int], slow: Slow) -> object:
    async with line(ports[slow.port], slow.first) as hostile:
        dripping = asyncio.create_task(hostile.drip(slow.piece))
        try:
            return await slow.ending(hostile)
        finally:
            dripping.cancel()


async def test_a_client_that_sends_slowly_is_answered_so_and_disconnected(ports: dict[str, int]) -> None:
    """Side by side, ten of each kind: a slow request takes seconds to be known as one."""
    kinds = list(SLOW) * 10
    found = await asyncio.gather(*(wait_for_end(ports, SLOW[kind]) for kind in kinds))
    assert list(zip(kinds, found, strict=True)) == [(kind, SLOW[kind].wanted) for kind in kinds]
