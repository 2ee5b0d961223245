"""Bearer tokens as they are sent: where one is found in a call, and when it expires. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import header

if TYPE_CHECKING:
    from evaluator.http.messages import Call

MOST_BYTES: Final = 16_384
_LATEST: Final = 2**53
"""Unix seconds from which on a time is none: an integer of JSON may be larger than any float."""


def bearer(call: Call) -> str | None:
    """Return the bearer token of a call; None if it is missing, too long or not ASCII."""
    scheme, _, token = (header(call.headers, "authorization") or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= MOST_BYTES or not token.isascii():
        return None
    return token


def seconds_left(token: str, now: float, *, unlimited: float) -> float:
    """Seconds until an accepted token expires, or `unlimited` where it does not say. `now`: Unix seconds."""
    parts = token.split(".")
    if len(parts) != 3:
        return unlimited
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return unlimited
    expires = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(expires, int | float) or not abs(expires) <= _LATEST:
        return unlimited
    return max(0.0, expires - now)
