"""The status of a FlagReceipt, of what a proxy knows of a flag set's members. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import precise_timestamp
from controller.api.receipt import MOST_GROUPS, MOST_LAGGARDS, FlagReceiptStatus, Laggard, ServedGroup, pack

if TYPE_CHECKING:
    from controller.proxy.receipts.members import Alike, Membership
    from controller.proxy.receipts.standing import Standing


_KINDS: Final = tuple(product((False, True), repeat=2))
"""Whether members are silent, and whether they are without a reviewed token."""


def receipt_status(membership: Membership, delivered: int = 0) -> FlagReceiptStatus:
    """The status. `delivered`: streams of subscribers that send no receipts."""
    groups = [
        ServedGroup(digest=digest, revision=revision, silent=silent, claimed=claimed, members=pack(entries))
        for (digest, revision, silent, claimed), entries in _fewer(membership)
    ]
    observed = membership.observed_at
    return FlagReceiptStatus(
        digest=membership.digest,
        observed_at=None if observed is None else moment(observed),
        groups=tuple(groups),
        left=pack(membership.left(claimed=False, lately=True)),
        left_claimed=pack(membership.left(claimed=True, lately=True)),
        left_before=pack(membership.left(claimed=False, lately=False)),
        left_before_claimed=pack(membership.left(claimed=True, lately=False)),
        laggards=tuple(_laggard(each) for each in membership.laggards()[:MOST_LAGGARDS]),
        others=tuple(_laggard(each) for each in membership.abreast(MOST_LAGGARDS)),
        latency={str(number): count for number, count in sorted(membership.latency().items())} or None,
        delivered=delivered,
        claimed=membership.claimed(),
    )


def _fewer(membership: Membership) -> list[tuple[Alike, list[bytes]]]:
    """Reduce groups to as many as a receipt holds: small ones of other digests become one."""
    groups = sorted(membership.groups().items())
    if len(groups) <= MOST_GROUPS:
        return groups
    ordered = sorted(groups, key=lambda each: (each[0][0] != membership.digest, -len(each[1])))
    kept, rest = ordered[: MOST_GROUPS - len(_KINDS)], ordered[MOST_GROUPS - len(_KINDS) :]
    for silent, claimed in _KINDS:
        joined = [entry for alike, entries in rest if alike[2:] == (silent, claimed) for entry in entries]
        kept.append((("", "", silent, claimed), joined))
    return kept


def moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds, in UTC."""
    return precise_timestamp(datetime.fromtimestamp(seconds, UTC))


def _laggard(standing: Standing) -> Laggard:
    who = standing.who
    return Laggard(
        id=who.id.hex(),
        name=who.name,
        node=who.node,
        serves=standing.revision or standing.digest,
        since=moment(standing.since),
        silent=standing.silent,
        claimed=not who.verified,
    )
