"""A signature that cosign itself made with a key, published in sigstore-rs' tests of `verify_signature`."""

from __future__ import annotations

from typing import Final

import pytest

from controller.runtime.limits import Places
from controller.runtime.secret_texts import SecretTexts
from controller.sources.backend import NotBelievedError
from controller.sources.cosign import payload_of, verify_content
from controller.sources.cosign_keys import read_cosign_keys
from controller.sources.oci_signatures import KeyJudge
from tests.registry.signing import Key

KEY: Final = b"""-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAENptdY/l3nB0yqkXLBWkZWQwo6+cu
OSWS1X9vPavpiQOoTTGC0xX57OojUadxF1cdQmrsiReWg2Wn4FneJfa8xw==
-----END PUBLIC KEY-----
"""
DIGEST: Final = "sha256:f3cfc9d0dbf931d3db4685ec659b7ac68e2a578219da4aae65427886e649b06b"
PAYLOAD: Final = (
    b'{"critical":{"identity":{"docker-reference":"registry-testing.svc.lan/busybox"},"image":'
    b'{"docker-manifest-digest":"%s"},"type":"cosign container image signature"},"optional":null}'
    % DIGEST.encode()
)
SIGNATURE: Final = (
    "MEUCIQD6q/COgzOyW0YH1Dk+CCYSt4uAhm3FDHUwvPI55zwnlwIgE0ZK58ZOWpZw8YVmBapJhBqCfdPekIknimuO0xH8Jh8="
)


def judge(key: bytes) -> KeyJudge:
    keys = read_cosign_keys(SecretTexts("shop/signers", {"ci.pub": key}))
    return KeyJudge(keys, "add the key", Places(1, 1), "shop")


async def test_a_published_signature_is_believed() -> None:
    signer = await judge(KEY).of_payload(PAYLOAD, SIGNATURE, DIGEST)
    assert signer.name == "ci"


async def test_a_published_signature_of_something_else_or_by_another_key_is_not() -> None:
    other = f"sha256:{'0' * 64}"
    changed = PAYLOAD.replace(DIGEST.encode(), other.encode())
    for key, payload, digest in (
        (KEY, PAYLOAD, other),
        (KEY, changed, other),
        (Key().public, PAYLOAD, DIGEST),
    ):
        with pytest.raises(NotBelievedError):
            await judge(key).of_payload(payload, SIGNATURE, digest)


def test_what_is_signed_has_the_published_bytes() -> None:
    assert payload_of(DIGEST, "registry-testing.svc.lan/busybox") == PAYLOAD


BLOB_KEY: Final = b"""-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEGotrd6MmrLsyJpwTdcoQ2/ReRhoT
wjxNECCISxVl2OQfrgUtV29rBUFmGNwSiuJarOx2NOJzqzg4Heo9Y5fxSA==
-----END PUBLIC KEY-----
"""
BLOB: Final = b"""# flagstaff.dev/manifest/v1 2026-11-27T15:39:42.000Z
ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356  ./flags.json
"""
BLOB_BUNDLE: Final = (
    '{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":'
    '{"hint":"LARL/g4yK8lGrtabwiWUJU/RLgeIPrWV3iKDGS2F/j4="}},"messageSignature":{"messageDigest":'
    '{"algorithm":"SHA2_256","digest":"fHBnyZp+LWNjJ4pyiSt5EuKhd0tKfzf3uOr2o0UqUuQ="},"signature":'
    '"MEUCIQDgVU/Ku2m4RCqNA5EE4jYHRi2QAvWNGVn04UwmTYHFrQIgV/gvGoH/eNW0iC3orKxWK9+/Qm6VW80ZihuiwlRPqEs="}}'
)


def test_a_bundle_that_cosign_3_made_of_a_bucket_s_manifest_is_believed() -> None:
    keys = read_cosign_keys(SecretTexts("shop/signers", {"ci.pub": BLOB_KEY}))
    assert verify_content(BLOB, BLOB_BUNDLE, keys).name == "ci"
    with pytest.raises(NotBelievedError):
        verify_content(BLOB.replace(b"ca3d", b"ca3e"), BLOB_BUNDLE, keys)
