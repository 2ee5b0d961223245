"""`flagstaff.delivery.v1` at a proxy: what evaluators say that they serve, per flag set. On the
loop; no I/O.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from controller.proxy.receipts.members import Membership
from controller.proxy.receipts.standing import Identity, Report
from controller.proxy.receipts.status import moment, told
from controller.proxy.streams.limits import host_of
from evaluator.http.messages import Code, RpcError, header
from evaluator.http.routes import Routes
from evaluator.wire.delivery import LEAVE, MARK, REPORT, MemberText
from evaluator.wire.delivery_pb2 import (
    LeaveRequest,
    LeaveResponse,
    Member,
    ReportRequest,
    ReportResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource
    from controller.api.receipt import FlagReceiptStatus
    from controller.proxy.receipts.members import Pods
    from controller.proxy.receipts.standing import Standing
    from evaluator.http.messages import Call

_log = logging.getLogger(__name__)

Place: TypeAlias = tuple[str, str]
"""Namespace and name of what is delivered."""

SOONEST: Final = 5.0
LATEST: Final = 10.0
"""Seconds between two reports of a member in which nothing changes."""
_PER_SECOND: Final = 1000
"""Reports that are welcome."""
MOST_CLAIMED: Final = 50_000
"""Members for whom nobody vouches, of all flag sets: anyone can claim to be one."""
_TEXT: Final = 253
_DIGEST: Final = 80
_LONGEST: Final = 400 * 86_400 * 1000
"""Milliseconds for which anything may be served."""


class Caller(Protocol):
    """Whose token a call bears."""

    @property
    def namespace(self) -> str:
        """Of the pod."""

    @property
    def pod(self) -> str:
        """Its name; empty where the token is not bound to one."""

    @property
    def pod_uid(self) -> str:
        """Its uid."""

    @property
    def verified(self) -> bool:
        """Whether the cluster says so."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is delivered at a place."""

    owner: Resource
    """The object; only its metadata is looked at."""
    digest: str
    observed_at: float | None = None
    """Unix seconds at which the change to it was first observed, where the object tells."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many follow one flag set."""

    place: Place
    served: int
    """Members that serve what is delivered and are heard of."""
    lagging: int
    """The other members."""
    delivered: int
    """Streams of subscribers that send no receipts."""


@dataclass(slots=True)
class Flock:
    """All who follow one flag set here."""

    membership: Membership
    owner: Resource | None = None
    streams: int = 0
    """Of subscribers that send no receipts."""
    told: tuple[int, int, str] | None = None
    """What the last `changed` was about."""

    def status(self) -> FlagReceiptStatus:
        """For the FlagReceipt."""
        return told(self.membership, self.streams)

    @property
    def state(self) -> tuple[int, int, str]:
        """Another one whenever the status may be another."""
        return self.membership.version, self.streams, self.owner.uid if self.owner else ""

    @property
    def empty(self) -> bool:
        """Whether nobody follows it, nor did a while ago."""
        return self.membership.empty and not self.streams


