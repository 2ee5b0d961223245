"""Tokens of service accounts, signed as the API server signs them: it gives none that lasts less than ten
minutes.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.cluster.api import Api, path_of

if TYPE_CHECKING:
    from tests.cluster.plane import Plane

LEEWAY: Final = 60
"""Seconds for which the API server takes a token that has expired, since clocks differ."""


def sign_token(plane: Plane, namespace: str, account: str, seconds: float) -> str:
    """A token for the audience of the proxy, which the API server takes for so many seconds more."""
    found = Api(plane).ask("GET", path_of("serviceaccount", namespace, account))
    bound = {"namespace": namespace, "serviceaccount": {"name": account, "uid": found["metadata"]["uid"]}}
    until = int(time.time_ns() / 1e9 + seconds - LEEWAY)
    claims = {
        "iss": "https://kubernetes.default.svc", "aud": ["flagstaff-proxy"],
        "sub": f"system:serviceaccount:{namespace}:{account}", "iat": until - 600, "nbf": until - 600,
        "exp": until, "kubernetes.io": bound,
    }  # fmt: skip
    key = serialization.load_pem_private_key((plane.folder / "accounts.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    said = f"{_text({'alg': 'RS256'})}.{_text(claims)}"
    signature = key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{said}.{_base64(signature)}"


def _text(part: dict[str, object]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
