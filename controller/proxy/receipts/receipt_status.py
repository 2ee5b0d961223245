"""The status of a FlagReceipt, of what a proxy knows of a flag set's members. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from heapq import nsmallest
from typing import TYPE_CHECKING

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
from controller.api.objects.meta import precise_timestamp

if TYPE_CHECKING:
    from controller.proxy.receipts.members import Member, Membership


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
        observed_at=None if observed is None else moment(observed),
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


def moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds, in UTC."""
    return precise_timestamp(datetime.fromtimestamp(seconds, UTC))


def _laggard(member: Member) -> Laggard:
    who, report = member.who, member.report
    return Laggard(
        name=who.name,
        node=who.node,
        digest=report.digest,
        serves=report.revision or report.digest,
        since=moment(member.since),
        silent=member.silent,
        claimed=not who.verified,
        reason=report.reason,
    )
