"""A transparency log as Rekor is one: what it records has a place in a tree, whose root it signs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tests.sigstore.authority import shape

_ORIGIN = "rekor.example"


class Log:
    """Records envelopes, each beside one entry of somebody else."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._key = self.key

    def forge(self) -> None:
        """Have another key sign what is recorded: the log that is trusted does not have it."""
        self._key = ec.generate_private_key(ec.SECP256R1())

    def record(self, proposed: dict[str, Any]) -> dict[str, Any]:
        """The answer of Rekor 1 to a proposed entry of kind `dsse`."""
        body = _canonical(_entry(proposed))
        name = self._name
        leaf, other, root, checkpoint = self._place(body, f"{_ORIGIN} - 1")
        entry = {
            "body": _text(body),
            "integratedTime": int(time.time()),  # noqa: TID251 - verifiers compare it with a certificate's
            "logID": name.hex(),
            "logIndex": 1,
        }
        proof = {
            "checkpoint": checkpoint, "hashes": [other.hex()], "logIndex": 1, "rootHash": root.hex(),
            "treeSize": 2,
        }  # fmt: skip
        promise = _text(self._sign(_canonical(entry)))
        return {
            leaf.hex(): {**entry, "verification": {"inclusionProof": proof, "signedEntryTimestamp": promise}}
        }

    def record_newer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer of Rekor 2 to a request of kind `hashedrekord`."""
        given = asked["hashedRekordRequestV002"]
        data = {"algorithm": "SHA2_256", "digest": given["digest"]}
        spec = {"hashedRekordV002": {"data": data, "signature": given["signature"]}}
        body = _canonical({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": spec})
        _, other, root, checkpoint = self._place(body, _ORIGIN)
        proof = {
            "checkpoint": {"envelope": checkpoint}, "hashes": [_text(other)], "logIndex": "1",
            "rootHash": _text(root), "treeSize": "2",
        }  # fmt: skip
        return {
            "canonicalizedBody": _text(body),
            "inclusionProof": proof,
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
            "logId": {"keyId": _text(self._name)},
            "logIndex": "1",
        }

    @property
    def _name(self) -> bytes:
        return hashlib.sha256(shape(self.key.public_key())).digest()

    def _place(self, body: bytes, origin: str) -> tuple[bytes, bytes, bytes, str]:
        """Hashes of the entry, of the one beside it and of the tree, and what the log signs of that."""
        leaf, other = hashlib.sha256(b"\0" + body).digest(), os.urandom(32)
        root = hashlib.sha256(b"\1" + other + leaf).digest()
        note = f"{origin}\n2\n{_text(root)}\n"
        signature = _text(self._name[:4] + self._sign(note.encode()))
        return leaf, other, root, f"{note}\n\N{EM DASH} {_ORIGIN} {signature}\n"

    def _sign(self, content: bytes) -> bytes:
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))


def _entry(proposed: dict[str, Any]) -> dict[str, Any]:
    """What is recorded of an envelope: hashes of it and of what it holds, and who signed it."""
    content = proposed["spec"]["proposedContent"]
    envelope = json.loads(content["envelope"])
    spec = {
        "envelopeHash": _hash(content["envelope"].encode()),
        "payloadHash": _hash(base64.b64decode(envelope["payload"])),
        "signatures": [
            {"signature": each["sig"], "verifier": verifier}
            for each, verifier in zip(envelope["signatures"], content["verifiers"], strict=True)
        ],
    }
    return {"apiVersion": proposed["apiVersion"], "kind": proposed["kind"], "spec": spec}


def _hash(content: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}


def _canonical(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
