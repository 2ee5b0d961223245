from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme

from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.grpc_source import GrpcSource, delivery_of, target
from evaluator.sync.schedule import DEFAULT_TIMING, SourceTiming
from evaluator.sync.source import Delivery, SourceFault, Unchanged
from evaluator.wire import sync_pb2
from tests.sync_sources import Ear, GrpcPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FLAGS = b'{"flags": {}}'


@pytest.fixture
async def peer() -> AsyncIterator[GrpcPeer]:
    peer = GrpcPeer()
    await peer.start()
    await peer.put(FLAGS)
    yield peer
    await peer.remove()


@contextlib.asynccontextmanager
async def run_source(port: int, timing: SourceTiming = DEFAULT_TIMING, **fields: Any) -> AsyncIterator[Ear]:
    config = replace(SourceConfig(f"127.0.0.1:{port}", Provider.GRPC, timeout=5.0), **fields)
    ear = Ear(GrpcSource("peer", "identity", config, timing=timing))
    yield ear
    await ear.close()


async def test_the_selector_is_sent_as_header_and_in_the_request_and_the_provider_id_with_it(
    peer: GrpcPeer,
) -> None:
    fields: dict[str, Any] = {"selector": "flagSetId=a", "provider_id": "me"}
    async with run_source(peer.port, **fields) as ear:
        await ear.until(Delivery)
    request, metadata = peer.asked[0]
    assert (request.selector, request.provider_id) == ("flagSetId=a", "me")
    assert metadata["flagd-selector"] == "flagSetId=a"


async def test_the_configured_headers_are_sent_and_a_token_in_a_file_is_read_again(
    peer: GrpcPeer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    fields: dict[str, Any] = {"bearer_token_file": str(token), "headers": {"X-Key": "abc"}}
    async with run_source(peer.port, **fields) as ear:
        await ear.until(Delivery)
        token.write_text("two\n")
        await peer.remove()
        await ear.until(SourceFault)
        await peer.start()
        await ear.until(Delivery)
    assert [asked["authorization"] for _, asked in peer.asked] == ["Bearer one", "Bearer two"]
    assert peer.asked[0][1]["x-key"] == "abc"


async def test_the_context_that_comes_with_flags_is_delivered(peer: GrpcPeer) -> None:
    async with run_source(peer.port) as ear:
        assert (await ear.until(Delivery)).context == {}
        peer.context = {"region": "eu", "deep": {"list": [1, True, None]}}
        await peer.put(FLAGS)
        assert (await ear.until(Delivery)).context == peer.context


def test_a_context_that_is_no_json_is_a_fault() -> None:
    message = sync_pb2.SyncFlagsResponse(flag_configuration="{}")
    message.sync_context.update({"load": float("inf")})
    with pytest.raises(SourceFault, match="not JSON"):
        delivery_of("peer", message)


@pytest.mark.parametrize("uri", ["envoy://h:99999/s", "envoy://[h:1/s", "envoy://h/s"])
def test_an_envoy_target_that_cannot_be_read_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSourceError, match="write envoy://host:port/service"):
        target(SourceConfig(uri, Provider.GRPC))


async def test_a_stream_that_is_silent_and_whole_says_that_nothing_changed(peer: GrpcPeer) -> None:
    async with run_source(peer.port, SourceTiming(confirm=0.02)) as ear:
        await ear.until(Delivery)
        assert [type(await ear.next()) for _ in range(3)] == [Unchanged] * 3


async def test_a_peer_that_does_not_answer_is_not_said_to_have_what_it_sent(peer: GrpcPeer) -> None:
    timing = SourceTiming(confirm=0.02, call=0.1, ping_timeout=0.5, keepalive=0.5)
    freezer = Freezer(peer.port)
    async with freezer.run_server() as port, run_source(port, timing) as ear:
        await ear.until(Delivery)
        await ear.until(Unchanged)
        freezer.thawed.clear()
        received = [await ear.next()]
        while not isinstance(received[-1], SourceFault):
            received.append(await ear.next())
        # One question may have been answered just before.
        assert len(received) <= 2
        freezer.thawed.set()


async def test_a_message_beyond_what_was_allowed_is_refused(peer: GrpcPeer) -> None:
    await peer.put(b"x" * 2000)
    async with run_source(peer.port, max_msg_size=1000) as ear:
        assert (await ear.until(SourceFault)).reason == "TooLarge"


async def test_a_compressed_message_is_read_and_bounded_by_its_size_once_decompressed() -> None:
    peer = GrpcPeer()
    await peer.start(compression=grpc.Compression.Gzip)
    await peer.put(FLAGS + b" " * 900)
    async with run_source(peer.port, max_msg_size=1000) as ear:
        delivered = await ear.until(Delivery)
        assert delivered.documents[0][1] == FLAGS + b" " * 900
        # A thousandth of that on the wire.
        await peer.put(b" " * 50_000_000)
        assert (await ear.until(SourceFault)).reason == "TooLarge"
    await peer.remove()


