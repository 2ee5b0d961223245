"""Signatures as cosign makes them, with keys or without. Pure.

They are of any content, or of a manifest's digest: cosign 2's payloads (simple signing) and cosign 3's
bundles (an in-toto statement in a DSSE envelope). Registries and buckets are read by this module; only
those who verify or sign load `cosign_keys`.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing import compile_pattern
from controller.runtime.plain_text import json_object
from controller.sources.backend import NotBelievedError, Signer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.sources.cosign_keys import CosignKey


PAYLOAD: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIGNATURE: Final = "dev.cosignproject.cosign/signature"
"""The annotation of a payload's layer that holds the signature of it."""
_TYPE: Final = "cosign container image signature"
_PREDICATE: Final = "https://sigstore.dev/cosign/sign/v1"
_STATEMENT: Final = "application/vnd.in-toto+json"


def payload_of(digest: str, reference: str) -> bytes:
    """What cosign 2 signs of the manifest `digest` at `reference`, byte for byte."""
    critical = {
        "identity": {"docker-reference": reference},
        "image": {"docker-manifest-digest": digest},
        "type": _TYPE,
    }
    return json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()


def verify_content(content: bytes, signature: str, keys: Sequence[CosignKey]) -> Signer:
    """Return who signed `content`, by a signature in Base64, or in the bundle that `cosign sign-blob` writes.
    Raises NotBelievedError.
    """
    from evaluator.host.signatures import detached_signature  # noqa: PLC0415 - for signatures alone

    try:
        return _signer(content, detached_signature(signature), keys)
    except ValueError as error:
        raise NotBelievedError(str(error)) from None


def verify_payload(payload: bytes, signature: str, digest: str, keys: Sequence[CosignKey]) -> Signer:
    """Return who signed that `payload` names the manifest `digest`. Raises NotBelievedError."""
    signer = _signer(payload, _decode(signature), keys)
    critical = _field(_parse(payload), "critical")
    image = _field(critical, "image")
    if image.get("docker-manifest-digest") != digest or critical.get("type") != _TYPE:
        raise NotBelievedError("its signature is of another artifact")
    return signer


def verify_bundle(bundle: bytes, digest: str, keys: Sequence[CosignKey]) -> Signer:
    """Return who signed a Sigstore bundle's statement of the manifest `digest`. Raises NotBelievedError."""
    envelope = _field(_parse(bundle), "dsseEnvelope")
    kind, payload = str(envelope.get("payloadType")), _decode(envelope.get("payload"))
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise NotBelievedError("its bundle does not hold one signature")
    signer = _signer(signed_content(kind, payload), _decode(signatures[0].get("sig")), keys)
    require_statement(kind, payload, digest)
    return signer


def require_statement(kind: str, payload: bytes, digest: str) -> None:
    """Raise NotBelievedError where what was signed is not that the manifest `digest` is."""
    statement = _parse(payload)
    subjects = statement.get("subject")
    named = [
        f"sha256:{subject['digest'].get('sha256')}"
        for subject in (subjects if isinstance(subjects, list) else [])
        if isinstance(subject, dict) and isinstance(subject.get("digest"), dict)
    ]
    if kind != _STATEMENT or statement.get("predicateType") != _PREDICATE or digest not in named:
        raise NotBelievedError("its signature is of another artifact, or says something else of it")


def signed_content(kind: str, payload: bytes) -> bytes:
    """What a DSSE envelope's signature covers (github.com/secure-systems-lab/dsse, protocol.md)."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _signer(message: bytes, signature: bytes, keys: Sequence[CosignKey]) -> Signer:
    for key in keys:
        if key.has_signed(message, signature):
            return key.signer
    raise NotBelievedError("its signature is by none of the trusted keys, or was changed")


def _decode(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        raise NotBelievedError("its signature is damaged: it is not Base64") from None


def _parse(content: bytes) -> dict[str, Any]:
    document = json_object(content)
    if document is None:
        raise NotBelievedError("its signature is damaged: it is not a JSON object")
    return document


def _field(holder: dict[str, Any], name: str) -> dict[str, Any]:
    member = holder.get(name)
    if not isinstance(member, dict):
        raise NotBelievedError(f"its signature is damaged: it has no {name!r}")
    return member


MODULE: Final = "controller.sources.sigstore_bundle"
"""What a helper loads at its start: Sigstore's library, which is slow to import."""


@dataclass(frozen=True, slots=True)
class SignerIdentity:
    """An accepted signer: expressions that match anywhere in a text, unless they have ^ and $."""

    issuer: str
    subject: str

    def covers(self, issuer: str, subject: str) -> bool:
        """Whether a certificate for `subject`, who logged in with `issuer`, is of this identity."""
        match = compile_pattern(self.issuer).search(issuer) and compile_pattern(self.subject).search(subject)
        return match is not None

    def __str__(self) -> str:
        return f"{self.issuer} {self.subject}"


def verify_keyless(bundle: bytes, digest: str, root: str, identities: Sequence[SignerIdentity]) -> Signer:
    """Return who of `identities` signed the manifest `digest`. Raises NotBelievedError, InvalidRootError."""
    signer: Signer = import_module(MODULE).verify(bundle, digest, root, identities)
    return signer


class InvalidRootError(ValueError):
    """A trusted_root.json that cannot be read, or lacks something; the text says what."""
