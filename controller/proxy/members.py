"""The members of one flag set at one proxy: what each serves, and which of them lag. Pure.

A member is there while its stream is open. One without a stream of its own, which reads its flags from a
file, is there until it says goodbye or has been silent for long. Silence is measured in ticks, not by a
clock: a proxy that was suspended for a minute could receive no reports, so it must not take its members for
silent afterwards.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from controller.api.flagreceipt import (
    MOST_GROUPS,
    MOST_HIDDEN,
    MOST_NAMED,
    FlagReceiptStatus,
    HiddenOverride,
    Laggard,
    ServedGroup,
    UnsavedMember,
)
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator


PAUSE: Final = 5.0
"""Seconds between two reports of a member, unless it was asked for others."""
SILENT: Final = 15.0
"""Seconds without a report after which a member is silent, and so a laggard; or gone, if its stream is. One
that was asked to report seldom has more.
"""
_PATIENCE: Final = 1.5
"""The share of the pause that a member was asked for after which it is silent: a report that failed is sent
again within seconds.
"""
FORGOTTEN: Final = 300.0
"""Seconds without a report after which a member is removed."""
LONGEST_TICK: Final = 2.0


class Pods(Protocol):
    """The known Pods."""

    def has_ended(self, uid: str) -> bool:
        """Return whether a Pod with this uid is known to be deleted: no other will ever have the uid."""
        ...


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The identity of a member."""

    namespace: str
    pod: str
    """Empty outside pods."""
    pod_uid: str
    instance: str
    node: str = ""
    version: str = ""
    verified: bool = False
    """Whether a reviewed token names the namespace and the pod; otherwise the member claims them."""
    host: str = field(default="", compare=False)
    """The address that its reports come from."""

    @property
    def key(self) -> MemberKey:
        """Return the same key for all processes of a pod, one after another. With a Pod uid the namespace
        does not count: unverified members could claim any.
        """
        if self.pod_uid:
            return ("pod", "", self.pod_uid)
        return ("pod", self.namespace, self.pod) if self.pod else ("instance", "", self.instance)

    @property
    def name(self) -> str:
        """Return the name for people."""
        if not self.pod:
            return self.instance
        return f"{self.namespace}/{self.pod}" if self.namespace else self.pod


MemberKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What a member reports."""

    digest: str = ""
    revision: str = ""
    served_at: float = 0.0
    """Unix seconds on our clock."""
    replaced: bool = False
    """Whether it replaced a content that was delivered before."""
    unsaved: str = ""
    """Why its last good set is not on its disk; empty: it is."""
    reason: str = ""
    """Why it is not sent the set, and keeps what it has of it; empty: it is sent it."""
    hidden: tuple[tuple[str, str], ...] = ()
    """(key, set) of flags under an override that it has from another set."""


@dataclass(slots=True)
class Member:
    """A member, and whether it lags."""

    who: MemberIdentity
    report: MemberReport
    peer: str
    """The connection of its last report."""
    last_report: float
    """Time of the last report, in seconds of ticks."""
    reported_at: float
    """Unix seconds."""
    joined_at: float
    silent_after: float = SILENT
    """Seconds."""
    streamed: bool = False
    """Whether it has had a stream on its connection."""
    kept_since: float = 0.0
    """Unix seconds: since when it is not sent the set, for the reason that it reports."""
    silent: bool = False
    lagging: bool = False
    since: float = 0.0
    """Unix seconds: since when it lags, or has served what it serves."""


class Membership:
    """The members of one flag set."""

    def __init__(self, pods: Pods) -> None:
        self.version = 0
        """A number that changes when a receipt's status may."""
        self.digest = ""
        """The digest of what is delivered; empty if nothing is."""
        self.observed_at: float | None = None
        """Unix seconds at which the change to it was first observed."""
        self._since = 0.0
        self._pods = pods
        self._awake = 0.0
        self._members: dict[MemberKey, Member] = {}
        """Members in the order of their last reports: the silent ones come first."""
        self._instances: dict[str, MemberKey] = {}
        """The key of each process: it changes once the token of the process is reviewed."""
        self._streams: Counter[str] = Counter()
        """Open streams of members, by connection."""

    def __len__(self) -> int:
        """The number of members."""
        return len(self._members)

    @property
    def empty(self) -> bool:
        """Whether there are neither members nor streams of members."""
        return not self._members and not self._streams

    def set_expected(self, digest: str, observed_at: float | None, now: float) -> None:
        """Note that the content with this digest is delivered from `now` on; empty: none is."""
        if digest != self.digest:
            self._since = now
        elif observed_at == self.observed_at:
            return
        self.digest, self.observed_at = digest, observed_at
        self.version += 1

    def record_report(
        self, who: MemberIdentity, report: MemberReport, peer: str, now: float, pause: float = PAUSE
    ) -> float | None:
        """Take in a report that came over the connection `peer`; one of a deleted Pod, or a claim to be a
        verified member, changes nothing. `pause`: the seconds until the next one that the member is told.

        Returns the seconds from observed to served if the member followed a change: once for each member and
        content.
        """
        known = self._members.get(who.key)
        if self._pods.has_ended(who.pod_uid) or (known is not None and _is_forged(who, known)):
            return None
        self._rename(who)
        if known is not None and known.report.digest == report.digest:
            # The network makes later reports of one content differ.
            before = known.report
            report = replace(report, served_at=before.served_at, replaced=before.replaced)
        joined = now if known is None else known.joined_at
        streamed = known is not None and known.peer == peer and known.streamed
        streamed = streamed or self._streams[peer] > 0
        kept = now if known is None or known.report.reason != report.reason else known.kept_since
        silent_after = max(SILENT, _PATIENCE * pause)
        member = Member(who, report, peer, self._awake, now, joined, silent_after, streamed, kept)
        if known is None or known.silent or (known.report, known.who) != (report, who):
            self.version += 1
        # At the end: the dict is in the order of the last reports.
        self._members.pop(who.key, None)
        self._members[who.key] = member
        # A member that is new here may have followed long ago, and reported it to another proxy.
        followed = known is not None and known.report.digest != report.digest
        return self._seconds_to_follow(member) if followed else None

    def remove(self, who: MemberIdentity) -> None:
        """A member said goodbye."""
        known = self._members.get(who.key)
        if known is not None and not _is_forged(who, known):
            self._forget(known)

    def stream_opened(self, peer: str) -> None:
        """A member opened a stream on this connection."""
        self._streams[peer] += 1
        for member in self._members.values():
            member.streamed = member.streamed or member.peer == peer

    def stream_ended(self, peer: str) -> None:
        """A stream of a member on this connection ended."""
        self._streams[peer] -= 1
        if not self._streams[peer]:
            del self._streams[peer]

    def pod_gone(self, uid: str) -> None:
        """A Pod was deleted, so its member is removed."""
        for member in [member for member in self._members.values() if member.who.pod_uid == uid]:
            self._forget(member)

    def tick(self, seconds: float) -> None:
        """Advance the members' time by `seconds`."""
        self._awake += min(seconds, LONGEST_TICK)
        for member in list(takewhile(self._is_quiet, self._members.values())):
            if self._awake - member.last_report < member.silent_after:
                continue
            left = member.streamed and not self._streams[member.peer]
            if left or self._awake - member.last_report >= FORGOTTEN:
                self._forget(member)
            elif not member.silent:
                member.silent = True
                self.version += 1

    def identities(self) -> Iterator[MemberIdentity]:
        """Who every member is."""
        return (member.who for member in self._members.values())

    def members(self) -> Iterator[Member]:
        """Every member, judged by what is delivered now. May be called in a thread beside the loop."""
        for member in tuple(self._members.values()):
            wrong = not self._follows(member)
            since = max(self._since, member.joined_at) if wrong else member.report.served_at
            since = member.kept_since if member.report.reason else since
            since = member.reported_at if member.silent else since
            yield replace(member, lagging=member.silent or wrong, since=since)

    def counts(self) -> tuple[int, int]:
        """(members that report and serve what is delivered, the others). May be called in any thread."""
        members = tuple(self._members.values())
        served = sum(not member.silent and self._follows(member) for member in members)
        return served, len(members) - served

    def knows(self, who: MemberIdentity) -> bool:
        """Return whether it is a member."""
        return who.key in self._members

    def slowest(self) -> float | None:
        """Seconds from the change until the last member that followed it served it; None: nobody did."""
        seconds = map(self._seconds_to_follow, self._members.values())
        return max((second for second in seconds if second is not None), default=None)

    def _seconds_to_follow(self, member: Member) -> float | None:
        """None for one that serves something else, or had nothing before."""
        report = member.report
        if self.observed_at is None or not report.replaced or not self._follows(member):
            return None
        return max(0.0, report.served_at - self.observed_at)

    def _follows(self, member: Member) -> bool:
        """Return whether it serves what is delivered, and will be sent what comes next."""
        return member.report.digest == self.digest and not member.report.reason

    def _is_quiet(self, member: Member) -> bool:
        """Return whether it may be silent, by the shortest time for that."""
        return self._awake - member.last_report >= SILENT

    def _rename(self, who: MemberIdentity) -> None:
        if not who.instance:
            return
        earlier = self._members.get(self._instances.get(who.instance, who.key))
        if earlier is not None and earlier.who.key != who.key and not earlier.who.verified:
            self._forget(earlier)
        self._instances[who.instance] = who.key

    def _forget(self, member: Member) -> None:
        del self._members[member.who.key]
        if self._instances.get(member.who.instance) == member.who.key:
            del self._instances[member.who.instance]
        self.version += 1


