"""`flagstaff.delivery.v1` at a proxy: which evaluator serves what, by flag set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from controller.api.flagreceipt import MOST_HIDDEN, FlagReceiptStatus
from controller.delivery.standing_orders import PREFIX as ORDERS
from controller.proxy.building import HiddenFlag
from controller.proxy.members import (
    PAUSE,
    MemberIdentity,
    MemberKey,
    MemberReport,
    Membership,
    Pods,
    receipt_status,
)
from controller.proxy.stream_limits import require_quota
from evaluator.flags.model import ComposedPart
from evaluator.flags.saved import MOST_PARTS
from evaluator.http.messages import Call, Code, RpcError, header, host_of
from evaluator.http.routes import Routes
from evaluator.wire.delivery import LEAVE, MARK, REPORT, MemberText
from evaluator.wire.delivery_pb2 import LeaveRequest, LeaveResponse, Member, ReportRequest, ReportResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from controller.api.meta import Resource
    from controller.delivery.claims import Place
    from controller.proxy.contents import SetPart
    from controller.proxy.users import Caller


_TEXT: Final = 253
"""Characters of a name."""
_PLACE: Final = 400
"""Characters of a kind, a namespace and a name."""
_DIGEST: Final = 80
_LONGEST: Final = 400 * 86_400 * 1000
"""Milliseconds for which anything may be served."""


def read(kind: Any, message: bytes) -> Any:
    """The request in `message`, of the protobuf class `kind`. Raises RpcError INVALID_ARGUMENT."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error


def identity(call: Call, member: Member, caller: Caller | None) -> MemberIdentity:
    """Return who reports: the token's pod, or else the claimed one. Raises RpcError INVALID_ARGUMENT."""
    text = MemberText.of(member)
    verified = caller is not None and caller.verified and bool(caller.pod)
    if caller is not None and verified:
        # Its node and its version are claims in any case.
        text = MemberText(
            text.instance, caller.namespace, caller.pod, caller.pod_uid, text.node, text.version
        )
    fields = (text.namespace, text.pod, text.pod_uid, text.instance, text.node, text.version)
    if any(len(field) > _TEXT or not field.isprintable() for field in fields):
        raise RpcError(Code.INVALID_ARGUMENT, "the member's name is too long or is not text")
    if not text.pod and not text.instance:
        raise RpcError(Code.INVALID_ARGUMENT, "the member names neither a pod nor an instance")
    return MemberIdentity(*fields, verified=verified, host=host_of(call.peer))


@dataclass(frozen=True, slots=True)
class MemberClaims:
    """What a member says of the flag sets that it serves."""

    namespace: str = ""
    """The namespace that it claims."""
    digest: str = ""
    revision: str = ""
    sets: tuple[ComposedPart, ...] = ()
    """Of a composition: the sets that it serves as parts of it."""
    hidden: tuple[HiddenFlag, ...] = ()
    """Flags under an override that another of its sources hides. Each set is as in FLAG_SET_KEY, or the
    selector of a source; empty: `origin` is the set that was asked for, `by` is not known.
    """


def claims(request: ReportRequest) -> MemberClaims:
    """What a request says of flag sets. Raises RpcError INVALID_ARGUMENT."""
    parts = tuple(
        ComposedPart(part.order, part.flag_set, part.digest, part.revision[:_TEXT])
        for part in request.sets[:MOST_PARTS]
    )
    texts = [text for part in parts for text in part]
    if len(request.digest) > _DIGEST or not all(map(str.isprintable, (request.digest, request.revision))):
        raise RpcError(Code.INVALID_ARGUMENT, "the digest is too long or is not text")
    if any(len(text) > _PLACE or not text.isprintable() for text in texts):
        raise RpcError(Code.INVALID_ARGUMENT, "the name of a flag set is too long or is not text")
    hidden = tuple(HiddenFlag(flag.flag_set, flag.key, flag.by) for flag in request.hidden[:MOST_HIDDEN])
    return MemberClaims(
        namespace=request.member.namespace,
        digest=request.digest,
        revision=request.revision[:_TEXT],
        sets=parts,
        hidden=tuple(flag for flag in hidden if len(flag.key) <= _TEXT and flag.key.isprintable()),
    )


