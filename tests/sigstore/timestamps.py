"""An authority for timestamps (RFC 3161), as which OpenSSL answers."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.sigstore.authority import timestamp_chain

_CONFIGURATION: Final = """
[tsa]
default_tsa = own
[own]
serial = serial
signer_cert = certificate.pem
signer_key = key.pem
signer_digest = sha256
default_policy = 1.3.6.1.4.1.57264.2
digests = sha256
ess_cert_id_alg = sha256
"""


class Timestamps:
    """Signs what time it is."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.chain = timestamp_chain(self._key.public_key())
        """Its certificate, then the root's."""

    def answer(self, query: bytes) -> bytes:
        """The reply to a query."""
        shape = PrivateFormat.PKCS8
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "tsa.cnf").write_text(_CONFIGURATION, encoding="ascii")
            (folder / "serial").write_text("01\n", encoding="ascii")
            (folder / "certificate.pem").write_bytes(self.chain[0].public_bytes(Encoding.PEM))
            (folder / "key.pem").write_bytes(self._key.private_bytes(Encoding.PEM, shape, NoEncryption()))
            (folder / "query").write_bytes(query)
            command = ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query"]
            subprocess.run([*command, "-out", "reply"], cwd=folder, check=True, capture_output=True)
            return (folder / "reply").read_bytes()