@dataclass(slots=True)
class Receipts:
    """All flag sets of one proxy."""

    place: Callable[[str, Call], Place | None]
    """Which flag set a selector means to a caller; None: there is none. Raises RpcError for what the caller
    may not read.
    """
    content: Callable[[Place], Content | None]
    """What is delivered there now."""
    caller: Callable[[Call], Caller | None]
    """Who calls; None where the call says nothing. Raises RpcError UNAVAILABLE where that is not known yet.
    """
    pods: Pods
    clock: Callable[[], float]
    """Unix seconds."""
    changed: Callable[[Place], None] = lambda _place: None
    """Told whenever what a FlagReceipt says of a place may be another."""
    took: Callable[[float], None] = lambda _seconds: None
    """Told of each member that followed, how long after the change was observed."""
    reports: int = 0
    """Answered so far."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reports that were not taken, by gRPC's code in lower case."""
    most_per_host: int = MOST_CLAIMED
    """Members for whom nobody vouches, from one address."""
    _flocks: dict[Place, Flock] = field(default_factory=dict)
    _claims: Counter[str] = field(default_factory=Counter)
    """Those by address."""
    _claimed: int = 0
    """All of them."""

    def routes(self) -> Routes:
        """The service."""
        return Routes(unary={REPORT: self.report, LEAVE: self.leave})

    def report(self, call: Call, message: bytes) -> bytes:
        """A member says what it serves."""
        try:
            answer = self._hear(call, message)
        except RpcError as error:
            self.refused[error.code.name.lower()] += 1
            raise
        self.reports += 1
        return answer

    def _hear(self, call: Call, message: bytes) -> bytes:
        request = _read(ReportRequest, message)
        place = self.place(request.selector, call)
        if place is not None:
            who, now = self._identity(call, request.member), self.clock()
            report = _report(request, now)
            flock = self._flock(place)
            if not who.verified and not flock.membership.knows(who):
                self._admit(who.host)
            seconds = flock.membership.hear(who, report, now)
            if seconds is not None:
                self.took(seconds)
            self._tell(place, flock)
        return _encoded(ReportResponse(next_ms=round(self._pause() * 1000)))

    def _admit(self, host: str) -> None:
        """One more for whom nobody vouches; who is a member goes on being heard however many there are."""
        if self._claimed >= MOST_CLAIMED:
            raise RpcError(Code.RESOURCE_EXHAUSTED, "too many members without a token")
        if self._claims[host] >= self.most_per_host:
            raise RpcError(Code.RESOURCE_EXHAUSTED, "too many members without a token from this address")
        self._claims[host] += 1
        self._claimed += 1

    def leave(self, call: Call, message: bytes) -> bytes:
        """A member stops."""
        request = _read(LeaveRequest, message)
        place = self.place(request.selector, call)
        if place is not None and (flock := self._flocks.get(place)) is not None:
            who = self._identity(call, request.member)
            flock.membership.leave(who, request.member.connected_at_ms, self.clock())
            self._tell(place, flock)
        return _encoded(LeaveResponse())

    def followed(self, place: Place, call: Call) -> Callable[[], None]:
        """A stream of updates was opened; the returned function is to be called once it has ended."""
        if header(call.headers, MARK) is not None:
            return lambda: None
        flock = self._flock(place)
        flock.streams += 1
        self._tell(place, flock)

        def ended() -> None:
            flock.streams -= 1
            self._tell(place, flock)

        return ended

    def pod_gone(self, uid: str) -> None:
        """A Pod was deleted."""
        for place, flock in self._flocks.items():
            flock.membership.pod_gone(uid)
            self._tell(place, flock)

    def tick(self, seconds: float) -> None:
        """So much time went by: a second or so."""
        for place, flock in tuple(self._flocks.items()):
            flock.membership.tick(seconds)
            self._refresh(place, flock)
            self._tell(place, flock)
            if flock.empty:
                del self._flocks[place]
        self._claims = Counter(host for each in self._flocks.values() for host in each.membership.claims())
        self._claimed = self._claims.total()

    def flock(self, place: Place) -> Flock | None:
        """Who follows a flag set, up to date with what is delivered."""
        flock = self._flocks.get(place)
        if flock is not None:
            self._refresh(place, flock)
        return flock

    def places(self) -> list[Place]:
        """All flag sets that somebody follows."""
        return list(self._flocks)

    def fleet(self) -> dict[str, Any]:
        """Every member by flag set, for people and programs that ask this proxy."""
        return {"flagSets": [_shown(place, flock) for place, flock in self._sorted()]}

    def counts(self) -> list[Counts]:
        """Of every flag set that somebody follows."""
        return [Counts(place, *flock.membership.counts(), flock.streams) for place, flock in self._sorted()]

    def _sorted(self) -> list[tuple[Place, Flock]]:
        return sorted(self._flocks.items(), key=lambda each: each[0])

    def _flock(self, place: Place) -> Flock:
        flock = self._flocks.get(place)
        if flock is None:
            flock = self._flocks[place] = Flock(Membership(self.pods))
        self._refresh(place, flock)
        return flock

    def _refresh(self, place: Place, flock: Flock) -> None:
        content = self.content(place)
        digest, observed = ("", None) if content is None else (content.digest, content.observed_at)
        flock.owner = None if content is None else content.owner
        flock.membership.deliver(digest, observed, self.clock())

    def _tell(self, place: Place, flock: Flock) -> None:
        if flock.told != flock.state:
            flock.told = flock.state
            self.changed(place)

    def _pause(self) -> float:
        members = sum(len(each.membership) for each in self._flocks.values())
        return max(SOONEST, min(LATEST, members / _PER_SECOND))

    def _identity(self, call: Call, member: Member) -> Identity:
        """Who calls: by its token where that is bound to a pod, otherwise by its own word."""
        text = MemberText.of(member)
        known, host = self.caller(call), host_of(call.peer)
        if known is None or not known.verified or not known.pod:
            return _bounded(text, host, verified=False)
        # The node and the version are its own word in any case.
        vouched = MemberText(
            text.instance, known.namespace, known.pod, known.pod_uid, text.node, text.version
        )
        return _bounded(vouched, host, verified=True)


def _bounded(text: MemberText, host: str, *, verified: bool) -> Identity:
    fields = (text.namespace, text.pod, text.pod_uid, text.instance, text.node, text.version)
    if any(len(each) > _TEXT or not each.isprintable() for each in fields):
        raise RpcError(Code.INVALID_ARGUMENT, "the member's name is too long, or is no text")
    if not text.pod and not text.instance:
        raise RpcError(Code.INVALID_ARGUMENT, "the member names neither a pod nor an instance")
    return Identity(*fields, verified=verified, host=host)


def _report(request: ReportRequest, now: float) -> Report:
    digest, revision = request.digest, request.revision
    if len(digest) > _DIGEST or not (digest + revision).isprintable():
        raise RpcError(Code.INVALID_ARGUMENT, "the digest is too long, or is no text")
    return Report(
        connected_at=request.member.connected_at_ms,
        digest=digest,
        revision=revision[:_TEXT],
        served_at=now - min(request.served_for_ms, _LONGEST) / 1000,
        replaced=request.replaced,
    )


def _read(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error


def _encoded(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


def _shown(place: Place, flock: Flock) -> dict[str, Any]:
    members = sorted(flock.membership.standings(), key=lambda each: each.who.name)
    return {
        "namespace": place[0],
        "name": place[1],
        "digest": flock.membership.digest,
        "served": sum(not each.lagging for each in members),
        "total": len(members),
        "delivered": flock.streams,
        "members": [_member(each) for each in members],
    }


def _member(standing: Standing) -> dict[str, Any]:
    who = standing.who
    return {
        "name": who.name,
        "node": who.node,
        "version": who.version,
        "verified": who.verified,
        "revision": standing.revision,
        "digest": standing.digest,
        "silent": standing.silent,
        "lagging": standing.lagging,
        "since": moment(standing.since),
    }
