"""Artifacts that are signed by cosign, in a real registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from controller.api.meta import VERIFIED_BY
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.backend import Fetched, Unverified
from tests.registry.artifacts import INDEX, flux, index
from tests.registry.fixtures import REGISTRIES, Shelf
from tests.registry.front import Answer
from tests.registry.signing import Key, bundle, bundle_of, referrers, signature_tag, simple
from tests.worlds.sources import opener

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.parametrize("registry", REGISTRIES, indirect=True)


async def pull(shelf: Shelf, into: Path, **keys: bytes) -> Fetched:
    """With the Secret's `NAME.pub`."""
    secret = {f"{name}.pub": key for name, key in keys.items()}
    async with opener(signers=secret) as sources:
        source = await sources.open(shelf.url, signers="signers")
        return await source.fetch(await source.resolve(), into)


async def refusal_of(shelf: Shelf, into: Path, **keys: bytes) -> Setback:
    shelf.front.asked.clear()
    with pytest.raises(Unverified) as raised:
        await pull(shelf, into, **keys)
    assert not (into / "flags.json").exists()
    return raised.value


@pytest.fixture
def digest(shelf: Shelf) -> str:
    return shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": "{}"}))


@pytest.mark.parametrize("kind", ["ecdsa", "rsa", "ed25519"])
async def test_what_cosign_2_signed_is_fetched(shelf: Shelf, tmp_path: Path, digest: str, kind: str) -> None:
    key = Key(kind)
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, Key(), key))
    found = await pull(shelf, tmp_path, ci=key.public)
    assert (tmp_path / "flags.json").is_file()
    assert found.metadata[VERIFIED_BY].startswith("ci (cosign SHA256:")
    assert "signed by ci" in found.summary


async def test_the_index_is_what_must_be_signed(shelf: Shelf, tmp_path: Path, digest: str) -> None:
    key = Key()
    listed = index((flux({"flags.json": "{}"}), None))
    whole = shelf.pusher.push_index(shelf.repository, "latest", listed)
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, key))
    await refusal_of(shelf, tmp_path, ci=key.public)
    shelf.pusher.push(shelf.repository, signature_tag(whole), simple(whole, key))
    assert VERIFIED_BY in (await pull(shelf, tmp_path, ci=key.public)).metadata


async def test_what_cosign_3_signed_is_fetched_by_the_api_or_by_its_fallback_tag(
    shelf: Shelf, tmp_path: Path, digest: str
) -> None:
    key = Key()
    signed = bundle(digest, key)
    shelf.pusher.push(shelf.repository, "the-bundle", signed)
    listed = Answer(200, {"Content-Type": INDEX}, referrers(signed))
    for place in (f"/referrers/{digest}?", f"/manifests/{digest.replace(':', '-')}"):
        shelf.front.instead = lambda asked, _, place=place: (  # type: ignore[misc]
            listed
            if place in asked and not asked.endswith(".sig")
            else (Answer(404) if "/referrers/" in asked else None)
        )
        into = tmp_path / str(len(place))
        into.mkdir()
        assert VERIFIED_BY in (await pull(shelf, into, ci=key.public)).metadata


async def test_what_cosign_3_attached_is_found_in_the_list_that_the_registry_keeps_or_in_its_pusher_s(
    shelf: Shelf, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    artifact, key = flux({"flags.json": "{}"}), Key()
    digest = shelf.pusher.push(shelf.repository, "latest", artifact)
    assert "is not signed" in (await refusal_of(shelf, tmp_path, ci=key.public)).message
    signed = bundle(digest, key, subject=artifact)
    shelf.pusher.push(shelf.repository, signed.digest, signed)
    if "containers" not in request.node.callspec.id:
        shelf.pusher.push_index(shelf.repository, digest.replace(":", "-"), referrers(signed))
    assert VERIFIED_BY in (await pull(shelf, tmp_path, ci=key.public)).metadata


async def test_what_is_not_signed_or_by_another_key_is_refused_before_its_files_are_fetched(
    shelf: Shelf, tmp_path: Path, digest: str
) -> None:
    key, eve = Key(), Key()
    setback = await refusal_of(shelf, tmp_path, ci=key.public)
    assert setback.reason == "InvalidArtifactSignature"
    assert f"@{digest}: it is not signed" in setback.message
    assert "cosign sign --key KEY 127.0.0.1" in setback.message
    assert "Secret shop/signers (it has ci)" in setback.message
    assert not [asked for asked in shelf.front.asked if "/blobs/" in asked]
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, eve))
    assert "by none of the trusted keys" in (await refusal_of(shelf, tmp_path, ci=key.public)).message


