"""The members of one flag set at one proxy: what each serves, and which of them lag. Pure.

Silence is measured in ticks, not by a clock: a proxy that was suspended for a minute could receive no
reports, so it must not take its members for silent afterwards.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from controller.api.objects.histogram import step
from controller.api.receipt import entry
from controller.proxy.receipts.standing import MemberIdentity, Report, Standing

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT: Final = 15.0
"""Seconds without a report after which a member is silent, and so a laggard."""
FORGOTTEN: Final = 300.0
"""Seconds without a report after which a member that is not known to be a Pod is removed."""
REMEMBERED: Final = 2 * FORGOTTEN
"""Seconds for which a goodbye is remembered: another proxy may still take the member for silent."""
LONGEST_TICK: Final = 2.0
AHEAD: Final = 5.0
"""Seconds by which a member's clock may be ahead of ours; a later time is cut to that."""
_SAME: Final = 2.0
"""Seconds by which two reports of the same moment may differ, because of the network."""


Alike: TypeAlias = tuple[str, str, bool, bool]
"""What members serve, as digest and revision; whether they are silent, and without a reviewed token."""


class Pods(Protocol):
    """The known Pods."""

    def exists(self, uid: str) -> bool | None:
        """Return whether a Pod with this uid exists; None if that is unknown now."""
        ...

    def ended(self, uid: str) -> bool:
        """Return whether a Pod with this uid is known to be deleted: no other will ever have the uid."""
        ...


@dataclass(slots=True)
class _Member:
    who: MemberIdentity
    report: Report
    last_report: float
    """Time of the last report, in seconds of ticks."""
    reported_at: float
    """Unix seconds."""
    joined_at: float
    said_at: int
    """Time at which it connected by its own clock; `report` limits the time to AHEAD of ours."""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class _Goodbye:
    who: MemberIdentity
    connected_at: int
    last_report: float
    """Time of the last report, in seconds of ticks."""