def _is_forged(who: MemberIdentity, known: Member) -> bool:
    """Whether somebody without a token claims to be a verified member that reports."""
    return known.who.verified and not who.verified and not known.silent


def receipt_status(membership: Membership, delivered: int = 0) -> FlagReceiptStatus:
    """The status. `delivered`: streams of subscribers that send no receipts."""
    members = list(membership.members())
    # Whoever is not sent the set does not follow it, even while it serves the newest.
    served = Counter(
        ("" if m.report.reason else m.report.digest, m.report.revision) for m in members if not m.silent
    )
    hidden = Counter(flag for m in members if not m.silent for flag in set(m.report.hidden))
    laggards = nsmallest(MOST_NAMED, (m for m in members if m.lagging), key=lambda m: (m.since, m.who.name))
    current = nsmallest(MOST_NAMED, (m for m in members if not m.lagging), key=lambda m: m.who.name)
    unsaved = [m for m in members if m.report.unsaved and not m.silent]
    named = nsmallest(MOST_NAMED, unsaved, key=lambda m: m.who.name)
    observed, slowest = membership.observed_at, membership.slowest()
    return FlagReceiptStatus(
        digest=membership.digest,
        observed_at=None if observed is None else time_text(observed),
        groups=_groups(served, membership.digest),
        silent=sum(m.silent for m in members),
        laggards=tuple(map(_laggard, laggards)),
        up_to_date=tuple(map(_laggard, current)),
        slowest_ms=None if slowest is None else round(slowest * 1000),
        unsaved=len(unsaved),
        unsaved_members=tuple(UnsavedMember(name=m.who.name, message=m.report.unsaved) for m in named),
        hidden=tuple(
            HiddenOverride(flag=flag, by=by, count=count)
            for (flag, by), count in nsmallest(MOST_HIDDEN, hidden.items(), key=lambda h: (-h[1], h[0]))
        ),
        delivered=delivered,
        claimed=sum(not m.who.verified for m in members),
    )


def _groups(served: Counter[tuple[str, str]], digest: str) -> tuple[ServedGroup, ...]:
    """As many as a receipt holds: those of other digests that fewest serve become one."""
    ordered = sorted(served.items(), key=lambda item: (item[0][0] != digest, -item[1], item[0]))
    kept, rest = ordered[: MOST_GROUPS - 1], ordered[MOST_GROUPS - 1 :]
    if rest:
        kept.append((("", ""), sum(count for _, count in rest)))
    return tuple(ServedGroup(digest=of, revision=revision, count=count) for (of, revision), count in kept)


def time_text(seconds: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds, in UTC."""
    return precise_timestamp(datetime.fromtimestamp(seconds, UTC))


def _laggard(member: Member) -> Laggard:
    who, report = member.who, member.report
    return Laggard(
        name=who.name,
        node=who.node,
        digest=report.digest,
        serves=report.revision or report.digest,
        since=time_text(member.since),
        silent=member.silent,
        claimed=not who.verified,
        reason=report.reason,
    )