def read_report(request: ReportRequest, now: float) -> MemberReport:
    """What a member says of all that it serves; `now` is Unix seconds."""
    return MemberReport(
        served_at=now - min(request.served_for_ms, _LONGEST) / 1000,
        replaced=request.replaced,
        unsaved="".join(filter(str.isprintable, request.unsaved))[:_TEXT],
    )


LATEST: Final = 75.0
"""Most seconds between two reports of a member in which nothing changes: evaluators wait no longer."""
MOST_CLAIMED: Final = 50_000
"""Members without a reviewed token, of all flag sets: anyone can claim to be one."""


@dataclass(frozen=True, slots=True)
class ExpectedDigest:
    """What the members of a flag set should serve."""

    owner: Resource
    """The object that is delivered; only its metadata is used."""
    digest: str
    observed_at: float | None = None
    """Unix seconds at which the change to it was first observed, where the object says so."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of subscribers of one flag set."""

    place: Place
    served: int
    """Members that serve what is delivered and are not silent."""
    lagging: int
    """The other members."""
    delivered: int
    """Streams of subscribers that send no receipts."""

    @property
    def followers(self) -> int:
        """Return the number of all."""
        return self.served + self.lagging + self.delivered


@dataclass(slots=True)
class Subscribers:
    """All subscribers of one flag set at this proxy."""

    membership: Membership
    owner: Resource | None = None
    streams: int = 0
    """Streams of subscribers that send no receipts."""
    reported: tuple[int, int, str] | None = None
    """The state at the last call of `Receipts.changed`."""

    def status(self) -> FlagReceiptStatus:
        """The status of the FlagReceipt."""
        return receipt_status(self.membership, self.streams)

    @property
    def state(self) -> tuple[int, int, str]:
        """Return a value that changes when the status may change."""
        return self.membership.version, self.streams, self.owner.uid if self.owner else ""

    @property
    def empty(self) -> bool:
        """Return whether there are no subscribers."""
        return self.membership.empty and not self.streams