class Membership:
    """The members of one flag set."""

    def __init__(self, pods: Pods) -> None:
        self.version = 0
        """A number that changes when `groups`, `laggards`, `abreast` or `latency` may return something else.
        """
        self.digest = ""
        """The digest of what is delivered; empty if nothing is."""
        self.observed_at: float | None = None
        """Unix seconds at which the change to it was first observed."""
        self._since = 0.0
        self._pods = pods
        self._awake = 0.0
        self._members: dict[bytes, _Member] = {}
        """Members in the order of their last reports: the silent ones come first."""
        self._silent: dict[bytes, None] = {}
        self._instances: dict[str, bytes] = {}
        """The member id of each process instance: it changes once the token of the process is reviewed."""
        self._left: dict[bytes, _Goodbye] = {}

    def __len__(self) -> int:
        """The number of members."""
        return len(self._members)

    @property
    def empty(self) -> bool:
        """Whether there are neither members nor goodbyes."""
        return not self._members and not self._left

    def deliver(self, digest: str, observed_at: float | None, now: float) -> None:
        """Note that the content with this digest is delivered from `now` on; empty: none is."""
        if digest != self.digest:
            self._since = now
        elif observed_at == self.observed_at:
            return
        self.digest, self.observed_at = digest, observed_at
        self.version += 1

    def hear(self, who: MemberIdentity, report: Report, now: float) -> float | None:
        """Take in a report; one of an earlier connection, or of a deleted Pod, changes nothing.

        Returns the seconds from observed to served if the member followed a change: once for each member and
        content.
        """
        if self._pods.ended(who.pod_uid):
            return None
        key = who.id
        left, known = self._left.get(key), self._members.get(key)
        at = _connected(known, report.connected_at, now)
        if left is not None and self._overtaken(who, at, left):
            return None
        if known is not None and not known.silent and _outranked(who, at, known):
            return None
        self._left.pop(key, None)
        self._rename(who, key)
        joined = now if known is None else known.joined_at
        settled = _settled(known, replace(report, connected_at=at))
        following = _Member(who, settled, self._awake, now, joined, report.connected_at)
        if known is None or known.silent or (known.report, known.who) != (settled, who):
            self.version += 1
        self._silent.pop(key, None)
        # At the end: the dict is in the order of the last reports.
        self._members.pop(key, None)
        self._members[key] = following
        # A member that is new here may have followed long ago, and reported it to another proxy.
        if known is None or known.report.digest == report.digest:
            return None
        return self._latency(following)

    def leave(self, who: MemberIdentity, connected_at: int, now: float) -> None:
        """Note that a member said goodbye."""
        key = who.id
        known = self._members.get(key)
        at = _connected(known, connected_at, now)
        if known is None or _outranked(who, at, known):
            return
        self._forget(key)
        self._left[key] = _Goodbye(who, at, self._awake)

    def pod_gone(self, uid: str) -> None:
        """A Pod was deleted, so its member is removed."""
        for key in [key for key, each in self._members.items() if each.who.pod_uid == uid]:
            self._forget(key)
        for key in [key for key, each in self._left.items() if each.who.pod_uid == uid]:
            del self._left[key]
            self.version += 1

    def tick(self, seconds: float) -> None:
        """Advance the members' time by `seconds`."""
        before = self._awake
        self._awake += min(seconds, LONGEST_TICK)
        for key, member in self._members.items():
            if self._awake - member.last_report < SILENT:
                break
            if not member.silent:
                member.silent = True
                self._silent[key] = None
                self.version += 1
        for key in tuple(self._silent):
            if self._is_over(self._members[key], FORGOTTEN):
                self._forget(key)
        if any(
            before - each.last_report < SILENT <= self._awake - each.last_report
            for each in self._left.values()
        ):
            self.version += 1
        for key in [key for key, each in self._left.items() if self._is_over(each, REMEMBERED)]:
            del self._left[key]
            self.version += 1

    def standings(self) -> Iterator[Standing]:
        """Every member. May be called in a thread beside the loop."""
        for member in tuple(self._members.values()):
            yield self._standing(member)

    def laggards(self) -> list[Standing]:
        """Members that lag, the longest first."""
        found = [
            self._standing(each)
            for each in self._members.values()
            if each.silent or each.report.digest != self.digest
        ]
        return sorted(found, key=lambda each: (each.since, each.who.name))

    def abreast(self, most: int) -> list[Standing]:
        """Up to `most` members that serve what is delivered; the same ones for as long as they do."""
        keys = nsmallest(
            most,
            (
                key
                for key, each in self._members.items()
                if not each.silent and each.report.digest == self.digest
            ),
        )
        return [self._standing(self._members[key]) for key in keys]

    def groups(self) -> dict[Alike, list[bytes]]:
        """Return all members, grouped by what they serve, as lists of `entry`."""
        found: dict[Alike, list[bytes]] = {}
        for key, member in self._members.items():
            report = member.report
            alike = (report.digest, report.revision, member.silent, not member.who.verified)
            found.setdefault(alike, []).append(entry(key, report.connected_at))
        return found

    def left(self, *, claimed: bool, lately: bool) -> list[bytes]:
        """Members that said goodbye: verified ones or, with `claimed`, the others; within the last SILENT
        seconds with `lately`, or before. At other proxies the earlier ones are silent by now, unless they
        came back.
        """
        return [
            entry(key, each.connected_at)
            for key, each in self._left.items()
            if each.who.verified is not claimed and self._fresh(each) is lately
        ]

    def latency(self) -> dict[int, int]:
        """Seconds from observed to served, as a histogram over the members that serve what is delivered."""
        latencies = map(self._latency, self._members.values())
        return dict(Counter(step(seconds) for seconds in latencies if seconds is not None))

    def counts(self) -> tuple[int, int]:
        """(members that report and serve what is delivered, the others). May be called in any thread."""
        members = tuple(self._members.values())
        served = sum(not each.silent and each.report.digest == self.digest for each in members)
        return served, len(members) - served

    def knows(self, who: MemberIdentity) -> bool:
        """Return whether it is a member."""
        return who.id in self._members

    def claims(self) -> Iterator[str]:
        """The addresses of all unverified members and of such goodbyes: anyone can send these."""
        return (who.host for who in self._all() if not who.verified)

    def namespaces(self) -> Iterator[str]:
        """The namespaces of all verified members, with those that said goodbye."""
        return (who.namespace for who in self._all() if who.verified)

    def claimed(self) -> int:
        """The number of unverified members."""
        return sum(not each.who.verified for each in self._members.values())

    def _all(self) -> Iterator[MemberIdentity]:
        known = (each.who for each in self._members.values())
        gone = (each.who for each in self._left.values())
        return chain(known, gone)

    def _latency(self, member: _Member) -> float | None:
        """Seconds from observed to served; None for one that serves something else, or had nothing before."""
        report = member.report
        if self.observed_at is None or not report.replaced or report.digest != self.digest:
            return None
        return max(0.0, report.served_at - self.observed_at)

    def _standing(self, member: _Member) -> Standing:
        report, wrong = member.report, member.report.digest != self.digest
        if member.silent:
            since = member.reported_at
        else:
            since = max(self._since, member.joined_at) if wrong else report.served_at
        silent = member.silent
        return Standing(member.who, report.digest, report.revision, silent, silent or wrong, since)

    def _rename(self, who: MemberIdentity, key: bytes) -> None:
        if not who.instance:
            return
        before = self._instances.get(who.instance, key)
        earlier = self._members.get(before)
        if before != key and earlier is not None and not earlier.who.verified:
            self._forget(before)
        self._instances[who.instance] = key

    def _forget(self, key: bytes) -> None:
        member = self._members.pop(key, None)
        if member is not None:
            if self._instances.get(member.who.instance) == key:
                del self._instances[member.who.instance]
            self._silent.pop(key, None)
            self.version += 1

    def _is_over(self, known: _Member | _Goodbye, seconds: float) -> bool:
        """Whether its last report is so long ago, and no event of its Pod will remove it. While Pods are
        unknown no member is removed.
        """
        uid = known.who.pod_uid
        kept = bool(uid) and self._pods.exists(uid) is not False
        return self._awake - known.last_report >= seconds and not kept

    def _overtaken(self, who: MemberIdentity, at: int, goodbye: _Goodbye) -> bool:
        """Whether a report was sent before the goodbye. No report is under way for SILENT seconds: a later
        one is of a member whose clock was set back.
        """
        if who.verified and not goodbye.who.verified:
            return False
        return at <= goodbye.connected_at and self._fresh(goodbye)

    def _fresh(self, goodbye: _Goodbye) -> bool:
        return self._awake - goodbye.last_report < SILENT


def _connected(known: _Member | None, said_at: int, now: float) -> int:
    """Return when a member connected, in ms since 1970: the same in each report of one connection."""
    if known is not None and known.said_at == said_at:
        return known.report.connected_at
    return min(said_at, int((now + AHEAD) * 1000))


def _outranked(who: MemberIdentity, at: int, known: _Member) -> bool:
    """Whether a report is of an earlier connection, or claims without a token to be of a verified member."""
    if who.verified is not known.who.verified:
        return known.who.verified
    return at < known.report.connected_at


def _settled(known: _Member | None, report: Report) -> Report:
    """The report with the time of the first one of the same content: the network makes later ones differ."""
    if known is None:
        return report
    before = known.report
    if before.digest != report.digest or abs(before.served_at - report.served_at) >= _SAME:
        return report
    return replace(report, served_at=before.served_at, replaced=before.replaced)
