"""Artifacts that Sigstore's own client signed without a key, in a real registry, by our own instance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import VERIFIED_BY
from controller.runtime.helpers import Helpers, LimitExceededError
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.backend import Fetched, Unverified
from tests.registry.artifacts import Artifact, flux
from tests.registry.signing import Key, attachment_of, bundle, referrers, signature_tag, simple
from tests.sigstore.instance import ISSUER, SUBJECT, Instance
from tests.worlds.sources import opener

if TYPE_CHECKING:
    from pathlib import Path

    from tests.registry.fixtures import Shelf

TRUSTED = {"issuer": "^https://login\\.example$", "subject": "^https://git\\.example/shop/flags/"}


@pytest.fixture
def digest(shelf: Shelf) -> str:
    return shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": "{}"}))


def keyless(*identities: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "matchOIDCIdentity": list(identities or (TRUSTED,)),
        "trustedRootSecretRef": {"name": "root"},
        **more,
    }


def attach(shelf: Shelf, digest: str, *signed: bytes | Artifact) -> None:
    """As cosign does where a registry keeps no list of referrers."""
    made = [attachment_of(each) if isinstance(each, bytes) else each for each in signed]
    for number, each in enumerate(made):
        shelf.pusher.push(shelf.repository, f"bundle-{number}", each)
    shelf.pusher.push_index(shelf.repository, digest.replace(":", "-"), referrers(*made))


async def pull(shelf: Shelf, into: Path, root: bytes, *identities: dict[str, str]) -> Fetched:
    async with opener(root={"trusted_root.json": root}) as sources:
        source = await sources.open(shelf.url, verify=keyless(*identities))
        return await source.fetch(await source.resolve(), into)


async def refusal_of(shelf: Shelf, into: Path, root: bytes, *identities: dict[str, str]) -> Setback:
    with pytest.raises(Unverified) as raised:
        await pull(shelf, into, root, *identities)
    assert not (into / "flags.json").exists()
    assert raised.value.reason == "InvalidArtifactSignature"
    return raised.value


async def test_an_artifact_signed_by_a_trusted_identity_is_fetched_and_the_identity_is_named(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    # Sigstore's client believes it too, so it is no signature that we alone believe.
    attach(shelf, digest, sigstore.sign(digest, verified=True))
    found = await pull(shelf, tmp_path, sigstore.root)
    assert (tmp_path / "flags.json").is_file()
    assert found.metadata[VERIFIED_BY] == f"{SUBJECT} (keyless {ISSUER})"
    assert f"signed by {SUBJECT}" in found.summary


async def test_another_signer_is_refused_and_the_message_says_how_to_trust_it(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    attach(shelf, digest, sigstore.sign(digest, subject="eve@evil.example"))
    message = (await refusal_of(shelf, tmp_path, sigstore.root)).message
    assert f"@{digest}: its certificate is for eve@evil.example (keyless {ISSUER})" in message
    assert "cosign sign 127.0.0.1" in message
    assert f"spec.verify.matchOIDCIdentity (it has {TRUSTED['issuer']} {TRUSTED['subject']})" in message


async def test_without_a_root_that_of_the_public_instance_counts(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    attach(shelf, digest, sigstore.sign(digest))
    async with opener() as sources:
        source = await sources.open(shelf.url, verify={"matchOIDCIdentity": [TRUSTED]})
        with pytest.raises(Unverified, match="is not from the trusted root"):
            await source.fetch(await source.resolve(), tmp_path)


async def test_signatures_with_keys_do_not_prove_an_identity(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    assert "it is not signed" in (await refusal_of(shelf, tmp_path, sigstore.root)).message
    attach(shelf, digest, bundle(digest, Key()))
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, Key()))
    message = (await refusal_of(shelf, tmp_path, sigstore.root)).message
    assert "does not prove who signed" in message
    assert "has the form of cosign 2, which is read with keys alone" in message


async def test_a_good_signature_counts_beside_what_cannot_be_read(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    good = sigstore.sign(digest)
    half = json.dumps({**json.loads(good), "dsseEnvelope": {"payload": "\ud800"}}).encode()
    attach(shelf, digest, b"{", b"[" * 100_000, half, good)
    assert VERIFIED_BY in (await pull(shelf, tmp_path, sigstore.root)).metadata


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (".*", "matches everybody"),
        ("a*", "everybody"),
        ("(", "not an RE2 expression"),
        (r"\pL{200}a", "pattern too large"),
    ],
)
async def test_expressions_that_cannot_be_meant_are_refused(
    shelf: Shelf, expression: str, message: str
) -> None:
    async with opener(root={"trusted_root.json": b"{}"}) as sources:
        for field in ("issuer", "subject"):
            with pytest.raises(Stalled, match=message) as raised:
                await sources.open(shelf.url, verify=keyless({**TRUSTED, field: expression}))
            assert raised.value.reason == "InvalidIdentity"
            assert f"spec.verify.matchOIDCIdentity.0.{field}" in raised.value.message


async def test_a_root_that_cannot_be_used_is_refused(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance
) -> None:
    attach(shelf, digest, sigstore.sign(digest))
    with pytest.raises(Stalled, match=r"Secret shop/root: 'trusted_root.json' cannot be used") as raised:
        await pull(shelf, tmp_path, b"{}")
    assert raised.value.reason == "InvalidSecret"
    async with opener(root={"root.json": b"{}"}) as sources:
        with pytest.raises(Stalled, match=r"'trusted_root.json' is missing"):
            await sources.open(shelf.url, verify=keyless())


async def exceeds(*_: object) -> None:
    raise LimitExceededError("memory")


async def test_a_bundle_that_takes_too_much_leaves_open_whether_it_is_good(
    shelf: Shelf, tmp_path: Path, digest: str, sigstore: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(shelf, digest, sigstore.sign(digest))
    monkeypatch.setattr(Helpers, "run", exceeds)
    with pytest.raises(Failed, match="needs more memory than it may use"):
        await pull(shelf, tmp_path, sigstore.root)


async def test_other_identities_or_another_root_are_another_epoch(shelf: Shelf) -> None:
    epochs = set()
    async with opener(root={"trusted_root.json": b"1"}) as sources:
        for root in (b"1", b"2"):
            sources.secrets["root"] = {"trusted_root.json": root}
            for identity in (TRUSTED, {**TRUSTED, "subject": "@shop.example$"}):
                epochs.add((await sources.open(shelf.url, verify=keyless(identity))).epoch)
        epochs.add((await sources.open(shelf.url, verify={"matchOIDCIdentity": [TRUSTED]})).epoch)
    assert len(epochs) == 5
    assert all(each.startswith("sha256:") for each in epochs)
