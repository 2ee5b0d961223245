"""What every kind of source does, each against a real peer on loopback."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evaluator.settings.sources import parse_uri
from evaluator.sync import file, grpc
from evaluator.sync.opening import open_sources
from evaluator.sync.source import Delivery, SourceFault, Unchanged
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
    from tests.sync_sources import Peer

ONE, TWO = b'{"flags": {}}', b'{"flags": {"a": {}}}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "POLL", 0.02)
    monkeypatch.setattr(grpc, "_CONFIRM", 0.02)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(folder) as port:
        yield port, folder


@pytest.fixture(params=["file", "http", "grpc", "s3"])
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
    return open_sources([config], clock=time.monotonic)[0]


def content(delivery: Delivery) -> bytes:
    return delivery.documents[0][1]


async def test_first_of_all_it_delivers_what_is_there(peer: Peer, ear: Ear) -> None:
    await peer.put(ONE)
    assert content(await ear.until(Delivery)) == ONE


async def test_it_delivers_each_change(peer: Peer, ear: Ear) -> None:
    for wanted in (ONE, TWO, ONE):
        await peer.put(wanted)
        assert content(await ear.until(Delivery)) == wanted


async def test_it_tells_that_nothing_changed(peer: Peer, ear: Ear) -> None:
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
    heard = await ear.until(Delivery, SourceFault)
    assert isinstance(heard, SourceFault) or content(heard) == TWO[:9]


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
