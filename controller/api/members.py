"""The FlagReceipts of several proxies as one count: each member once, where it connected last. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from controller.api.histogram import added, quantile, shown
from controller.api.receipt import FlagReceiptStatus, Laggard, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Count:
    """Who serves what."""

    served: int = 0
    """Members that serve the digest that was asked for, and are heard of."""
    total: int = 0
    silent: int = 0
    laggards: tuple[Laggard, ...] = ()
    """As far as proxies name them, the longest first."""
    revisions: tuple[tuple[str, int], ...] = ()
    """What the others serve that are heard of: revisions or digests, and by how many; empty text: nothing."""
    delivered: int = 0
    """Streams of subscribers that send no receipts."""
    claimed: int = 0
    latency: Mapping[int, int] | None = None
    """By step, of proxies that deliver the digest."""

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


_Place: TypeAlias = tuple[int, bool, bool, int, str, str]
"""When a member connected, whether it left there, whether it is heard of, which proxy that is, and the digest and the revision that it
serves. The greatest is where it is."""
_LEFT, _HEARD, _PROXY, _DIGEST = 1, 2, 3, 4


def count(receipts: Sequence[FlagReceiptStatus], digest: str) -> Count:
    """Who serves `digest`, by all receipts. Lists that cannot be read are left out."""
    places: dict[bytes, _Place] = {}
    for proxy, receipt in enumerate(receipts):
        _place(places, receipt, proxy)
    there = {key: each for key, each in places.items() if not each[_LEFT]}
    served = silent = 0
    others: dict[str, int] = {}
    for _, _, heard, _, serves, revision in there.values():
        if not heard:
            silent += 1
        elif serves == digest:
            served += 1
        else:
            told = revision or serves
            others[told] = others.get(told, 0) + 1
    return Count(
        served=served,
        total=len(there),
        silent=silent,
        laggards=_named(receipts, there, digest),
        revisions=tuple(sorted(others.items(), key=lambda each: (-each[1], each[0]))),
        delivered=sum(each.delivered for each in receipts),
        claimed=sum(each.claimed for each in receipts),
        latency=added(_steps(each) for each in receipts if each.digest == digest),
    )


def _place(places: dict[bytes, _Place], receipt: FlagReceiptStatus, proxy: int) -> None:
    lists = [
        (each.members, each.digest, each.revision, not each.silent, False)
        for each in receipt.groups
    ]
    lists.append((receipt.left, "", "", True, True))
    for members, digest, revision, heard, left in lists:
        try:
            entries = list(unpack(members))
        except ValueError:
            continue
        for member, connected_at in entries:
            place = (connected_at, left, heard, proxy, digest, revision)
            known = places.get(member)
            if known is None or place > known:
                places[member] = place


def _named(
    receipts: Sequence[FlagReceiptStatus], there: Mapping[bytes, _Place], digest: str
) -> tuple[Laggard, ...]:
    """Who lags by its own proxy's word or, where that proxy is behind, by ours; and by where it is known to be."""
    found: list[Laggard] = []
    for proxy, receipt in enumerate(receipts):
        for each in (*receipt.laggards, *receipt.others):
            place = there.get(_id(each))
            if place is None or place[_PROXY] != proxy:
                continue
            if not place[_HEARD] or place[_DIGEST] != digest:
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
        for number, count in receipt.latency.items()
        if number.isascii() and number.isdigit()
    }
