"""Sources whose content must be signed: what is not believed is not delivered, and is tried again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.store import MemoryStore

from evaluator.settings.load import parse_sources
from evaluator.settings.settings import InvalidSettingError
from evaluator.sync import blob_source
from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.opening import identities, open_sources
from evaluator.sync.source import Delivery, SourceFault, Unchanged
from tests.registry.signing import Key
from tests.sync_sources import Ear, HttpPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

OLD, NEW = b'{"flags": {}}', b'{"flags": {}, "metadata": {"v": 2}}'


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def config(key: Key, tmp_path: Path) -> SourceConfig:
    (tmp_path / "ci.pub").write_bytes(key.public)
    return SourceConfig("", Provider.HTTP, interval=0.02, timeout=5.0, verify_key=str(tmp_path / "ci.pub"))


@pytest.fixture
async def ears() -> AsyncIterator[list[Ear]]:
    opened: list[Ear] = []
    yield opened
    for ear in opened:
        await ear.close()


def listen(ears: list[Ear], config: SourceConfig) -> Ear:
    ears.append(Ear(open_sources([config], clock=time.monotonic)[0]))
    return ears[-1]


class SignedPeer:
    """Serves a document and the signature beside it."""

    def __init__(self) -> None:
        self.peer = HttpPeer()
        self.peer.answer = self._answer
        self.signatures: list[str | None] = []
        """What is answered, the last one for ever; None: there is none."""

    def _answer(self, handler: BaseHTTPRequestHandler) -> bool:
        if not handler.path.startswith("/flags.json.sig"):
            return False
        signature = self.signatures.pop(0) if len(self.signatures) > 1 else self.signatures[0]
        body = (signature or "").encode()
        handler.send_response(404 if signature is None else 200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True


@pytest.fixture
def signed() -> Iterator[SignedPeer]:
    served = SignedPeer()
    yield served
    served.peer.close()


async def test_a_signed_document_is_delivered_and_an_unsigned_one_after_it_is_not(
    ears: list[Ear], config: SourceConfig, key: Key, signed: SignedPeer
) -> None:
    signed.peer.content, signed.signatures = OLD, [key.sign(OLD)]
    ear = listen(ears, replace(config, uri=signed.peer.uri + "?a=b"))
    assert (await ear.until(Delivery)).documents[0][1] == OLD
    await ear.until(Unchanged)
    signed.signatures = [None]
    signed.peer.content = NEW
    fault = await ear.until(SourceFault)
    assert fault.reason == "Unverified"
    assert "it has no signature beside it, in a file .sig" in fault.message
    # The same answer, with its ETag, is no reason to believe it at the next poll.
    assert (await ear.until(SourceFault)).reason == "Unverified"
    signed.signatures = [Key().sign(NEW)]
    while "its signature is by no key of" not in (await ear.until(SourceFault)).message:
        pass
    signed.signatures = ["%"]
    while "it is not Base64" not in (await ear.until(SourceFault)).message:
        pass
    signed.signatures = [json.dumps({"messageSignature": {"signature": key.sign(NEW)}})]
    assert (await ear.until(Delivery)).documents[0][1] == NEW


async def test_a_signature_that_comes_a_moment_after_its_document_is_asked_for_once_more(
    ears: list[Ear], config: SourceConfig, key: Key, signed: SignedPeer
) -> None:
    signed.peer.content, signed.signatures = NEW, [key.sign(OLD), key.sign(NEW)]
    ear = listen(ears, replace(config, uri=signed.peer.uri))
    first = await ear.next()
    assert isinstance(first, Delivery)
    assert first.documents[0][1] == NEW


async def test_one_of_several_keys_in_the_file_is_enough_and_it_is_read_again(
    ears: list[Ear], config: SourceConfig, key: Key, signed: SignedPeer, tmp_path: Path
) -> None:
    other = Key("ed25519")
    signed.peer.content, signed.signatures = OLD, [other.sign(OLD)]
    ear = listen(ears, replace(config, uri=signed.peer.uri))
    assert (await ear.until(SourceFault)).reason == "Unverified"
    (tmp_path / "ci.pub").write_bytes(key.public + other.public)
    await ear.until(Delivery)


async def test_a_file_waits_for_its_signature(
    ears: list[Ear], config: SourceConfig, key: Key, tmp_path: Path
) -> None:
    path, beside = tmp_path / "flags.json", tmp_path / "flags.json.sig"
    path.write_bytes(OLD)
    ear = listen(ears, replace(config, uri=str(path), provider=Provider.FILE))
    assert (await ear.until(SourceFault)).reason == "Unverified"
    beside.write_text(key.sign(OLD))
    assert (await ear.until(Delivery)).documents == ((str(path), OLD),)
    path.write_bytes(NEW)
    beside.write_text(key.sign(NEW))
    assert (await ear.until(Delivery)).documents == ((str(path), NEW),)
    path.write_bytes(OLD)
    assert (await ear.until(SourceFault)).reason == "Unverified"


async def test_each_file_of_a_folder_needs_a_signature(
    ears: list[Ear], config: SourceConfig, key: Key, tmp_path: Path
) -> None:
    folder = tmp_path / "flags"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        (folder / name).write_bytes(OLD)
    (folder / "a.json.sig").write_text(key.sign(OLD))
    ear = listen(ears, replace(config, uri=str(folder), provider=Provider.FILE))
    assert "b.json: refused" in (await ear.until(SourceFault)).message
    (folder / "b.json.sig").write_text(key.sign(OLD))
    assert len((await ear.until(Delivery)).documents) == 2


async def test_an_object_of_a_store_has_its_signature_beside_it(
    ears: list[Ear], config: SourceConfig, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(blob_source, "open_store", lambda _: store)
    await obstore.put_async(store, "flags.json", OLD)
    ear = listen(ears, replace(config, uri="s3://bucket/flags.json", provider=Provider.S3))
    assert (await ear.until(SourceFault)).reason == "Unverified"
    await obstore.put_async(store, "flags.json.sig", key.sign(OLD).encode())
    assert (await ear.until(Delivery)).documents[0][1] == OLD


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"none", "contains no public key in PEM format")],
)
def test_a_key_file_that_cannot_be_used_ends_the_start(
    config: SourceConfig, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.pub"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidSourceError, match=message):
        open_sources([replace(config, uri="http://a/b", verify_key=str(file))], clock=time.monotonic)


def test_a_grpc_source_has_no_verify_key() -> None:
    given: list[dict[str, Any]] = [{"uri": "a:1", "provider": "grpc", "verifyKey": "ci.pub"}]
    with pytest.raises(InvalidSettingError, match="has no verifyKey"):
        parse_sources(given, "--sources", [])


def test_what_was_saved_without_signatures_is_not_of_the_source_with_them(config: SourceConfig) -> None:
    plain = replace(config, uri="http://a/b", verify_key="")
    assert identities([plain]) != identities([replace(plain, verify_key=config.verify_key)])


def test_cryptography_is_loaded_for_a_signed_source_alone() -> None:
    script = (
        "import sys; from evaluator.sync.opening import open_sources; "
        "from evaluator.sync.config import *; "
        "sources = SourceConfig('http://a/b', Provider.HTTP), SourceConfig('a', Provider.FILE); "
        "open_sources(sources, clock=None); "
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
