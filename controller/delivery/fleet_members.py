"""Sums up the FlagReceipts of all proxies. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.flagreceipt import FlagReceiptStatus, Laggard, UnsavedMember


@dataclass(frozen=True, slots=True)
class Count:
    """How many members serve a digest, and which of them lag."""

    served: int = 0
    """Members that serve the digest that was asked for, and are not silent."""
    total: int = 0
    silent: int = 0
    laggards: tuple[Laggard, ...] = ()
    """The laggards that proxies name, the longest first."""
    delivered: int = 0
    """Streams of subscribers that send no receipts."""
    slowest: float | None = None
    """Seconds from the change until the last member that followed it served it."""
    unsaved: int = 0
    """Members whose last good set is not saved."""
    unsaved_members: tuple[UnsavedMember, ...] = ()
    """Those that proxies name."""

    @property
    def lagging(self) -> int:
        """Members that do not serve it, or are silent."""
        return self.total - self.served


def count(receipts: Sequence[FlagReceiptStatus], digest: str) -> Count:
    """Count who serves `digest`, by all receipts."""
    groups = [group for receipt in receipts for group in receipt.groups]
    silent = sum(receipt.silent for receipt in receipts)
    # A proxy that delivers something else judges its members by that: its laggards may be none, and those
    # that are up to date for it may lag.
    named = [
        member
        for receipt in receipts
        for member in (*receipt.laggards, *receipt.up_to_date)
        if member.silent or member.reason or member.digest != digest
    ]
    slowest = [receipt.slowest_ms for receipt in receipts if receipt.digest == digest]
    unsaved = [member for receipt in receipts for member in receipt.unsaved_members]
    return Count(
        served=sum(group.count for group in groups if group.digest == digest),
        total=sum(group.count for group in groups) + silent,
        silent=silent,
        laggards=tuple(sorted(named, key=lambda laggard: (laggard.since, laggard.name))),
        delivered=sum(receipt.delivered for receipt in receipts),
        slowest=max(
            (milliseconds / 1000 for milliseconds in slowest if milliseconds is not None), default=None
        ),
        unsaved=sum(receipt.unsaved for receipt in receipts),
        unsaved_members=tuple(sorted(unsaved, key=lambda member: member.name)),
    )
