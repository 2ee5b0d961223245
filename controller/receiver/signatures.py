"""Verifies that the sender of a delivery knows the token. Pure; every comparison takes its time whatever is
given.

GitHub: https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries GitLab:
https://docs.gitlab.com/user/project/integrations/webhooks/ Gitea:
https://docs.gitea.com/usage/repository/webhooks generic-hmac: as Flux's receiver of that name, without SHA-1.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, Literal

from evaluator.http.messages import header

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.http.messages import Headers

Sender = Literal["generic-hmac", "github", "gitlab", "gitea"]
_SIGNED_IN: Final[dict[str, str]] = {
    "generic-hmac": "x-signature",
    "github": "x-hub-signature-256",
}
_ALGORITHMS: Final = frozenset({"sha256", "sha512"})


def signed(sender: Sender, headers: Headers, body: bytes, tokens: Iterable[bytes]) -> bool:
    """Whether one of `tokens` signs `body` as `sender` does it; an empty token signs nothing."""
    known = [token for token in tokens if token]
    if sender == "gitlab":
        # GitLab does not sign: it sends the token itself, as bytes that HTTP takes for Latin-1.
        given = (header(headers, "x-gitlab-token") or "").encode("latin-1", "replace")
        return _any([hmac.compare_digest(_digest(given), _digest(token)) for token in known])
    algorithm, given = _signature(sender, headers)
    if algorithm not in _ALGORITHMS:
        return False
    return _any(
        [hmac.compare_digest(given, hmac.new(token, body, algorithm).hexdigest().encode()) for token in known]
    )


def _signature(sender: Sender, headers: Headers) -> tuple[str, bytes]:
    """(algorithm, hexadecimal digits)."""
    if sender == "gitea" and (bare := header(headers, "x-gitea-signature")) is not None:
        return "sha256", _digits(bare)
    text = header(headers, _SIGNED_IN.get(sender, "x-hub-signature-256")) or ""
    algorithm, _, digits = text.strip().partition("=")
    if sender != "generic-hmac" and algorithm != "sha256":
        return "", b""
    return algorithm, _digits(digits)


def _digits(text: str) -> bytes:
    return text.strip().lower().encode("latin-1", "replace")


def _digest(content: bytes) -> bytes:
    """A digest of fixed length, so that not even the content's length is disclosed."""
    return hashlib.sha256(content).digest()


def _any(matches: list[bool]) -> bool:
    """All were compared before, so that the time does not show which one it was."""
    return any(matches)