async def test_an_attestation_of_an_artifact_is_no_signature_of_it(
    shelf: Shelf, tmp_path: Path, digest: str
) -> None:
    key = Key()
    attested = bundle(digest, key, predicate="https://slsa.dev/provenance/v1")
    shelf.pusher.push(shelf.repository, "attested", attested)
    listed = Answer(200, {"Content-Type": INDEX}, referrers(attested))
    shelf.front.instead = lambda asked, _: listed if "/referrers/" in asked else None
    assert "says something else of it" in (await refusal_of(shelf, tmp_path, ci=key.public)).message


async def test_a_good_signature_counts_beside_what_cannot_be_read(
    shelf: Shelf, tmp_path: Path, digest: str
) -> None:
    key = Key()
    broken = bundle_of({"payloadType": "\ud800", "payload": "", "signatures": [{"sig": ""}]})
    shelf.pusher.push(shelf.repository, "broken", broken)
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, key))
    listed = Answer(200, {"Content-Type": INDEX}, referrers(broken))
    shelf.front.instead = lambda asked, _: listed if "/referrers/" in asked else None
    assert VERIFIED_BY in (await pull(shelf, tmp_path, ci=key.public)).metadata


def rsa_key(bits: int, exponent: int) -> bytes:
    key = rsa.RSAPublicNumbers(exponent, (1 << bits) - 1).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


async def test_no_more_than_a_thousand_pairs_of_a_key_and_a_signature_are_tried(
    shelf: Shelf, tmp_path: Path, digest: str
) -> None:
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, *(Key() for _ in range(20))))
    keys = {f"key{number}.pub": Key().public for number in range(51)}
    async with opener(signers=keys) as sources:
        source = await sources.open(shelf.url, signers="signers")
        with pytest.raises(Failed, match="more than 1000 pairs of a signature and a key; remove old ones"):
            await source.fetch(await source.resolve(), tmp_path)


async def test_keys_that_cannot_be_meant_are_refused(shelf: Shelf, tmp_path: Path, digest: str) -> None:
    for secret, message in (
        ({}, "has no public key"),
        ({"a.pub": b"x"}, "no public key in PEM"),
        ({"a.pem": b"x"}, "must be called"),
        ({f"{number}.pub": b"x" for number in range(101)}, "has 101 keys; at most 100 public keys are read"),
        ({"a.pub": rsa_key(8_193, 65_537)}, "an RSA key of more than 8192 bits, or with an unusual exponent"),
        ({"a.pub": rsa_key(2_048, (1 << 33) + 1)}, "an RSA key of more than 8192 bits"),
    ):
        async with opener(signers=secret) as sources:
            with pytest.raises(Stalled, match=message) as raised:
                await sources.open(shelf.url, signers="signers")
        assert raised.value.reason == "InvalidSecret"


async def test_another_key_is_another_epoch(shelf: Shelf) -> None:
    epochs = []
    for key in (Key().public, Key().public):
        async with opener(signers={"ci.pub": key}) as sources:
            epochs.append((await sources.open(shelf.url, signers="signers")).epoch)
            assert (await sources.open(shelf.url)).epoch == ""
    assert epochs[0].startswith("sha256:")
    assert epochs[0] != epochs[1]
