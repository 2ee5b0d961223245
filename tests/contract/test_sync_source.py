"""What every kind of source does, each against a real peer on loopback."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trustme

from evaluator.settings.load import parse_uri
from evaluator.sync.opening import open_sources
from evaluator.sync.schedule import SourceTiming
from evaluator.sync.source import MAX_BYTES, Delivery, SourceFault, Unchanged
from tests.buckets.azure import ACCOUNT, KEY
from tests.buckets.fixtures import azure_port, empty_bucket, google_port
from tests.sync_sources import (
    S3_KEY,
    S3_SECRET,
    Ear,
    FilePeer,
    GrpcPeer,
    HttpPeer,
    S3Peer,
    raw_server,
    s3_server,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from evaluator.sync.source import SyncSource
    from tests.buckets.relay import Relay
    from tests.sync_sources import Peer

__all__ = ["azure_port", "google_port"]

ONE, TWO = b'{"flags": {}}', b'{"flags": {"a": {}}}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(folder) as port:
        yield port, folder


class StorePeer:
    """A bucket of Google or Azure, over TLS: that is how their stores are asked."""

    def __init__(self, store: Relay, uri: str) -> None:
        self._store = store
        self.uri = uri

    async def put(self, content: bytes) -> None:
        await asyncio.to_thread(self._store.write, "flags.json", content.decode())

    async def put_huge(self) -> None:
        await self.put(b" " * (MAX_BYTES + 1))

    async def remove(self) -> None:
        await asyncio.to_thread(self._store.remove, "flags.json")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Of a server that is believed."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def gs(
    request: pytest.FixtureRequest, tmp_path: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorePeer]:
    with empty_bucket("google", request, tmp_path, tls) as store:
        (tmp_path / "account.json").write_text(store.login["serviceaccount"])
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        monkeypatch.setenv("GOOGLE_BASE_URL", store.url)
        yield StorePeer(store, f"gs://{store.bucket}/flags.json")


@pytest.fixture
def azblob(
    request: pytest.FixtureRequest, tmp_path: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorePeer]:
    with empty_bucket("azure", request, tmp_path, tls) as store:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", store.endpoint)
        yield StorePeer(store, f"azblob://{store.bucket}/flags.json")


@pytest.fixture(params=["file", "http", "grpc", "s3", "gs", "azblob"])
async def peer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peer]:
    if request.param == "file":
        yield FilePeer(tmp_path)
    elif request.param == "http":
        http = HttpPeer()
        yield http
        http.close()
    elif request.param == "grpc":
        stream = GrpcPeer()
        await stream.start()
        yield stream
        await stream.remove()
    elif request.param in {"gs", "azblob"}:
        yield request.getfixturevalue(request.param)
    else:
        s3_peer = S3Peer(*request.getfixturevalue("s3"))
        yield s3_peer
        await s3_peer.remove()


@pytest.fixture
async def ear(peer: Peer) -> AsyncIterator[Ear]:
    ear = Ear(open_at(peer.uri))
    yield ear
    await ear.close()


def open_at(uri: str) -> SyncSource:
    config = replace(parse_uri(uri, "--uri"), interval=0.02, timeout=5.0)
    return open_sources([config], clock=time.monotonic, timing=SourceTiming(poll=0.02, confirm=0.02))[0]


def content(delivery: Delivery) -> bytes:
    return delivery.documents[0][1]


async def test_first_of_all_it_delivers_what_is_there(peer: Peer, ear: Ear) -> None:
    await peer.put(ONE)
    assert content(await ear.until(Delivery)) == ONE


async def test_it_delivers_each_change(peer: Peer, ear: Ear) -> None:
    for wanted in (ONE, TWO, ONE):
        await peer.put(wanted)
        assert content(await ear.until(Delivery)) == wanted


async def test_it_reports_that_nothing_changed(peer: Peer, ear: Ear) -> None:
    await peer.put(ONE)
    await ear.until(Delivery)
    assert [type(await ear.next()) for _ in range(3)] == [Unchanged] * 3


async def test_what_vanishes_is_a_fault_and_comes_back(peer: Peer, ear: Ear) -> None:
    await peer.put(ONE)
    await ear.until(Delivery)
    await peer.remove()
    fault = await ear.until(SourceFault)
    assert fault.message
    await peer.put(TWO)
    assert content(await ear.until(Delivery)) == TWO


async def test_200_megabytes_are_refused_and_what_follows_is_delivered(peer: Peer, ear: Ear) -> None:
    await peer.put(ONE)
    await ear.until(Delivery)
    await peer.put_huge()
    assert (await ear.until(SourceFault)).reason == "TooLarge"
    await peer.put(TWO)
    assert content(await ear.until(Delivery)) == TWO


async def test_half_a_document_is_delivered_as_it_is_or_a_fault(peer: Peer, ear: Ear) -> None:
    await peer.put(TWO[:9])
    received = await ear.until(Delivery, SourceFault)
    assert isinstance(received, SourceFault) or content(received) == TWO[:9]


NETWORK = {
    "http": "http://127.0.0.1:{}/flags.json",
    "grpc": "grpc://127.0.0.1:{}",
    "s3": "s3://bucket/flags.json?endpoint=http://127.0.0.1:{}",
}


def says(answer: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(answer)


@pytest.mark.parametrize("uri", NETWORK.values(), ids=NETWORK.keys())
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"\0\1\2garbage" * 100,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a head", "garbage", "half a body"],
)
async def test_a_peer_that_answers_nothing_or_garbage_is_a_fault(uri: str, answer: bytes) -> None:
    with raw_server(says(answer)) as port:
        config = replace(parse_uri(uri.format(port), "--uri"), timeout=0.3)
        ear = Ear(open_sources([config], clock=time.monotonic)[0])
        assert (await ear.until(SourceFault)).reason in {"Timeout", "Unreachable", "Ended"}
        await ear.close()


@pytest.mark.parametrize("uri", NETWORK.values(), ids=NETWORK.keys())
async def test_a_peer_that_is_not_there_is_a_fault(uri: str) -> None:
    with raw_server(says(b"")) as port:
        pass
    ear = Ear(open_at(uri.format(port)))
    assert (await ear.until(SourceFault)).reason == "Unreachable"
    await ear.close()
