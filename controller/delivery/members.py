"""Sums up the FlagReceipts of all proxies: a member counts at the one that it connected to last. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from controller.api.objects.histogram import added, quantile, shown
from controller.api.receipt import FlagReceiptStatus, Laggard, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    latency: Mapping[int, int] | None = None
    """A histogram of the proxies that deliver the digest."""

    @property
    def lagging(self) -> int:
        """Members that do not serve it, or are silent."""
        return self.total - self.served

    @property
    def p50(self) -> str | None:
        """Within this half of them served it after it was observed: `38ms`."""
        return self._within(0.5)

    @property
    def p99(self) -> str | None:
        """Within this all but one in a hundred."""
        return self._within(0.99)

    def _within(self, share: float) -> str | None:
        seconds = quantile(self.latency or {}, share)
        return None if seconds is None else shown(seconds)


_Place: TypeAlias = tuple[bool, int, bool, int, str]
"""(verified, connected at, left, number of the proxy, digest); a member is at its greatest place."""
_LEFT, _PROXY, _DIGEST = 2, 3, 4


def count(receipts: Sequence[FlagReceiptStatus], digest: str) -> Count:
    """Count who serves `digest`, by all receipts. Lists that cannot be read are left out."""
    present, silent = _there(receipts)
    return Count(
        served=sum(each[_DIGEST] == digest for each in present.values()),
        total=len(present) + len(silent),
        silent=len(silent),
        laggards=_named(receipts, (present, silent), digest),
        delivered=sum(each.delivered for each in receipts),
        latency=added(_steps(each) for each in receipts if each.digest == digest),
    )


_Places: TypeAlias = "dict[bytes, _Place]"


def _there(receipts: Sequence[FlagReceiptStatus]) -> tuple[_Places, _Places]:
    """(members that report, members that are silent). A member that reports to any proxy is not silent,
    whatever its clock says, and has not left unless it said so within the last seconds.
    """
    spoke: _Places = {}
    silent: _Places = {}
    for proxy, receipt in enumerate(receipts):
        for group in receipt.groups:
            there = (False, proxy, group.digest)
            _place(silent if group.silent else spoke, group.members, not group.claimed, there)
        gone = (True, proxy, "")
        for places in (spoke, silent):
            _place(places, receipt.left, True, gone)
            _place(places, receipt.left_claimed, False, gone)
        _place(silent, receipt.left_before, True, gone)
        _place(silent, receipt.left_before_claimed, False, gone)
    present = {key: each for key, each in spoke.items() if not each[_LEFT]}
    return present, {key: each for key, each in silent.items() if not each[_LEFT] and key not in present}


def _place(places: _Places, members: str, verified: bool, where: tuple[bool, int, str]) -> None:
    try:
        entries = list(unpack(members))
    except ValueError:
        return
    for member, connected_at in entries:
        place = (verified, connected_at, *where)
        known = places.get(member)
        if known is None or place > known:
            places[member] = place


def _named(
    receipts: Sequence[FlagReceiptStatus], there: tuple[_Places, _Places], digest: str
) -> tuple[Laggard, ...]:
    """Laggards, each by the proxy that it is at; if that expects another digest, `digest` decides."""
    present, silent = there
    found: list[Laggard] = []
    for proxy, receipt in enumerate(receipts):
        for each in (*receipt.laggards, *receipt.others):
            key = _id(each)
            place = present.get(key) or silent.get(key)
            if place is None or place[_PROXY] != proxy:
                continue
            if key in silent or place[_DIGEST] != digest:
                found.append(each)
    return tuple(sorted(found, key=lambda each: (each.since, each.name)))


def _id(laggard: Laggard) -> bytes:
    try:
        return bytes.fromhex(laggard.id)
    except ValueError:
        return b""


def _steps(receipt: FlagReceiptStatus) -> dict[int, int]:
    return {
        int(number): count
        for number, count in (receipt.latency or {}).items()
        if number.isascii() and number.isdigit()
    }
