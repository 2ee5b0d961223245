"""Decides which callers may open a stream, and which objects they may read.

With `enforce` a flagSetId that several objects have means the oldest among those that the caller may `get`,
so each reader has a view of its own. Otherwise everybody has the same view.

`off` reviews nothing. `warn` serves everybody at once, and counts and names the callers that `enforce` would
refuse, each once in an Event, again after a restart. `enforce` refuses: UNAUTHENTICATED without a token of
this cluster, PERMISSION_DENIED where its user may not `get` the FeatureFlagConfiguration or is not one of the
ordered pods, UNAVAILABLE while no review is possible. A handler must return at once, so a stream stays open
without a message until its token is reviewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.delivery.standing_orders import OrderedPods
from controller.proxy.catalog import Identified, Named, ObjectCatalog, Topic, parse
from controller.proxy.stream_limits import StreamLimits
from controller.proxy.users import ANONYMOUS, Caller, User, bearer
from controller.runtime.event import Occurrence
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Call, Code, MessageStream, RpcError, header, host_of
from evaluator.wire.sync_messages import SELECTOR_HEADER, SyncMethod, read_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable

    from controller.api.meta import Resource
    from controller.delivery.claims import Place
    from controller.proxy.access import AccessReviews
    from controller.proxy.orders import OrderObjects
    from evaluator.http.routes import StreamHandler


MOST_PLACES: Final = 1_000
MOST_NAMES: Final = 200
"""Subscribers of one object that are remembered."""
MOST_LISTED: Final = 5
"""Names in one Event."""
_WHY: Final = {
    "no_token": "sent no token",
    "invalid_token": "sent a token that the cluster does not know",
    "forbidden": "may not get this object",
}


class Notices:
    """Remembers the callers that Events have named."""

    def __init__(self, catalog: ObjectCatalog) -> None:
        self._catalog = catalog
        self._named: dict[tuple[Place, str], dict[str, bool]] = {}
        """Subscribers by place and reason, and whether an Event has named them."""

    def add(self, place: Place, who: str, why: str) -> None:
        """`who` was served the flags at `place`, which it may not read; `why` is the result of a review."""
        key = place, why
        if key not in self._named and len(self._named) >= MOST_PLACES:
            return
        names = self._named.setdefault(key, {})
        if len(names) < MOST_NAMES:
            names.setdefault(who, False)

    def take(self) -> list[tuple[Resource, Occurrence]]:
        """(object, Event) of every subscriber that no Event has named yet."""
        events = []
        for (place, why), names in self._named.items():
            served = self._catalog.object_at(place)
            new = [name for name, named in names.items() if not named]
            if not new or served is None:
                continue
            names.update(dict.fromkeys(new, True))
            who, them = ("subscribers", "them") if len(new) > 1 else ("subscriber", "it")
            message = f"{who} {_list_names(new)} {_WHY[why]}; --auth enforce would reject {them}"
            events.append((served, Occurrence("UnauthenticatedSubscriber", message, warning=True)))
        return events


def _list_names(names: Iterable[str]) -> str:
    some = sorted(names)
    rest = f" and {len(some) - MOST_LISTED} more" if len(some) > MOST_LISTED else ""
    return ", ".join(some[:MOST_LISTED]) + rest


AGAIN_SECONDS: Final = 2.0
"""After a review that the API server did not answer."""


class ReaderViews:
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


_log = logging.getLogger(__name__)

MOST_CLAIMS: Final = 16
"""Objects with one flagSetId that are reviewed for a reader before its stream starts."""
OFF, WARN, ENFORCE = "off", "warn", "enforce"
ALLOWED, NO_TOKEN, INVALID_TOKEN, FORBIDDEN, UNKNOWN = (
    "allowed", "no_token", "invalid_token", "forbidden", "unknown",
)  # fmt: skip
"""The result of a review, as the metric has it."""
_REFUSALS: Final = {
    NO_TOKEN: (Code.UNAUTHENTICATED, "send a bearer token of your service account in `authorization`"),
    INVALID_TOKEN: (Code.UNAUTHENTICATED, "the cluster does not know this token, or it has expired"),
    UNKNOWN: (Code.UNAVAILABLE, "the cluster cannot review the token at the moment"),
}


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    """One open stream."""

    host: str
    topic: Hashable
    reader: str
    """The reader whose rights it depends on; empty where no rights are needed."""
    caller: Caller
    """The caller, by the last review of its token."""


class Authorizer:
    """Admits streams to the sync service, and counts those that are open."""

    def __init__(
        self,
        mode: str,
        access: AccessReviews,
        views: ReaderViews,
        catalog: ObjectCatalog,
        notices: Notices,
        limits: StreamLimits,
    ) -> None:
        """`mode` is OFF, WARN or ENFORCE; `notices` receive the callers that ENFORCE would refuse."""
        self.mode = mode
        self.limits = limits
        """Limits of open streams."""
        self.results: Counter[str] = Counter()
        """Streams by the result of their review."""
        self.waiting = StreamLimits(limits.most, limits.most_per_host)
        """Limits of streams that wait for a review."""
        self._access = access
        self._views = views
        self._catalog = catalog
        self._notices = notices
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: Counter[tuple[str, Hashable]] = Counter()
        """Open streams by reader and topic."""
        self._by_pod: dict[str, set[OpenStream]] = {}
        """Open streams by the uid of the Pod whose token opened them."""

    @property
    def busy(self) -> bool:
        """Whether anything is being reviewed."""
        return bool(self._tasks)

    # -- before a stream

    def stream(self, method: SyncMethod, handler: StreamHandler) -> StreamHandler:
        """`handler` for callers that may read the selected object."""

        def open_stream(call: Call, message: bytes, stream: MessageStream) -> None:
            asked = header(call.headers, SELECTOR_HEADER)
            selector = read_selector(message) if asked is None else asked
            self._authorize(parse(selector), call, stream, partial(handler, call, message, stream))

        return open_stream

    def for_any_user(self, handler: StreamHandler) -> StreamHandler:
        """`handler` for callers with any token of this cluster."""

        def open_stream(call: Call, message: bytes, stream: MessageStream) -> None:
            self._authorize(None, call, stream, partial(handler, call, message, stream))

        return open_stream

    def _authorize(
        self, topic: Topic | None, call: Call, stream: MessageStream, start: Callable[[], None]
    ) -> None:
        if self.mode != ENFORCE:
            start()
            if self.mode == WARN:
                self._observe(topic, call)
            return
        if bearer(call) is None:
            self.results[NO_TOKEN] += 1
            raise RpcError(*_REFUSALS[NO_TOKEN])
        if self._allowed_already(topic, call):
            self.results[ALLOWED] += 1
            start()
            return
        host = host_of(call.peer)
        self.waiting.take(host)
        waiting = self._spawn(self._admit(topic, call, stream, start))
        waiting.add_done_callback(lambda _: self.waiting.give(host))
        stream.on_closed = partial(_cancel, waiting)

    def _allowed_already(self, topic: Topic | None, call: Call) -> bool:
        user = self._access.known_user(call)
        if user is None or isinstance(topic, Identified):
            return False
        if isinstance(topic, OrderedPods):
            return self._views.covers(user.caller, topic) is True
        place = None if topic is None else (topic.namespace, topic.name)
        return place is None or self._access.readable(user.reader, place) is True

    async def _admit(
        self, topic: Topic | None, call: Call, stream: MessageStream, start: Callable[[], None]
    ) -> None:
        result, user = await self._review(topic, call)
        self.results[result] += 1
        stream.on_closed = None
        if stream.closed:
            return
        if result != ALLOWED:
            refusal = (Code.PERMISSION_DENIED, f"{user} may not get {topic}")
            stream.close(*_REFUSALS.get(result, refusal))
            return
        try:
            start()
        except RpcError as error:
            stream.close(error.code, error.message)
        except Exception:  # noqa: BLE001 - logged; the port says the same of a handler that fails
            _log.exception("%s failed", call.path)
            stream.close(Code.INTERNAL, "internal error")

    async def _review(self, topic: Topic | None, call: Call) -> tuple[str, str]:
        """(result, user name) of a call. Raises nothing but CancelledError."""
        token = bearer(call)
        if token is None:
            return NO_TOKEN, ""
        try:
            user = await self._access.user(token, host_of(call.peer))
            if user is None:
                return INVALID_TOKEN, ""
            allowed = await self._may(user, topic)
        except Failed as failure:
            _log.warning("a token cannot be reviewed: %s", failure.message)
            return UNKNOWN, ""
        return (ALLOWED if allowed else FORBIDDEN), user.name

    async def _may(self, user: User, topic: Topic | None) -> bool:
        if isinstance(topic, Named):
            return await self._access.may_read(user, (topic.namespace, topic.name))
        if isinstance(topic, Identified):
            # The view decides which of them is sent; anybody may wait for one.
            for place in self._catalog.holders(topic.flag_set_id, user.caller.namespace)[:MOST_CLAIMS]:
                if await self._access.may_read(user, place):
                    break
        if isinstance(topic, OrderedPods):
            covers = self._views.covers(user.caller, topic)
            if covers is None:
                raise Failed("PodUnknown", f"this proxy does not know pod {user.caller.pod} with orders yet")
            return covers
        return True

    # -- open streams

    def begin(self, call: Call, topic: Hashable, *, lasting: bool) -> OpenStream:
        """Count a stream that is about to start. Raises RpcError RESOURCE_EXHAUSTED if there are too many."""
        user = self._access.last_known(call)
        subscription = OpenStream(
            host_of(call.peer),
            topic,
            self._views.reader(call) if lasting else "",
            ANONYMOUS if user is None else user.caller,
        )
        self.limits.take(subscription.host, subscription.caller.namespace)
        if subscription.reader:
            self._open[subscription.reader, topic] += 1
            if subscription.caller.pod_uid:
                self._by_pod.setdefault(subscription.caller.pod_uid, set()).add(subscription)
        return subscription

    def end(self, subscription: OpenStream) -> None:
        """Uncount a stream that has ended."""
        self.limits.give(subscription.host, subscription.caller.namespace)
        if subscription in self._by_pod.get(subscription.caller.pod_uid, ()):
            self._by_pod[subscription.caller.pod_uid].discard(subscription)
            if not self._by_pod[subscription.caller.pod_uid]:
                del self._by_pod[subscription.caller.pod_uid]
        if subscription.reader:
            key = subscription.reader, subscription.topic
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def streams_of_pod(self, uid: str) -> frozenset[OpenStream]:
        """Open streams that depend on a right and were opened with the token of this Pod."""
        return frozenset(self._by_pod.get(uid, ()))

    async def revoked_streams(self) -> set[tuple[str, Hashable]]:
        """(reader, topic) of open streams whose reader lost the right. Without an API server nobody does."""
        lost: set[tuple[str, Hashable]] = set()
        for reader, topic in tuple(self._open):
            user = self._access.user_of(reader)
            if user is None or not isinstance(topic, Named):
                continue
            try:
                if not await self._access.may_read(user, (topic.namespace, topic.name)):
                    lost.add((reader, topic))
            except Failed:
                continue
        return lost

    def close(self) -> None:
        """Review nothing more; streams that wait end with their connections."""
        for task in tuple(self._tasks):
            task.cancel()

    # -- `warn`

    def _observe(self, wanted: Topic | None, call: Call) -> None:
        topic = self._served_object(wanted)
        if bearer(call) is None:
            self._count(topic, call, NO_TOKEN, "")
        elif self._allowed_already(topic, call):
            self.results[ALLOWED] += 1
        elif len(self._tasks) < self.limits.most:

            async def observe() -> None:
                self._count(topic, call, *await self._review(topic, call))

            self._spawn(observe())
        else:
            self.results[UNKNOWN] += 1

    def _served_object(self, topic: Topic | None) -> Topic | None:
        """The object that `warn` serves for a flagSetId: that is what the caller needs the right to."""
        if not isinstance(topic, Identified):
            return topic
        holders = self._catalog.holders(topic.flag_set_id)
        return Named(*holders[0]) if holders else topic

    def _count(self, topic: Topic | None, call: Call, result: str, user: str) -> None:
        self.results[result] += 1
        if result in {NO_TOKEN, INVALID_TOKEN, FORBIDDEN} and isinstance(topic, Named):
            place = (topic.namespace, topic.name)
            self._notices.add(place, user or host_of(call.peer), result)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
