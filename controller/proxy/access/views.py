"""Which objects a subscriber may read, where it asks for a flagSetId that several objects have.

Only with `enforce`: a flagSetId then means the oldest object among those that the caller may `get`, so each
reader has a view of its own. Otherwise everybody has the same view.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.delivery.claim import Place
    from controller.delivery.standing_orders import OrderedPods
    from controller.proxy.access.access import AccessReviews
    from controller.proxy.access.users import Caller, User
    from controller.proxy.orders.order_objects import OrderObjects
    from evaluator.http.messages import Call

AGAIN_SECONDS: Final = 2.0
"""After a review that the API server did not answer."""


class Views:
    """The views of all readers."""

    def __init__(self, access: AccessReviews, orders: OrderObjects, *, enforced: bool) -> None:
        self._access = access
        self._orders = orders
        self._enforced = enforced
        self._reviewing: dict[tuple[str, Place], asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether anything is being reviewed."""
        return bool(self._reviewing)

    def reader(self, call: Call) -> str:
        """The reader whose view a call has; empty: the view of everything."""
        user = self._access.last_known(call) if self._enforced else None
        return "" if user is None else user.reader

    def readable(self, reader: str, place: Place, changed: Callable[[], None]) -> bool | None:
        """Return whether `place` is in a reader's view; None: unknown yet, then `changed` is called."""
        if not reader:
            return not self._enforced
        verdict = self._access.may_see(reader, place)
        user = self._access.user_of(reader) if verdict is None else None
        if user is not None and (reader, place) not in self._reviewing:
            review = asyncio.get_running_loop().create_task(self._review(user, place, changed))
            self._reviewing[reader, place] = review
        return verdict

    def namespace(self, reader: str) -> str:
        """Return the namespace of a reader's service account; empty if it is none, or unknown."""
        user = self._access.user_of(reader) if reader else None
        return "" if user is None else user.caller.namespace

    def covers(self, caller: Caller, topic: OrderedPods) -> bool | None:
        """Whether a caller is one of the topic's pods; None: unknown yet. What is ordered for a pod it
        may read without a right of its account.
        """
        if caller.namespace != topic.namespace or not caller.pod:
            return False
        return self._orders.covers(caller.namespace, caller.pod, topic)

    def close(self) -> None:
        """Review nothing more."""
        for review in tuple(self._reviewing.values()):
            review.cancel()

    async def _review(self, user: User, place: Place, changed: Callable[[], None]) -> None:
        try:
            await self._access.may_read(user, place)
        except Failed:
            await asyncio.sleep(AGAIN_SECONDS)
        finally:
            del self._reviewing[user.reader, place]
        changed()
