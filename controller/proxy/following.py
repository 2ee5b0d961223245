"""Receipts joined to the rest of a proxy: which flag set they are about, who may send them, and which streams
send none.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from controller.api.receipt import OBSERVED_AT
from controller.proxy.guard import ENFORCE, OFF
from controller.proxy.receipts import Content, Receipts
from controller.proxy.selector import Named
from controller.proxy.topics import UnreviewedError
from evaluator.http.messages import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from controller.delivery.claims import Place
    from controller.proxy.access import Access, Caller
    from controller.proxy.guard import Guard
    from controller.proxy.members import Pods
    from controller.proxy.selector import Topic
    from controller.proxy.topics import Deliveries
    from evaluator.http.messages import Call

_PENDING: Final = (Code.UNAVAILABLE, "it is being asked whose token this is; try again")
_MODE_REFUSAL: Final = "receipts need a bearer token of a pod that may get this FeatureFlagConfiguration"


class Following:
    """Implements `StreamObserver` around the guard's."""

    def __init__(
        self,
        deliveries: Deliveries,
        access: Access,
        guard: Guard,
        pods: Pods,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is Unix seconds."""
        self._deliveries = deliveries
        self._access = access
        self._guard = guard
        self._ends: dict[object, Callable[[], None]] = {}
        self.receipts = Receipts(
            place=self.place,
            content=self.content,
            caller=self.caller,
            pods=pods,
            clock=clock,
            most_per_host=guard.seats.most_per_host,
        )

    # -- streams -------------------------------------------------------------------------------------------------------

    def entered(self, call: Call, topic: Hashable, *, lasting: bool) -> object:
        """A stream is about to start; the guard may refuse it."""
        visit = self._guard.entered(call, topic, lasting=lasting)
        place = self._place_of(topic) if lasting else None
        if place is not None:
            self._ends[visit] = self.receipts.followed(place, call)
        return visit

    def left(self, visit: object) -> None:
        """It has ended."""
        self._guard.left(visit)
        end = self._ends.pop(visit, None)
        if end is not None:
            end()

    # -- receipts ------------------------------------------------------------------------------------------------------

    def place(self, selector: str, call: Call) -> Place | None:
        """Which object a selector means to a caller. Raises RpcError for a caller who may not read it."""
        enforced = self._guard.mode == ENFORCE
        # First: whose view of flagSetIds it has can be told only of one who is known.
        if enforced and not self.caller(call).pod:
            raise RpcError(Code.PERMISSION_DENIED, _MODE_REFUSAL)
        topic = cast("Topic", self._deliveries.topic(selector, call))
        try:
            place = self._deliveries.place_told(topic)
        except UnreviewedError as error:
            raise RpcError(*_PENDING) from error
        if place is not None and enforced:
            allowed = self._access.may_read_now(call, place)
            if allowed is None:
                raise RpcError(*_PENDING)
            if not allowed:
                raise RpcError(Code.PERMISSION_DENIED, _MODE_REFUSAL)
        return place

    def caller(self, call: Call) -> Caller:
        """Who calls. Raises RpcError UNAVAILABLE while it is asked whose token it bears: taken for a claim
        meanwhile, a report of a member that is vouched for would be lost. Where `off` looks at nothing,
        nobody need be able to say.
        """
        who = self._access.caller(call)
        if self._guard.mode != OFF and self._access.undecided(call):
            raise RpcError(*_PENDING)
        return who

    def content(self, place: Place) -> Content | None:
        """What is delivered there, as it is known now."""
        seen, delivered = (
            self._deliveries.catalog.served(place),
            self._deliveries.contents.of(place),
        )
        if seen is None:
            return None
        built = None if delivered is None else delivered.built
        return Content(
            owner=seen.meta,
            digest="" if built is None else built.digest,
            observed_at=_moment(seen.meta.annotations.get(OBSERVED_AT)),
        )

    def _place_of(self, topic: Any) -> Place | None:
        if isinstance(topic, Named):
            return topic.namespace, topic.name
        return self._deliveries.place_of(topic)


def _moment(text: str | None) -> float | None:
    """RFC 3339 as Unix seconds; None for what is none."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
