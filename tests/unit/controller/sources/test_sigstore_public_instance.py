"""A signature that the public instance of Sigstore vouches for: of release 0.1.2 of rfc8785, by its workflow,
as published in sigstore-python's test/assets/bundle_v3_github.whl.sigstore.
"""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any, Final

import pytest

from controller.sources.backend import NotBelievedError
from controller.sources.cosign import SignerIdentity, verify_keyless
from controller.sources.oci_backend import public_root

WORKFLOW: Final = SignerIdentity(
    "^https://token\\.actions\\.githubusercontent\\.com$",
    "^https://github\\.com/trailofbits/rfc8785\\.py/\\.github/workflows/release\\.yml@refs/tags/v0\\.1\\.2$",
)
PUBLISHED: Final = json.loads(Path(__file__).with_name("sigstore_published.json").read_text(encoding="utf-8"))


def bundle(**changed: Any) -> bytes:
    given = {**PUBLISHED, **changed}
    pem = ssl.DER_cert_to_PEM_cert(base64.b64decode(given["certificate"])).encode()
    body = {
        "apiVersion": "0.0.1",
        "kind": "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": "sha256", "value": base64.b64decode(given["digest"]).hex()}},
            "signature": {
                "content": given["signature"],
                "publicKey": {"content": base64.b64encode(pem).decode()},
            },
        },
    }
    entry = {
        "logIndex": given["index"],
        "logId": {"keyId": given["log"]},
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
        "integratedTime": given["time"],
        "inclusionPromise": {"signedEntryTimestamp": given["promise"]},
        "inclusionProof": given["proof"],
        "canonicalizedBody": base64.b64encode(json.dumps(body, separators=(",", ":")).encode()).decode(),
    }
    made = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"certificate": {"rawBytes": given["certificate"]}, "tlogEntries": [entry]},
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA2_256", "digest": given["digest"]},
            "signature": given["signature"],
        },
    }
    return json.dumps(made).encode()


def refusal_of(made: bytes, identity: SignerIdentity = WORKFLOW) -> str:
    with pytest.raises(NotBelievedError) as raised:
        verify_keyless(made, f"sha256:{'0' * 64}", public_root(), [identity])
    return str(raised.value)


def test_its_certificate_and_its_entry_are_trusted_by_the_copy_of_the_public_root() -> None:
    # It is of a file and of no artifact, which is seen last.
    assert "without a DSSE envelope" in refusal_of(bundle())


def test_its_signer_is_the_one_in_its_certificate() -> None:
    message = refusal_of(bundle(), SignerIdentity(WORKFLOW.issuer, "rfc8785[.]py/.*@refs/tags/v0[.]1[.]3$"))
    workflow = "https://github.com/trailofbits/rfc8785.py/.github/workflows/release.yml@refs/tags/v0.1.2"
    assert f"for {workflow} (keyless https://token.actions.githubusercontent.com)" in message


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"time": "1710889000"}, "not valid at validation time"),
        ({"time": "1710888077"}, "invalid log entry: SET"),
        ({"digest": base64.b64encode(b"x" * 32).decode()}, "invalid log entry"),
        (
            {"proof": {**PUBLISHED["proof"], "hashes": PUBLISHED["proof"]["hashes"][::-1]}},
            "invalid log entry",
        ),
    ],
)
def test_what_is_changed_of_it_is_noticed(changed: dict[str, Any], why: str) -> None:
    assert why in refusal_of(bundle(**changed))
