"""Which flag set a receipt is about, who sends it and what it should serve; and `/fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from controller.api.flagreceipt import OBSERVED_AT
from controller.delivery.standing_orders import OrderedPods, set_title
from controller.proxy.authorizer import ENFORCE, OFF, Authorizer, OpenStream, ReaderViews
from controller.proxy.catalog import Named, Topic, parse
from controller.proxy.contents import SetPart
from controller.proxy.deliveries import Deliveries, UnreviewedError
from controller.proxy.members import Member, time_text
from controller.proxy.orders import place_of
from controller.proxy.receipts import ExpectedDigest, MemberClaims, Receipts, Subscribers
from evaluator.host.times import parse_time
from evaluator.http.messages import JSON, Call, Code, Request, Response, RpcError, Streamed
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from controller.delivery.claims import Place
    from controller.proxy.access import AccessReviews
    from controller.proxy.users import Caller
    from evaluator.http.offload import Offload


_PENDING: Final = (Code.UNAVAILABLE, "the token is being reviewed; try again")
_MODE_REFUSAL: Final = "receipts need a bearer token of a pod that may get this FeatureFlagConfiguration"


class ReceiptService:
    """Answers what `Receipts` must know of a call and of an object."""

    def __init__(self, deliveries: Deliveries, access: AccessReviews, views: ReaderViews, mode: str) -> None:
        """`mode` is the Authorizer's."""
        self._deliveries = deliveries
        self._access = access
        self._views = views
        self._mode = mode

    def parts(self, selector: str, call: Call, claims: MemberClaims) -> Sequence[SetPart]:
        """Return what a caller that claims this serves of each flag set that a selector means to it: several
        by standing orders, none where there is no such set. Raises RpcError if it may not read them.
        """
        enforced = self._mode == ENFORCE
        # At first: which object a flagSetId means depends on who the caller is.
        if enforced and not self.caller(call).pod:
            raise RpcError(Code.PERMISSION_DENIED, _MODE_REFUSAL)
        topic = cast("Topic", self._deliveries.topic(selector, call))
        if isinstance(topic, OrderedPods):
            if enforced:
                _require(self._views.covers(self.caller(call), topic))
            parts = self._deliveries.ordered.parts(topic, claims.sets)
            return [self._with_hidden(part, claims, topic.namespace) for part in parts]
        try:
            place = self._deliveries.place_sent(topic)
        except UnreviewedError as error:
            raise RpcError(*_PENDING) from error
        if place is None:
            return ()
        if enforced:
            asked = (topic.namespace, topic.name) if isinstance(topic, Named) else place
            _require(self._access.may_read_now(call, asked))
        part = SetPart(place, claims.digest, claims.revision)
        return (self._with_hidden(part, claims, claims.namespace),)

    def _with_hidden(self, part: SetPart, claims: MemberClaims, namespace: str) -> SetPart:
        """Return the part with those of its flags that other sources of a member of `namespace` hide."""
        hidden = [
            (flag.key, self._title(flag.by, namespace))
            for flag in claims.hidden
            if not flag.origin or self._place(flag.origin, namespace) == part.place
        ]
        return part._replace(hidden=(*part.hidden, *hidden))

    def _place(self, origin: str, namespace: str) -> Place | None:
        title = set_title(origin, namespace)
        return None if title is None else place_of(title, self._deliveries.catalog)

    def _title(self, text: str, namespace: str) -> str:
        """Return `Kind/namespace/name` of a set, or of what a selector means; empty: nothing is known."""
        title = set_title(text, namespace)
        if title is not None:
            return "/".join(title)
        try:
            topic = parse(text)
        except RpcError:
            return ""
        if not isinstance(topic, Named):
            return ""
        served = self._deliveries.catalog.object_at((topic.namespace, topic.name))
        return "" if served is None else str(served.key)

    def caller(self, call: Call) -> Caller:
        """Return the caller. Raises RpcError UNAVAILABLE while the token is reviewed: counted without a
        review, the report of a verified member would be lost. With OFF no review is waited for.
        """
        who = self._access.caller(call)
        if self._mode != OFF and self._access.needs_review(call):
            raise RpcError(*_PENDING)
        return who

    def expected_digest(self, place: Place) -> ExpectedDigest | None:
        """What is delivered there now."""
        served, content = self._deliveries.catalog.object_at(place), self._deliveries.contents.of(place)
        if served is None:
            return None
        built = None if content is None else content.built
        return ExpectedDigest(
            owner=served,
            digest="" if built is None else built.digest,
            observed_at=_unix_seconds(served.annotations.get(OBSERVED_AT)),
        )


class StreamObservers:
    """Implements `StreamObserver` of the sync service: tells Authorizer and Receipts of each stream."""

    def __init__(self, authorizer: Authorizer, deliveries: Deliveries, receipts: Receipts) -> None:
        self._authorizer = authorizer
        self._deliveries = deliveries
        self._receipts = receipts
        self._ends: dict[OpenStream, list[Callable[[], None]]] = {}
        """For each stream, the functions that end its part in each flag set."""
        self._movable: dict[OrderedPods | Named, dict[OpenStream, Call]] = {}
        """Streams whose flag sets may change while they are open."""

    def begin(self, call: Call, topic: Hashable, *, lasting: bool) -> object:
        """Count a stream that is about to start. Raises RpcError if there are too many."""
        subscription = self._authorizer.begin(call, topic, lasting=lasting)
        if lasting:
            self._follow(subscription, call)
            if isinstance(topic, OrderedPods | Named):
                self._movable.setdefault(topic, {})[subscription] = call
        return subscription

    def end(self, visit: object) -> None:
        """Uncount a stream that has ended."""
        subscription = cast("OpenStream", visit)
        self._authorizer.end(subscription)
        self._end(subscription)
        if isinstance(topic := subscription.topic, OrderedPods | Named) and topic in self._movable:
            self._movable[topic].pop(subscription, None)
            if not self._movable[topic]:
                del self._movable[topic]

    def move(self, topic: OrderedPods | Named) -> None:
        """Count the streams of a topic with the flag sets that it has now."""
        for subscription, call in tuple(self._movable.get(topic, {}).items()):
            self._end(subscription)
            self._follow(subscription, call)

    def _follow(self, subscription: OpenStream, call: Call) -> None:
        places = self._places(cast("Topic", subscription.topic))
        if places:
            self._ends[subscription] = [self._receipts.follow(place, call) for place in places]

    def _end(self, subscription: OpenStream) -> None:
        for end in self._ends.pop(subscription, ()):
            end()

    def _places(self, topic: Topic) -> Sequence[Place]:
        if isinstance(topic, OrderedPods):
            return self._deliveries.ordered.places(topic)
        place = self._deliveries.place_of(topic)
        if place is not None:
            return (place,)
        # A subscriber that waits for an object is counted for it.
        return ((topic.namespace, topic.name),) if isinstance(topic, Named) else ()


def _require(allowed: bool | None) -> None:
    """Raise RpcError unless it is known that the caller may read the flag set."""
    if allowed is None:
        raise RpcError(*_PENDING)
    if not allowed:
        raise RpcError(Code.PERMISSION_DENIED, _MODE_REFUSAL)


def _unix_seconds(text: str | None) -> float | None:
    """RFC 3339 as Unix seconds; None for what is none."""
    moment = parse_time(text)
    return None if moment is None else moment.timestamp()


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
        "since": time_text(member.since),
        "unsaved": member.report.unsaved or None,
        "reason": member.report.reason or None,
    }
