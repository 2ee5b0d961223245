"""Webhooks, on a port of their own: a sender that knows the path and the token wakes the sources of a push.

Nothing is disclosed: all unknown paths get the same answer, and the log has neither tokens nor payloads.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagreceiver
from controller.api.meta import ObjectKey, about
from controller.events.pushes import Push, followed_update, repositories
from controller.events.receiver_stage import BY_PATH, BY_REPOSITORY, path_digest
from controller.events.webhook_payloads import MOST_BYTES, Quiet, read_delivery
from controller.runtime.limits import Pace
from evaluator.http.limits import Limits
from evaluator.http.messages import Headers, Request, Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from datetime import datetime

    from controller.api.flagreceiver import Sender
    from controller.runtime.cache import Cache
    from controller.runtime.process import Role


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

    _seen: LRUCache[str, float] = field(default_factory=partial(LRUCache, REMEMBERED))
    _pace: Pace = field(default_factory=partial(Pace, BURST, PER_SECOND))

    def is_replay(self, identity: str, now: float) -> bool:
        """Whether the delivery was accepted within the window."""
        taken = self._seen.get(identity)
        return taken is not None and now - taken < WINDOW

    def take(self, identity: str, now: float) -> float:
        """Accept the delivery and return 0, or return the seconds to wait if there were too many."""
        if wait := self._pace.wait(now, most=0.0):
            return wait
        self._seen[identity] = now
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


log = logging.getLogger(__name__)

LIMITS: Final = Limits(
    body_bytes=MOST_BYTES, connections=1_000, connections_per_host=500, buffered_bytes=8 * MOST_BYTES
)
_JSON: Final = ("content-type", "application/json")
_SUSPENDED: Final = "this receiver is suspended"
_ELSEWHERE: Final = "this receiver is answered by the controller of its shard; ask the Service of that one"
_REFUSED: Final = {400: "malformed", 401: "unsigned", 413: "too_large"}
NO_TYPE: Final = "none"
"""Sender type of a request without a receiver."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """Answers deliveries, on the loop: microseconds each, more for the signature of a large body."""

    endpoints: Endpoints
    objects: Cache
    expect: Callable[[ObjectKey, str, datetime], None]
    """(source, commit, now): the source is polled until it shows the commit."""
    wake: Callable[[ObjectKey], None]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    role: Role
    """A push has an effect only where this replica leads."""
    changed: Callable[[str, Collection[str]], None]
    """(namespace, repositories in their normal form) of each delivery that is taken."""
    received: Callable[[str, str], None]
    """(sender's type, outcome) of each request, both fixed words: see docs/kinds/flagreceiver.md."""

    def routes(self) -> Routes:
        """`POST /hook/<64 hexadecimal digits>`."""
        return Routes(http={("POST", f"{PREFIX}*"): self.answer})

    def answer(self, request: Request) -> Response:
        """200 with the sources that were woken, 4xx with what to do, 503 while suspended or on standby."""
        endpoint = self.endpoints.find(request.path)
        if not self.role.leading:
            # An earlier lead may have opened it; without leading nothing is woken.
            outcome, response = "standby", _later("this replica is not the leader; try again")
        elif endpoint is None:
            outcome, response = self._nowhere(request.path)
        elif (resource := self.objects.get(endpoint.key)) is not None and resource.suspended:
            outcome, response = "suspended", _refuse(503, _SUSPENDED)
        else:
            outcome, response = self._judge(endpoint, request)
        self.received(NO_TYPE if endpoint is None else endpoint.sender, outcome)
        return response

    def _judge(self, endpoint: Endpoint, request: Request) -> tuple[str, Response]:
        delivery = read_delivery(
            endpoint.sender, request.headers, request.body, endpoint.tokens, endpoint.events
        )
        if isinstance(delivery, Push):
            return self._take(endpoint, delivery)
        if isinstance(delivery, Quiet):
            return "ignored", _say(200, {"message": delivery.message, "woken": []})
        fields = about(endpoint.key)
        log.warning("a delivery from %s was refused: %s", request.peer, delivery.status, extra=fields)
        return _REFUSED[delivery.status], _refuse(delivery.status, delivery.message)

    def _take(self, endpoint: Endpoint, push: Push) -> tuple[str, Response]:
        now, guard = self.clock(), self.endpoints.guard(endpoint.key)
        if guard.is_replay(push.identity, now):
            return "replayed", _refuse(409, "this delivery was already accepted")
        if wait := guard.take(push.identity, now):
            return "limited", _later("too many deliveries", 429, math.ceil(wait))
        self.changed(endpoint.key.namespace, repositories(push))
        woken = dict(sorted(self._followers(endpoint, push)))
        for key, commit in woken.items():
            if commit is not None:
                self.expect(key, commit, self.now())
            self.wake(key)
        names = [str(key) for key in woken]
        woke = ", ".join(names) or "no source"
        fields = about(endpoint.key, push.updates[-1].commit or "")
        log.info("delivery %s woke %s", push.delivery or "-", woke, extra=fields)
        message = "woken" if names else "no source here follows what was pushed"
        return "woke" if names else "unmatched", _say(200, {"message": message, "woken": names})

    def _followers(self, endpoint: Endpoint, push: Push) -> Iterator[tuple[ObjectKey, str | None]]:
        """Return the sources in the receiver's namespace that it may wake and that the push concerns, each
        with the commit or manifest that it is to show.
        """
        every = flagreceiver.EVERY in endpoint.sources
        namespace = endpoint.key.namespace
        sources = [
            self.objects.find(BY_REPOSITORY, namespace, repository) for repository in repositories(push)
        ]
        for source in itertools.chain.from_iterable(sources):
            if source.suspended or source.deleting or not self.role.shard.owns(source):
                continue
            if not every and source.name not in endpoint.sources:
                continue
            if (update := followed_update(source.spec, push)) is not None:
                yield source.key, update.commit

    def _nowhere(self, path: str) -> tuple[str, Response]:
        """Answer a path without open endpoint: it may be of a receiver that was suspended before this process
        started, or that is not reconciled yet.
        """
        receivers = self.objects.find(BY_PATH, "", path_digest(path))
        if not receivers:
            return "unknown", _refuse(404, "there is no receiver at this path")
        if not any(map(self.role.shard.owns, receivers)):
            return "unknown", _refuse(404, _ELSEWHERE)
        if any(receiver_.suspended for receiver_ in receivers):
            return "suspended", _refuse(503, _SUSPENDED)
        return "standby", _later("this receiver is not ready yet; try again")


def _say(status: int, answer: dict[str, object], headers: Headers = ()) -> Response:
    return Response(status, json.dumps(answer).encode() + b"\n", (_JSON, *headers))


def _refuse(status: int, message: str) -> Response:
    return _say(status, {"message": message})


def _later(message: str, status: int = 503, seconds: int = 5) -> Response:
    return _say(status, {"message": message}, (("retry-after", str(seconds)),))