async def test_a_certificate_is_checked_against_the_configured_authority(tmp_path: Path) -> None:
    authority, peer = trustme.CA(), GrpcPeer()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert = authority.issue_cert("127.0.0.1")
    chain = b"".join(each.bytes() for each in cert.cert_chain_pems)
    await peer.start(grpc.ssl_server_credentials([(cert.private_key_pem.bytes(), chain)]))
    peer.content = FLAGS.decode()
    async with run_source(peer.port, tls=True, cert_path=str(tmp_path / "ca.pem")) as ear:
        await ear.until(Delivery)
    async with run_source(peer.port, tls=True) as ear:
        assert (await ear.until(SourceFault)).reason == "Unreachable"
    await peer.remove()


async def test_certificates_that_are_not_there_are_a_fault() -> None:
    async with run_source(1, tls=True, cert_path="/no/such/file") as ear:
        fault = await ear.until(SourceFault)
    assert (fault.reason, "/no/such/file" in fault.message) == ("Credentials", True)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (grpc.StatusCode.NOT_FOUND, "NotFound"),
        (grpc.StatusCode.UNAVAILABLE, "Unreachable"),
        (grpc.StatusCode.FAILED_PRECONDITION, "Invalid"),
        (grpc.StatusCode.PERMISSION_DENIED, "Forbidden"),
    ],
)
async def test_a_silent_peer_is_asked_why_and_listened_to_until_the_flags_come(
    said: grpc.StatusCode, reason: str
) -> None:
    silent = GrpcPeer()
    silent.absence = said
    await silent.start()
    async with run_source(silent.port, SourceTiming(silence=0.02)) as ear:
        fault = await ear.until(SourceFault)
        assert (fault.reason, "no flags" in fault.message) == (reason, True)
        await silent.put(FLAGS)
        await ear.until(Delivery)
    await silent.remove()
    assert len(silent.asked) == 1


@pytest.mark.parametrize("said", [None, grpc.StatusCode.INTERNAL])
async def test_a_peer_that_is_silent_and_does_not_say_why_has_failed_in_time(
    said: grpc.StatusCode | None,
) -> None:
    silent = GrpcPeer()
    silent.absence = said
    await silent.start()
    async with run_source(silent.port, SourceTiming(silence=0.02), timeout=0.2) as ear:
        assert (await ear.until(SourceFault)).reason == "Timeout"
    await silent.remove()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.NOT_FOUND, "NotFound"),
        (grpc.StatusCode.UNAUTHENTICATED, "Unauthenticated"),
        (grpc.StatusCode.PERMISSION_DENIED, "Forbidden"),
        (grpc.StatusCode.UNAVAILABLE, "Unreachable"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Busy"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Renewal"),
        (grpc.StatusCode.INTERNAL, "Ended"),
    ],
)
async def test_the_end_of_a_stream_shows_what_has_become_of_its_flags(
    peer: GrpcPeer, code: grpc.StatusCode, reason: str
) -> None:
    async with run_source(peer.port) as ear:
        await ear.until(Delivery)
        await peer.end(code)
        assert (await ear.until(SourceFault)).reason == reason


class Freezer:
    """Passes bytes on to a port until it is frozen: then both ends stay open and hear nothing more."""

    def __init__(self, port: int) -> None:
        self.thawed = asyncio.Event()
        self.thawed.set()
        self._port = port

    @contextlib.asynccontextmanager
    async def run_server(self) -> AsyncIterator[int]:
        """On the port that is given, until all who came have gone."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        # Also the tasks of connections that are only being accepted: their transports would outlive the loop.
        async with asyncio.timeout(20):
            while serving := {task for task in asyncio.all_tasks() if _is_serving(task)}:
                await asyncio.wait(serving)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        both = self._pass(reader, far_writer), self._pass(far_reader, writer)
        await asyncio.gather(*both, return_exceptions=True)
        for each in (writer, far_writer):
            with contextlib.suppress(ConnectionError):
                await each.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while content := await reader.read(65536):
                await self.thawed.wait()
                writer.write(content)
                await writer.drain()
        finally:
            writer.close()


def _is_serving(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == Freezer.serve.__qualname__


async def test_a_stream_whose_peer_hangs_is_noticed_by_its_silence_to_pings_and_resumed(
    peer: GrpcPeer,
) -> None:
    freezer = Freezer(peer.port)
    async with (
        freezer.run_server() as port,
        run_source(port, SourceTiming(keepalive=0.3, ping_timeout=0.3)) as ear,
    ):
        await ear.until(Delivery)
        freezer.thawed.clear()
        fault = await ear.until(SourceFault)
        assert fault.reason == "Unreachable"
        freezer.thawed.set()
        await ear.until(Delivery)
