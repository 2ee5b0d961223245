"""A token service as registries name one (distribution's token authentication): it checks a login, and signs
what the registry believes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ISSUER = "tests"
SERVICE = "registry.tests"


@dataclass
class Tokens:
    """What it gives, and what it was asked."""

    login: str
    """`name:password`."""
    folder: Path
    seconds: int = 300
    """How long a token is said to be good for."""
    asked: list[str] = field(default_factory=list)
    realm: str = ""

    def __post_init__(self) -> None:
        self._leaf = trustme.CA().issue_cert("tokens.tests", key_type=trustme.KeyType.ECDSA)
        self._chain = b"".join(each.bytes() for each in self._leaf.cert_chain_pems)
        (self.folder / "tokens.pem").write_bytes(self._chain)

    @property
    def configuration(self) -> dict[str, Any]:
        """Of the registry that believes it."""
        bundle = str(self.folder / "tokens.pem")
        known = {"realm": self.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": bundle}
        return {"auth": {"token": known}}

    def token(self, scope: str) -> str:
        """Signed, for `repository:NAME:ACTIONS`."""
        kind, name, actions = scope.split(":")
        now = int(time.time())  # noqa: TID251 - the registry compares it with its own clock
        certificates = x509.load_pem_x509_certificates(self._chain)
        der = serialization.Encoding.DER
        head = {
            "typ": "JWT",
            "alg": "ES256",
            "x5c": [base64.b64encode(each.public_bytes(der)).decode() for each in certificates],
        }
        claims = {
            "iss": ISSUER, "sub": self.login.partition(":")[0], "aud": SERVICE, "jti": str(len(self.asked)),
            "iat": now - 5, "nbf": now - 5, "exp": now + 300,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }  # fmt: skip
        signed = f"{_encode(json.dumps(head).encode())}.{_encode(json.dumps(claims).encode())}"
        key = serialization.load_pem_private_key(self._leaf.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        numbers = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encode(b''.join(each.to_bytes(32, 'big') for each in numbers))}"


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tokens: Tokens


class _Exchange(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_GET(self) -> None:
        tokens = self.server.tokens
        tokens.asked.append(self.path)
        wanted = "Basic " + base64.b64encode(tokens.login.encode()).decode()
        query = parse_qs(urlsplit(self.path).query)
        good = self.headers.get("Authorization") == wanted and query.get("service") == [SERVICE]
        answer = {"token": tokens.token(query["scope"][0]), "expires_in": tokens.seconds} if good else {}
        body = json.dumps(answer).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def token_service(login: str, folder: Path) -> Iterator[Tokens]:
    server = _Server(("127.0.0.1", 0), _Exchange)
    server.tokens = Tokens(login, folder)
    server.tokens.realm = f"http://127.0.0.1:{server.server_port}/token"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.tokens
    finally:
        server.shutdown()
        server.server_close()