@dataclass(slots=True)
class Receipts:
    """Receipts for all flag sets of one proxy."""

    parts: Callable[[str, Call, MemberClaims], Sequence[SetPart]]
    """Returns what a caller that claims this serves of each flag set that a selector means to it: several by
    standing orders. Raises RpcError if it may not read them.
    """
    expected: Callable[[Place], ExpectedDigest | None]
    """Returns what is delivered there now."""
    caller: Callable[[Call], Caller | None]
    """Returns the caller, if the call names one. Raises RpcError UNAVAILABLE if it is not known yet."""
    pods: Pods
    clock: Callable[[], float]
    """Unix seconds."""
    represented: Callable[[Caller | None, Member], Caller | None] = lambda caller, _member: caller
    """Returns the pod in whose name the caller reports."""
    changed: Callable[[Place], None] = lambda _place: None
    """Called whenever the FlagReceipt of a place may have changed."""
    served_after: Callable[[float], None] = lambda _seconds: None
    """Called for each member that has followed a change, with the seconds since the change was observed."""
    most_claimed: int = MOST_CLAIMED
    """Members without a reviewed token."""
    reports_per_second: int = 300
    """Reports that the proxy should get at most while nothing changes: they take a twentieth of a core."""
    most_per_host: int = MOST_CLAIMED
    """Members without a reviewed token from one address."""
    quota: int = 0
    """Members with a reviewed token of one namespace, over all flag sets; 0: no limit."""
    reports: int = 0
    """Answered so far."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reports that were refused, by gRPC's code in lower case."""
    _subscribers: dict[Place, Subscribers] = field(default_factory=dict)
    _ordered: dict[tuple[MemberKey, str], tuple[Place, ...]] = field(default_factory=dict)
    """The flag sets that a member has reported of a selector, where these may change."""
    _claimed: Counter[str] = field(default_factory=Counter)
    """Members without a reviewed token, by address."""
    _claimed_total: int = 0
    _verified: Counter[str] = field(default_factory=Counter)
    """Members with a reviewed token, by their namespace."""
    _counted: dict[Place, int] | None = None
    """The version of each membership when its members were last counted; None: they are to be counted."""

    def routes(self) -> Routes:
        """The service."""
        return Routes(unary={REPORT: self.report, LEAVE: self.leave})

    def report(self, call: Call, message: bytes) -> bytes:
        """Take in what a member serves."""
        try:
            answer = self._report(call, message)
        except RpcError as error:
            self.refused[error.code.name.lower()] += 1
            raise
        self.reports += 1
        return answer

    def record(
        self,
        place: Place,
        who: MemberIdentity,
        report: MemberReport,
        peer: str,
        now: float,
        pause: float = PAUSE,
    ) -> None:
        """Note what a member serves, which reports again after `pause` seconds. Raises RpcError
        RESOURCE_EXHAUSTED for one too many.
        """
        subscribers = self._subscribers_of(place)
        if not subscribers.membership.knows(who):
            self._admit(who)
        seconds = subscribers.membership.record_report(who, report, peer, now, pause)
        if seconds is not None:
            self.served_after(seconds)
        self._report_change(place, subscribers)

    def leave(self, call: Call, message: bytes) -> bytes:
        """A member stops."""
        request = read(LeaveRequest, message)
        parts = self.parts(request.selector, call, MemberClaims())
        who = self._identity(call, request.member) if parts else None
        if who is not None:
            places = self._ordered.pop((who.key, request.selector), ())
            self._remove(who, {*places, *(part.place for part in parts)})
        return LeaveResponse().SerializeToString()

    def follow(self, place: Place, call: Call) -> Callable[[], None]:
        """A stream of updates was opened; the returned function is to be called once it has ended."""
        subscribers = self._subscribers_of(place)
        membership, is_member = subscribers.membership, header(call.headers, MARK) is not None
        if is_member:
            membership.stream_opened(call.peer)
        else:
            subscribers.streams += 1
        self._report_change(place, subscribers)

        def end() -> None:
            if is_member:
                membership.stream_ended(call.peer)
            else:
                subscribers.streams -= 1
            self._report_change(place, subscribers)

        return end

    def pod_gone(self, uid: str) -> None:
        """A Pod was deleted."""
        for place, subscribers in self._subscribers.items():
            subscribers.membership.pod_gone(uid)
            self._report_change(place, subscribers)

    def tick(self, seconds: float) -> None:
        """Advance the members' time; to be called about every second."""
        for place, subscribers in tuple(self._subscribers.items()):
            subscribers.membership.tick(seconds)
            self._refresh(place, subscribers)
            self._report_change(place, subscribers)
            if subscribers.empty:
                del self._subscribers[place]
        versions = {place: subscribers.membership.version for place, subscribers in self._subscribers.items()}
        if versions == self._counted:
            return
        self._counted = versions
        known = [
            who for subscribers in self._subscribers.values() for who in subscribers.membership.identities()
        ]
        keys = {who.key for who in known}
        self._ordered = {entry: places for entry, places in self._ordered.items() if entry[0] in keys}
        self._claimed = Counter(who.host for who in known if not who.verified)
        self._claimed_total = self._claimed.total()
        self._verified = Counter(who.namespace for who in known if who.verified)

    def subscribers(self, place: Place) -> Subscribers | None:
        """Return the subscribers of a flag set, up to date with what is delivered."""
        subscribers = self._subscribers.get(place)
        if subscribers is not None:
            self._refresh(place, subscribers)
        return subscribers

    def places(self) -> list[Place]:
        """Return all flag sets with subscribers."""
        return list(self._subscribers)

    def all(self) -> list[tuple[Place, Subscribers]]:
        """Return the subscribers of each flag set that has any, by namespace and name."""
        return sorted(self._subscribers.items(), key=lambda entry: entry[0])

    def by_namespace(self) -> dict[str, int]:
        """Members with a reviewed token, by their namespace. Any thread may ask."""
        return dict(self._verified)

    def counts(self) -> list[Counts]:
        """Return the counts of each flag set with subscribers."""
        return [
            Counts(place, *subscribers.membership.counts(), subscribers.streams)
            for place, subscribers in self.all()
        ]

    def _report(self, call: Call, message: bytes) -> bytes:
        request = read(ReportRequest, message)
        parts, pause = self.parts(request.selector, call, claims(request)), self._pause()
        if parts:
            who, now = self._identity(call, request.member), self.clock()
            report = read_report(request, now)
            for part in parts:
                served = replace(
                    report, digest=part.digest, revision=part.revision, reason=part.reason, hidden=part.hidden
                )
                self.record(part.place, who, served, call.peer, now, pause)
            self._leave_others(who, request.selector, parts)
        return ReportResponse(next_ms=round(pause * 1000)).SerializeToString()

    def _identity(self, call: Call, member: Member) -> MemberIdentity:
        return identity(call, member, self.represented(self.caller(call), member))

    def _leave_others(self, who: MemberIdentity, selector: str, parts: Sequence[SetPart]) -> None:
        """Remove the member from the flag sets that its selector does not mean any more."""
        key, places = (who.key, selector), tuple(part.place for part in parts)
        before = self._ordered.get(key, ())
        if selector.startswith(ORDERS):
            self._ordered[key] = places
        self._remove(who, set(before).difference(places))

    def _remove(self, who: MemberIdentity, places: Iterable[Place]) -> None:
        for place in places:
            if (subscribers := self._subscribers.get(place)) is not None:
                subscribers.membership.remove(who)
                self._report_change(place, subscribers)

    def _admit(self, who: MemberIdentity) -> None:
        """Count one more member. Raises RpcError RESOURCE_EXHAUSTED."""
        self._counted = None
        if who.verified:
            require_quota("receipts", who.namespace, self._verified, self.quota, "--quota-receipts")
            self._verified[who.namespace] += 1
            return
        # Members that are known stay over the limit.
        if self._claimed_total >= self.most_claimed:
            raise RpcError(Code.RESOURCE_EXHAUSTED, "too many members without a token")
        if self._claimed[who.host] >= self.most_per_host:
            raise RpcError(
                Code.RESOURCE_EXHAUSTED,
                f"{self.most_per_host} members without a token from this address already; raise "
                "--max-streams-per-host, or give the evaluators tokens",
            )
        self._claimed[who.host] += 1
        self._claimed_total += 1

    def _subscribers_of(self, place: Place) -> Subscribers:
        subscribers = self._subscribers.get(place)
        if subscribers is None:
            subscribers = self._subscribers[place] = Subscribers(Membership(self.pods))
        self._refresh(place, subscribers)
        return subscribers

    def _refresh(self, place: Place, subscribers: Subscribers) -> None:
        expected = self.expected(place)
        digest, observed = ("", None) if expected is None else (expected.digest, expected.observed_at)
        subscribers.owner = None if expected is None else expected.owner
        subscribers.membership.set_expected(digest, observed, self.clock())

    def _report_change(self, place: Place, subscribers: Subscribers) -> None:
        if subscribers.reported != subscribers.state:
            subscribers.reported = subscribers.state
            self.changed(place)

    def _pause(self) -> float:
        members = sum(len(subscriber.membership) for subscriber in self._subscribers.values())
        return max(PAUSE, min(LATEST, members / self.reports_per_second))
