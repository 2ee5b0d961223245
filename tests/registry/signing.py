"""Signatures as `cosign sign --key` attaches them, byte for byte: cosign 2's, and cosign 3's bundles."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tests.registry.artifacts import INDEX, MANIFEST, Artifact, sha256

if TYPE_CHECKING:
    from pathlib import Path

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIGN = "https://sigstore.dev/cosign/sign/v1"


class Key:
    """A key pair: `ecdsa` as `cosign generate-key-pair` makes it, or `rsa`, `ed25519` as may be imported."""

    def __init__(self, kind: str = "ecdsa", pem: bytes = b"") -> None:
        """`pem`: the private key, in place of a new one."""
        self.private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
        if pem:
            self.private = cast("ec.EllipticCurvePrivateKey", load_pem_private_key(pem, None))
        elif kind == "rsa":
            self.private = rsa.generate_private_key(65537, 2048)
        elif kind == "ed25519":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> bytes:
        shape = PublicFormat.SubjectPublicKeyInfo
        return self.private.public_key().public_bytes(Encoding.PEM, shape)

    def sign(self, message: bytes) -> str:
        if isinstance(self.private, ec.EllipticCurvePrivateKey):
            made = self.private.sign(message, ec.ECDSA(hashes.SHA256()))
        elif isinstance(self.private, rsa.RSAPrivateKey):
            made = self.private.sign(message, padding.PKCS1v15(), hashes.SHA256())
        else:
            made = self.private.sign(message)
        return base64.b64encode(made).decode()


def sign_folder(folder: Path, key: Key, signed_at: str) -> None:
    """Write manifest and signature of a folder that is put into a bucket, as sha256sum and cosign do."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    names = {name: path.read_bytes() for name, path in files.items() if "flagstaff.manifest" not in name}
    lines = [f"{sha256(content).removeprefix('sha256:')}  ./{name}\n" for name, content in names.items()]
    manifest = "".join([f"# flagstaff.dev/manifest/v1 {signed_at}\n", *lines]).encode()
    (folder / "flagstaff.manifest").write_bytes(manifest)
    (folder / "flagstaff.manifest.sig").write_text(key.sign(manifest))


def signature_tag(digest: str) -> str:
    return digest.replace(":", "-") + ".sig"


def simple(digest: str, *keys: Key, content: bytes | None = None) -> Artifact:
    """What cosign 2 pushes to `signature_tag`; `content` in place of the payload that was signed."""
    payload = (
        b'{"critical":{"identity":{"docker-reference":"registry.example/team/flags"},"image":'
        b'{"docker-manifest-digest":"%s"},"type":"cosign container image signature"},"optional":null}'
        % digest.encode()
    )
    stored = payload if content is None else content
    layers = [
        {
            "mediaType": PAYLOAD,
            "size": len(stored),
            "digest": sha256(stored),
            "annotations": {"dev.cosignproject.cosign/signature": key.sign(payload)},
        }
        for key in keys
    ]
    return _artifact("application/vnd.oci.image.config.v1+json", b"{}", layers, stored)


def bundle(digest: str, key: Key, predicate: str = SIGN, subject: Artifact | None = None) -> Artifact:
    """What cosign 3 pushes, as a referrer."""
    statement = json.dumps({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": predicate,
        "predicate": {},
    }).encode()  # fmt: skip
    kind = b"application/vnd.in-toto+json"
    signed = b" ".join((b"DSSEv1", b"%d" % len(kind), kind, b"%d" % len(statement), statement))
    return bundle_of(
        {
            "payload": base64.b64encode(statement).decode(),
            "payloadType": kind.decode(),
            "signatures": [{"sig": key.sign(signed)}],
        },
        subject,
    )


def bundle_of(envelope: dict[str, Any], subject: Artifact | None = None) -> Artifact:
    """A bundle with this DSSE envelope."""
    material = {"publicKey": {"hint": "x"}}
    whole = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}
    return attachment_of(json.dumps(whole).encode(), subject)


def attachment_of(content: bytes, subject: Artifact | None = None) -> Artifact:
    """What cosign 3 pushes with this bundle; a registry may list what refers to `subject`."""
    layer = {"mediaType": BUNDLE, "size": len(content), "digest": sha256(content)}
    more: dict[str, Any] = {"artifactType": BUNDLE}
    if subject is not None:
        more["subject"] = {"mediaType": MANIFEST, "digest": subject.digest, "size": len(subject.manifest)}
    return _artifact("application/vnd.oci.empty.v1+json", b"{}", [layer], content, **more)


def referrers(*artifacts: Artifact) -> bytes:
    """The list of them, as the referrers API answers and its fallback tag holds it."""
    listed = [
        {"mediaType": MANIFEST, "digest": each.digest, "size": len(each.manifest), "artifactType": BUNDLE}
        for each in artifacts
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()


def _artifact(kind: str, config: bytes, layers: list[dict[str, Any]], *blobs: bytes, **more: Any) -> Artifact:
    described = {"mediaType": kind, "size": len(config), "digest": sha256(config)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, **more, "config": described, "layers": layers}
    return Artifact(json.dumps(manifest).encode(), (config, *blobs))
