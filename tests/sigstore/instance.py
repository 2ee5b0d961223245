"""An instance of Sigstore of one's own, with which Sigstore's client in Go signs: over HTTP on loopback, as
it does with the public one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_public_key

from tests.sigstore.authority import Authority, shape
from tests.sigstore.log import Log
from tests.sigstore.program import program
from tests.sigstore.timestamps import Timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography import x509

ISSUER: Final = "https://login.example"
SUBJECT: Final = "https://git.example/shop/flags/.github/workflows/publish.yaml@refs/heads/main"
_SIGNED: Final = "https://sigstore.dev/cosign/sign/v1"


class Instance(ThreadingHTTPServer):
    """An authority and a log."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.authority, self.log, self.timestamps = Authority(), Log(), Timestamps()
        self.old = False
        """Whether certificates name the issuer in the old form alone."""

    @property
    def root(self) -> bytes:
        """The trusted_root.json."""
        chain = [self.authority.intermediate, self.authority.root]
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [_log("https://rekor.example", self.log.key)],
                "certificateAuthorities": [_authority("https://fulcio.example", chain)],
                "ctlogs": [_log("https://ctlog.example", self.authority.log_key)],
                "timestampAuthorities": [_authority("https://time.example", self.timestamps.chain)],
            }
        ).encode()

    def sign(
        self,
        digest: str,
        *,
        issuer: str = ISSUER,
        subject: str = SUBJECT,
        predicate: str = _SIGNED,
        newer: bool = False,
        verified: bool = False,
    ) -> bytes:
        """The bundle of a signature that the manifest `digest` is. `newer`: with Rekor 2 and a timestamp.
        `verified`: by the client, too.
        """
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": predicate,
            "predicate": {},
        }
        asked = {
            "instance": f"http://127.0.0.1:{self.server_port}",
            "token": _token({"iss": issuer, "sub": subject}),
            "statement": json.dumps(statement),
            "newer": newer,
            "root": self.root.decode() if verified else "",
        }
        done = subprocess.run([program()], input=json.dumps(asked).encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@contextlib.contextmanager
def instance() -> Iterator[Instance]:
    """One that answers until the block ends."""
    with Instance() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


class _Exchange(BaseHTTPRequestHandler):
    server: Instance

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/timestamp"):
            self._answer(201, self.server.timestamps.answer(body))
        elif self.path.endswith("/signingCert"):
            self._answer_json(200, self._certify(json.loads(body)))
        elif self.path.startswith("/api/v2/"):
            self._answer_json(201, self.server.log.record_newer(json.loads(body)))
        else:
            self._answer_json(201, self.server.log.record(json.loads(body)))

    def _certify(self, asked: dict[str, Any]) -> dict[str, Any]:
        token = self.headers["Authorization"].removeprefix("Bearer ").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        key = load_pem_public_key(asked["publicKeyRequest"]["publicKey"]["content"].encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        authority = self.server.authority
        made = authority.certify(key, claims["iss"], claims["sub"], old=self.server.old)
        chain = [
            each.public_bytes(Encoding.PEM).decode()
            for each in (made, authority.intermediate, authority.root)
        ]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _answer_json(self, status: int, content: dict[str, Any]) -> None:
        # Rekor 1 names the entry there, too.
        self._answer(status, json.dumps(content).encode(), next(iter(content)))

    def _answer(self, status: int, body: bytes, entry: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", entry)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _authority(url: str, chain: list[x509.Certificate]) -> dict[str, Any]:
    contents = [base64.b64encode(each.public_bytes(Encoding.DER)).decode() for each in chain]
    return {
        "subject": {"organization": "example", "commonName": "root"},
        "uri": url,
        "certChain": {"certificates": [{"rawBytes": each} for each in contents]},
        "validFor": {"start": "2020-01-01T00:00:00Z"},
    }


def _log(url: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    content = shape(key.public_key())
    return {
        "baseUrl": url,
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": base64.b64encode(content).decode(),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": {"start": "2020-01-01T00:00:00Z"},
        },
        "logId": {"keyId": base64.b64encode(hashlib.sha256(content).digest()).decode()},
    }


def _token(claims: dict[str, str]) -> str:
    content = json.dumps(claims).encode()
    return f"e30.{base64.urlsafe_b64encode(content).decode().rstrip('=')}.e30"
