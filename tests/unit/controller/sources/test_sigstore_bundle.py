"""Bundles that Sigstore's own client made with an instance of one's own, and what was made of them."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from controller.sources.backend import NotBelievedError, Signer
from controller.sources.cosign import InvalidRootError, SignerIdentity, verify_keyless
from tests.registry.signing import Key, bundle
from tests.sigstore.instance import ISSUER, SUBJECT, Instance, instance

DIGEST = f"sha256:{'1' * 64}"
OLDER = f"sha256:{'0' * 64}"
TRUSTED = SignerIdentity("^https://login\\.example$", "^https://git\\.example/shop/flags/")


def judge(made: bytes, root: bytes, *identities: SignerIdentity) -> Signer:
    return verify_keyless(made, DIGEST, root.decode(), identities or (TRUSTED,))


def refusal_of(made: bytes, root: bytes, *identities: SignerIdentity) -> str:
    with pytest.raises(NotBelievedError) as raised:
        judge(made, root, *identities)
    return str(raised.value)


def test_a_signature_of_a_trusted_identity_is_accepted(sigstore: Instance) -> None:
    # Sigstore's client believes it too, so it is no signature that we alone believe.
    made = sigstore.sign(DIGEST, verified=True)
    assert str(judge(made, sigstore.root)) == f"{SUBJECT} (keyless {ISSUER})"


def test_a_signature_in_the_newer_log_with_a_timestamp_is_believed(sigstore: Instance) -> None:
    made = sigstore.sign(DIGEST, newer=True, verified=True)
    assert str(judge(made, sigstore.root)) == f"{SUBJECT} (keyless {ISSUER})"
    with instance() as other:
        changed = {
            **json.loads(sigstore.root),
            "timestampAuthorities": json.loads(other.root)["timestampAuthorities"],
        }
    assert "does not prove who signed" in refusal_of(made, json.dumps(changed).encode())
    sigstore.authority.age = timedelta(hours=1)
    assert "not valid at validation time" in refusal_of(sigstore.sign(DIGEST, newer=True), sigstore.root)


def test_certificates_of_people_and_of_older_authorities_are_read(sigstore: Instance) -> None:
    sigstore.old = True
    made = sigstore.sign(DIGEST, subject="ada@shop.example")
    people = SignerIdentity(TRUSTED.issuer, "@shop[.]example$")
    assert str(judge(made, sigstore.root, TRUSTED, people)) == f"ada@shop.example (keyless {ISSUER})"


def test_an_expression_finds_something_anywhere_as_with_flux(sigstore: Instance) -> None:
    judge(sigstore.sign(DIGEST), sigstore.root, SignerIdentity("login", "flags/.github"))


@pytest.mark.parametrize(
    ("issuer", "subject"),
    [
        ("https://login.example.evil.example", SUBJECT),
        (ISSUER, "https://git.example/shop/other/.github/workflows/publish.yaml@refs/heads/main"),
        (ISSUER, "https://evil.example/https://git.example/shop/flags/"),
        (ISSUER, "ada@shop.example"),
    ],
)
def test_another_issuer_or_subject_is_refused_by_name(sigstore: Instance, issuer: str, subject: str) -> None:
    message = refusal_of(sigstore.sign(DIGEST, issuer=issuer, subject=subject), sigstore.root)
    assert f"for {subject} (keyless {issuer})" in message


def test_an_issuer_and_a_subject_of_two_identities_are_none(sigstore: Instance) -> None:
    two = SignerIdentity(TRUSTED.issuer, "^ada@"), SignerIdentity("^https://other", TRUSTED.subject)
    assert f"for {SUBJECT}" in refusal_of(sigstore.sign(DIGEST), sigstore.root, *two)


@pytest.mark.parametrize("age", [timedelta(hours=1), -timedelta(hours=1)])
def test_a_certificate_that_did_not_count_when_the_log_had_its_entry_is_refused(
    sigstore: Instance, age: timedelta
) -> None:
    sigstore.authority.age = age
    assert "not valid at validation time" in refusal_of(sigstore.sign(DIGEST), sigstore.root)


@pytest.mark.parametrize("newer", [False, True])
def test_what_the_log_does_not_have_is_refused(sigstore: Instance, *, newer: bool) -> None:
    sigstore.log.forge()
    assert "invalid log entry" in refusal_of(sigstore.sign(DIGEST, newer=newer), sigstore.root)


def test_a_certificate_that_no_log_has_is_refused(sigstore: Instance) -> None:
    sigstore.authority.forge_log()
    assert "failed to verify SCT" in refusal_of(sigstore.sign(DIGEST), sigstore.root)


def test_a_bundle_without_its_entry_or_with_that_of_another_is_refused(sigstore: Instance) -> None:
    made, other = (json.loads(sigstore.sign(DIGEST)) for _ in range(2))
    entries = made["verificationMaterial"]["tlogEntries"]
    changed: list[list[Any]] = [[], other["verificationMaterial"]["tlogEntries"], entries * 2]
    for instead in changed:
        made["verificationMaterial"]["tlogEntries"] = instead
        assert "does not prove who signed" in refusal_of(json.dumps(made).encode(), sigstore.root)


@pytest.mark.parametrize("lost", ["inclusionPromise", "inclusionProof"])
def test_an_entry_without_its_promise_or_proof_is_refused(sigstore: Instance, lost: str) -> None:
    made = json.loads(sigstore.sign(DIGEST))
    del made["verificationMaterial"]["tlogEntries"][0][lost]
    assert "does not prove who signed" in refusal_of(json.dumps(made).encode(), sigstore.root)


def test_what_another_instance_vouches_for_is_refused(sigstore: Instance) -> None:
    with instance() as other:
        assert "is not from the trusted root" in refusal_of(sigstore.sign(DIGEST), other.root)


def test_a_payload_that_was_changed_is_refused(sigstore: Instance) -> None:
    made = json.loads(sigstore.sign(OLDER))
    payload = base64.b64decode(made["dsseEnvelope"]["payload"])
    forged = payload.replace(OLDER[7:].encode(), DIGEST[7:].encode())
    assert forged != payload
    made["dsseEnvelope"]["payload"] = base64.b64encode(forged).decode()
    assert "does not prove who signed" in refusal_of(json.dumps(made).encode(), sigstore.root)


@pytest.mark.parametrize(
    ("digest", "predicate"),
    [(OLDER, "https://sigstore.dev/cosign/sign/v1"), (DIGEST, "https://slsa.dev/provenance/v1")],
)
def test_a_good_signature_of_something_else_is_refused(
    sigstore: Instance, digest: str, predicate: str
) -> None:
    message = refusal_of(sigstore.sign(digest, predicate=predicate), sigstore.root)
    assert message == "its signature is of another artifact, or says something else of it"


@pytest.mark.parametrize(
    "made", [b"", b"{", b"[1]", b"{}", b"[" * 100_000, b"\xff", bundle(DIGEST, Key()).blobs[1]]
)
def test_what_is_no_keyless_bundle_is_refused_in_one_line(sigstore: Instance, made: bytes) -> None:
    message = refusal_of(made, sigstore.root)
    assert "does not prove who signed" in message
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize("lost", ["tlogs", "ctlogs", "certificateAuthorities", "mediaType"])
def test_an_incomplete_root_is_distinguished_from_a_bad_signature(sigstore: Instance, lost: str) -> None:
    made, root = sigstore.sign(DIGEST), json.loads(sigstore.root)
    for instead in ({**root, lost: []}, {name: each for name, each in root.items() if name != lost}):
        with pytest.raises(InvalidRootError):
            judge(made, json.dumps(instead).encode())


@pytest.mark.parametrize("root", [b"hunter2", b'{"password": "hunter2"}', b'["hunter2"]'])
def test_no_value_of_a_secret_is_shown(sigstore: Instance, root: bytes) -> None:
    with pytest.raises(InvalidRootError) as raised:
        judge(sigstore.sign(DIGEST), root)
    assert "hunter2" not in str(raised.value)
