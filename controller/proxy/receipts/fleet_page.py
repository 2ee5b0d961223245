"""`/fleet` on the management port: every member that this proxy knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from controller.proxy.receipts.receipt_status import moment
from evaluator.http.messages import JSON
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from controller.delivery.claim import Place
    from controller.proxy.receipts.members import Member
    from controller.proxy.receipts.receipts import Receipts, Subscribers
    from evaluator.http.messages import Request, Response, Streamed
    from evaluator.http.offload import Offload


def routes(receipts: Receipts, offload: Offload) -> Routes:
    """`GET /fleet`, answered with `fleet` as JSON; made in a thread, since members are many."""

    def answer(request: Request) -> Response | Streamed:
        return offload.answer(request, JSON, lambda: orjson.dumps(fleet(receipts)))

    return Routes(http={("GET", "/fleet"): answer})


def fleet(receipts: Receipts) -> dict[str, Any]:
    """`{"flagSets": [{"namespace", "name", "digest", "served", "total", "delivered", "members": [{"name",
    "node", "version", "verified", "revision", "digest", "silent", "lagging", "since", "unsaved",
    "reason"}]}]}`.
    """
    return {"flagSets": [_flag_set(place, receipt) for place, receipt in receipts.all()]}


def _flag_set(place: Place, subscribers: Subscribers) -> dict[str, Any]:
    members = sorted(subscribers.membership.members(), key=lambda member: member.who.name)
    return {
        "namespace": place[0],
        "name": place[1],
        "digest": subscribers.membership.digest,
        "served": sum(not member.lagging for member in members),
        "total": len(members),
        "delivered": subscribers.streams,
        "members": [_member(member) for member in members],
    }


def _member(member: Member) -> dict[str, Any]:
    who = member.who
    return {
        "name": who.name,
        "node": who.node,
        "version": who.version,
        "verified": who.verified,
        "revision": member.report.revision,
        "digest": member.report.digest,
        "silent": member.silent,
        "lagging": member.lagging,
        "since": moment(member.since),
        "unsaved": member.report.unsaved or None,
        "reason": member.report.reason or None,
    }
