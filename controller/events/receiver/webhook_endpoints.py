"""The open webhook paths and their tokens, in memory."""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.runtime.tenancy.limits import Pace

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey
    from controller.events.receiver.push_payload import Sender

PREFIX: Final = "/hook/"
REMEMBERED: Final = 512
"""Most remembered deliveries of one receiver."""
WINDOW: Final = 600.0
"""Seconds within which a repeated delivery is a replay."""
BURST: Final = 60.0
PER_SECOND: Final = 2.0
"""Sustained deliveries per second of one receiver, since each may make every source poll."""


def webhook_path(token: bytes, key: ObjectKey) -> str:
    """Return `/hook/` and the hexadecimal HMAC-SHA256 of `<namespace>/<name>` with the token."""
    name = f"{key.namespace}/{key.name}".encode()
    return PREFIX + hmac.new(token, name, hashlib.sha256).hexdigest()


@dataclass(slots=True)
class ReplayGuard:
    """The recent deliveries of one receiver. `now`: seconds of a monotonic clock."""

    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _pace: Pace = field(default_factory=partial(Pace, BURST, PER_SECOND))

    def is_replay(self, identity: str, now: float) -> bool:
        """Whether the delivery was accepted within the window."""
        taken = self._seen.get(identity)
        return taken is not None and now - taken < WINDOW

    def take(self, identity: str, now: float) -> float:
        """Accept the delivery and return 0, or return the seconds to wait if there were too many."""
        if wait := self._pace.wait(now, most=0.0):
            return wait
        self._seen.pop(identity, None)
        self._seen[identity] = now
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return 0.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The settings of one receiver."""

    key: ObjectKey
    sender: Sender
    tokens: tuple[bytes, ...] = field(repr=False)
    """The current token, and the previous one while it is accepted."""
    events: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of FlagSources beside it; `*` is each of them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return one path for each token: senders may still use that of the previous token."""
        return tuple(webhook_path(token, self.key) for token in self.tokens)


class Endpoints:
    """The open paths, and the recent deliveries to their receivers."""

    def __init__(self) -> None:
        self._by_path: dict[str, Endpoint] = {}
        self._guards: dict[ObjectKey, ReplayGuard] = {}

    def open(self, endpoint: Endpoint) -> None:
        """Answer at the endpoint's paths from now on, and at no other of the same receiver."""
        self._by_path = self._without(endpoint.key) | dict.fromkeys(endpoint.paths, endpoint)
        self._guards.setdefault(endpoint.key, ReplayGuard())

    def close(self, key: ObjectKey) -> None:
        """Close the paths of this receiver, and forget its tokens."""
        self._by_path = self._without(key)
        self._guards.pop(key, None)

    def find(self, path: str) -> Endpoint | None:
        """Return the endpoint at `path`."""
        return self._by_path.get(path)

    def guard(self, key: ObjectKey) -> ReplayGuard:
        """The guard of a receiver that is open."""
        return self._guards[key]

    def _without(self, key: ObjectKey) -> dict[str, Endpoint]:
        return {path: endpoint for path, endpoint in self._by_path.items() if endpoint.key != key}
