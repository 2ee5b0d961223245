"""GitHub Apps: short-lived tokens (one hour) of the server, in place of personal tokens. Pure.

https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from controller.api.flagprovider import APP_ID
from controller.events.services.git_servers import GITHUB, github_api
from controller.events.services.notice import App, Post
from controller.runtime.user_text.private_keys import read_private_key

if TYPE_CHECKING:
    from controller.events.services.notice import ProviderTarget
    from controller.runtime.user_text.secret_texts import SecretTexts

INSTALLATION: Final = "githubAppInstallationID"
"""The Secret's keys are Flux's."""
KEY: Final = "githubAppPrivateKey"
BASE: Final = "githubAppBaseURL"


@dataclass(frozen=True, slots=True)
class Grant:
    """A token from the server."""

    token: str = field(repr=False)
    until: datetime
    """The time at which a new token is requested."""


def app_of(secret: SecretTexts) -> App | None:
    """Return the App of a Secret; None without one. Raises Stalled. Blocks for milliseconds."""
    if not any(secret.text(key) for key in (APP_ID, INSTALLATION, KEY)):
        return None
    app_id, installation = (secret.require(key, "for a GitHub App") for key in (APP_ID, INSTALLATION))
    secret.require(KEY, "for a GitHub App")
    key = secret.pem(KEY, "PRIVATE KEY")
    if not re.fullmatch(r"[A-Za-z0-9.]{1,64}", app_id):
        raise secret.invalid(f"{APP_ID!r} is neither an App's number nor its client id")
    if not re.fullmatch(r"[0-9]{1,20}", installation):
        raise secret.invalid(f"{INSTALLATION!r} is not a number")
    try:
        _load_key(key)
    except ValueError:
        raise secret.invalid(f"{KEY!r} is not an RSA key of at most 4096 bits without a password") from None
    return App(app_id, installation, key, secret.line(BASE).rstrip("/"))


def token_request(app: App, target: ProviderTarget, now: datetime) -> Post:
    """Return the request for a token. Blocks for milliseconds."""
    url = f"{github_api(target)}/app/installations/{app.installation}/access_tokens"
    return Post(url, b"", {"Authorization": f"Bearer {_json_web_token(app, now)}", **GITHUB}, whole=True)


def grant_of(answer: bytes, now: datetime) -> Grant:
    """Return the token in an answer. Raises ValueError."""
    answer_: Any = json.loads(answer)
    token, until = (
        answer_.get(name) if isinstance(answer_, dict) else None for name in ("token", "expires_at")
    )
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,2048}", token) or not isinstance(until, str):
        raise ValueError("no token")
    end = datetime.fromisoformat(until)
    return Grant(token, end - timedelta(minutes=5) if end.tzinfo else now)


def _json_web_token(app: App, now: datetime) -> str:
    """Return a JSON Web Token that identifies the App."""
    import jwt  # noqa: PLC0415 - 3 MB, for Apps alone

    # Our clock may be ahead; the server accepts tokens that expire within ten minutes.
    times = {"iat": now - timedelta(minutes=1), "exp": now + timedelta(minutes=9)}
    return jwt.encode({**times, "iss": app.id}, _load_key(app.key), "RS256")


def _load_key(key: str) -> RSAPrivateKey:
    """Raises ValueError."""
    if len(key) > 4_096:
        raise ValueError("longer than any key of GitHub's")
    private_key, _ = read_private_key(key)
    if not isinstance(private_key, RSAPrivateKey):
        raise ValueError("not an RSA key")  # noqa: TRY004 - as cryptography has it
    return private_key
