"""GitHub Apps: in place of a token that a person made, one that the server gives out for an hour. Pure.

https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from controller.api.provider import APP_ID
from controller.notifications.forms.posts import Post
from controller.notifications.forms.repositories import GITHUB, github_api

if TYPE_CHECKING:
    from controller.notifications.forms.posts import Target
    from controller.runtime.user_text.secret_texts import SecretTexts

INSTALLATION: Final = "githubAppInstallationID"
"""The Secret's keys are Flux's."""
KEY: Final = "githubAppPrivateKey"
BASE: Final = "githubAppBaseURL"
_WHOLE: Final = re.compile(r"[A-Za-z0-9.]{1,64}")
"""An App's number, or its client id."""
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_TOKEN: Final = re.compile(r"[!-~]{1,2048}")
_LONGEST_KEY: Final = 4_096
"""Characters: GitHub's keys have 1,700, and one of many bits takes long to read."""
_SKEW: Final = timedelta(minutes=1)
"""How far ahead of the server's our clock may be."""
_LIFE: Final = timedelta(minutes=9)
"""Of what we sign: the server takes ten minutes, by its own clock."""
_EARLY: Final = timedelta(minutes=5)
"""So long before its end a token is asked for anew."""


@dataclass(frozen=True, slots=True)
class App:
    """One installation of an App."""

    id: str
    installation: str
    key: str = field(repr=False)
    """An RSA key in PEM."""
    base: str = ""
    """The URL of the API; empty: as the repository's address says."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A token that the server gave out."""

    token: str = field(repr=False)
    until: datetime
    """When another is to be asked for."""


def app_of(secret: SecretTexts) -> App | None:
    """The App that a Secret names; None: it names none. Raises Stalled. Blocks for milliseconds."""
    if not any(secret.text(each) for each in (APP_ID, INSTALLATION, KEY)):
        return None
    found, installation = (secret.required(each, "for a GitHub App") for each in (APP_ID, INSTALLATION))
    secret.required(KEY, "for a GitHub App")
    key = secret.pem(KEY, "PRIVATE KEY")
    if not _WHOLE.fullmatch(found):
        raise secret.invalid(f"{APP_ID!r} is neither an App's number nor its client id")
    if not _NUMBER.fullmatch(installation):
        raise secret.invalid(f"{INSTALLATION!r} is not a number")
    try:
        _read(key)
    except ValueError:
        raise secret.invalid(f"{KEY!r} is not an RSA key of at most 4096 bits without a password") from None
    return App(found, installation, key, secret.line(BASE).rstrip("/"))


def asked(app: App, target: Target, now: datetime) -> Post:
    """Asks for a token. Blocks for milliseconds."""
    url = f"{github_api(target)}/app/installations/{app.installation}/access_tokens"
    return Post(url, b"", {"Authorization": f"Bearer {_signed(app, now)}", **GITHUB}, whole=True)


def grant_of(answer: bytes, now: datetime) -> Grant:
    """The token in an answer. Raises ValueError."""
    found: Any = json.loads(answer)
    token, until = (found.get(each) if isinstance(found, dict) else None for each in ("token", "expires_at"))
    if not isinstance(token, str) or not _TOKEN.fullmatch(token) or not isinstance(until, str):
        raise ValueError("no token")
    end = datetime.fromisoformat(until)
    return Grant(token, end - _EARLY if end.tzinfo else now)


def _signed(app: App, now: datetime) -> str:
    """A JSON Web Token by which the server knows the App (RFC 7519, RS256)."""
    times = {"iat": int((now - _SKEW).timestamp()), "exp": int((now + _LIFE).timestamp())}
    parts = (_encoded({"alg": "RS256", "typ": "JWT"}), _encoded({**times, "iss": app.id}))
    signature = _read(app.key).sign(b".".join(parts), PKCS1v15(), SHA256())
    return b".".join((*parts, _trimmed(signature))).decode()


def _encoded(content: dict[str, str | int]) -> bytes:
    return _trimmed(json.dumps(content, separators=(",", ":")).encode())


def _trimmed(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def _read(key: str) -> RSAPrivateKey:
    """Raises ValueError."""
    try:
        found = load_pem_private_key(key.encode(), None) if len(key) <= _LONGEST_KEY else None
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("not a key") from error
    if not isinstance(found, RSAPrivateKey):
        raise ValueError("not an RSA key")  # noqa: TRY004 - as cryptography has it
    return found
