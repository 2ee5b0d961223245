"""Identifies who sends a request: the user that the cluster finds in its token, and the pod."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from evaluator.http.messages import Call, header

if TYPE_CHECKING:
    from collections.abc import Mapping


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


_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"
_OF_ONE_TOKEN: Final = frozenset({
    _POD_NAME, _POD_UID, "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid",
    "authentication.kubernetes.io/credential-id",
})  # fmt: skip
"""What the API server says of the token of a service account itself. It limits no right, and differs from pod
to pod.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The pod that sends a request, as far as its token is bound to one."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    verified: bool = False
    """Whether the cluster has reviewed the token; otherwise nothing is known."""

    def of_pod(self, namespace: str, pod: str, uid: str) -> Caller:
        """The same review, of another pod in whose name the caller may speak."""
        return Caller(namespace, pod, uid, self.verified)


ANONYMOUS: Final = Caller()


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token, as a TokenReview describes it and a SubjectAccessReview asks for it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def caller(self) -> Caller:
        """Return the pod and its namespace, as far as the token is bound to them."""
        extra = dict(self.extra)
        account = self.name.removeprefix(_ACCOUNT) if self.name.startswith(_ACCOUNT) else ""
        return Caller(
            namespace=account.partition(":")[0],
            pod=next(iter(extra.get(_POD_NAME, ())), ""),
            pod_uid=next(iter(extra.get(_POD_UID, ())), ""),
            verified=True,
        )

    @property
    def reader(self) -> str:
        """An identifier that users with the same rights share, such as the pods of one service account."""
        scopes = [pair for pair in self.extra if pair[0] not in _OF_ONE_TOKEN]
        identity = json.dumps([self.name, self.uid, self.groups, scopes])
        return hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()


class Reviews(Protocol):
    """The questions that the cluster answers."""

    async def user(self, token: str) -> User | None:
        """The token's user; None where the cluster does not know the token. Raises Failed."""

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        """Whether `user` may `get` this object of the kind that is read. Raises Failed."""


def as_extra(fields: Mapping[str, object]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`userInfo.extra` as a User keeps it."""
    return tuple(
        (key, tuple(str(value) for value in values))
        for key, values in sorted(fields.items())
        if isinstance(values, list)
    )
