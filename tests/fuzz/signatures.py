"""What strangers sign, and what they attach: nobody is believed whose key is not trusted, and whatever is
damaged is said to be.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Stalled
from controller.sources.backend import NotBelievedError
from controller.sources.bucket_listing import read_manifest
from controller.sources.commit_verification import UnreadableObjectError, read_commit, read_tag
from controller.sources.cosign import (
    InvalidRootError,
    SignerIdentity,
    verify_bundle,
    verify_content,
    verify_keyless,
    verify_payload,
)
from controller.sources.cosign_keys import read_cosign_keys
from controller.sources.oci_backend import public_root
from controller.sources.signing_keys import Keys, read_keys, verify
from tests.fuzz.target import Target, Wrong, same

if TYPE_CHECKING:
    from collections.abc import Callable

AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
_SSH: Final = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti"
TRUSTED: Final = read_keys(SecretTexts("shop/keys", {"ada.sshpub": _SSH}))
_POINT: Final = (
    b"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8"
    b"D54WK84zV2sxXs7LtkBoN79R9Q=="
)
_PEM: Final = b"-----BEGIN PUBLIC KEY-----\n" + _POINT + b"\n-----END PUBLIC KEY-----\n"
COSIGN: Final = read_cosign_keys(SecretTexts("shop/keys", {"ci.pub": _PEM}))
WORDS: Final = (
    "tree 0000000000000000000000000000000000000000\n", "gpgsig ", "gpgsig-sha256 ", "author A <a> 1 +0000\n",
    "committer A <a> 99999999999 +0000\n", "object 0000000000000000000000000000000000000000\n",
    "type commit\n", "tag v1\n", "tagger A <a> 1 +0000\n", "\n\n", "\n ", "-----BEGIN SSH SIGNATURE-----\n",
    "-----END SSH SIGNATURE-----\n", "-----BEGIN PGP SIGNATURE-----\n",
    base64.b64encode(b"SSHSIG\0\0\0\1").decode(),
)  # fmt: skip
KEY_WORDS: Final = (
    _SSH, "* ", "ssh-rsa ", 'namespaces="git"', 'valid-before="20260101Z"', "valid-after=", "cert-authority",
    ",", "#", '"', "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----",
)  # fmt: skip
BUNDLE_WORDS: Final = (
    '{"dsseEnvelope":{"payload":"', '","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"',
    '"}]}}', '{"critical":{"image":', '"docker-manifest-digest"', "[[[[",
)  # fmt: skip
KEYLESS_WORDS: Final = (
    '{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{"rawBytes":"',
    '"tlogEntries":[', '"inclusionProof":{', '"inclusionPromise":{"signedEntryTimestamp":"',
    '"canonicalizedBody":"', '"dsseEnvelope":{', '"timestampVerificationData":{"rfc3161Timestamps":[', "[[[[",
    '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","tlogs":[', '"ctlogs":[',
    '"certificateAuthorities":[',
)  # fmt: skip
MANIFEST_WORDS: Final = (
    '{"type":"flagstaff.dev/manifest/v1","signedAt":"2026-01-02T03:04:05.678Z","files":{"', '":"sha256:',
    "0" * 64, '"}}', "[[[[", "\\ud800",
)  # fmt: skip


def signed_object(content: bytes) -> None:
    """A commit, or a tag: its signature is no part of what it covers, and none is by a trusted key."""
    for read in (read_commit, read_tag):
        try:
            found = read(content)
        except UnreadableObjectError:
            continue
        same(read(content), found, "read again")
        if len(found.content) + len(found.signature) > len(content) + 1:
            raise Wrong(f"more than there was: {found!r}")
        _require_refusal(lambda found=found: verify(found.content, found.signature, TRUSTED, found.written))  # type: ignore[misc]


def signature(content: bytes) -> None:
    """A signature in its armor."""
    _require_refusal(lambda: verify(b"content", content, TRUSTED, AT))


def trusted_keys(content: bytes) -> None:
    """A Secret's key: read, or refused by its name, without what it holds."""
    for name in ("a.sshpub", "allowed_signers", "a.asc"):
        try:
            found = read_keys(SecretTexts("shop/keys", {name: content}))
        except Stalled as stalled:
            if "shop/keys" not in stalled.message:
                raise Wrong(f"no place: {stalled.message}") from stalled
        else:
            if found == Keys():
                raise Wrong("no key, though some were read")


def attachment(content: bytes) -> None:
    """What is attached to an artifact: a payload and, in its last line, its signature; or a bundle."""
    payload, _, made = content.rpartition(b"\n")
    digest = f"sha256:{'0' * 64}"
    _require_refusal(lambda: verify_payload(payload, made.decode("latin-1"), digest, COSIGN))
    _require_refusal(lambda: verify_bundle(content, digest, COSIGN))


def keyless(content: bytes) -> None:
    """What is attached without a key: nobody is believed, by the public root or what stands in its place."""
    digest, anybody = f"sha256:{'0' * 64}", (SignerIdentity(".", "."),)
    _require_refusal(lambda: verify_keyless(content, digest, public_root(), anybody))
    try:
        _require_refusal(lambda: verify_keyless(content, digest, content.decode("latin-1"), anybody))
    except InvalidRootError as error:
        if not str(error):
            raise Wrong("refused without a word") from error


def manifest(content: bytes) -> None:
    """A bucket's manifest: it bears no key's signature, and says the same in JSON."""
    _require_refusal(lambda: verify_content(content, content.decode("latin-1"), COSIGN))
    try:
        found = read_manifest(content)
    except NotBelievedError:
        return
    files = {name: f"sha256:{digest}" for name, digest in found.files.items()}
    written = {"type": "flagstaff.dev/manifest/v1", "signedAt": found.signed_at, "files": files}
    same(read_manifest(json.dumps(written).encode()), found, "written in JSON and read")


def _require_refusal(judged: Callable[[], object]) -> None:
    try:
        found = judged()
    except NotBelievedError as error:
        if not str(error):
            raise Wrong("refused without a word") from error
        return
    raise Wrong(f"believed: {found}")


TARGETS = {
    "signed_object": Target(signed_object, WORDS),
    "signature": Target(signature, WORDS),
    "trusted_keys": Target(trusted_keys, KEY_WORDS),
    "attachment": Target(attachment, BUNDLE_WORDS),
    "keyless": Target(keyless, KEYLESS_WORDS, longest=16_384),
    "manifest": Target(manifest, MANIFEST_WORDS),
}
