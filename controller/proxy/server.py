"""Joins the parts of a proxy, from the catalog to the routes, and runs one replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.delivery.standing_orders import OrderedPods
from controller.proxy.access import VERDICT_SECONDS, AccessReviews
from controller.proxy.authorizer import ENFORCE, Authorizer, Notices, OpenStream, ReaderViews
from controller.proxy.catalog import ObjectCatalog, Topics
from controller.proxy.contents import Contents
from controller.proxy.deliveries import Deliveries, OrderedTopics
from controller.proxy.node_pods import NodeEvaluators, NodePods
from controller.proxy.orders import OrderNotices, OrderObjects
from controller.proxy.progress_objects import ProgressObjects
from controller.proxy.receipt_service import ReceiptService, StreamObservers
from controller.proxy.receipts import Receipts
from controller.proxy.stream_limits import StreamLimits
from controller.proxy.watch import Reactions, informer_of_objects
from controller.runtime.event import EventSink, event_of
from controller.runtime.limits import UNLIMITED, NamespaceLimits
from controller.runtime.process import forever
from evaluator.http.messages import Call, Code, MessageStream
from evaluator.http.routes import Routes, merge
from evaluator.http.scheduler import FairQueue
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import SyncService
from evaluator.wire.sync_messages import GET_METADATA, METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from controller.delivery.claims import Place
    from controller.proxy.members import Pods
    from controller.proxy.recording import Recorder
    from evaluator.http.listener import Listener


ENFORCED_STREAM_SECONDS = 3600
"""Tokens live about as long: a client then opens another stream, with its newest token."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The options of a proxy's server."""

    context: Mapping[str, Any]
    """Laid over evaluation contexts by in-process providers."""
    auth: str
    """`off`, `warn` or `enforce`."""
    max_streams: int
    max_streams_per_host: int
    stream_seconds: int
    """A stream ends after so long; 0: never, or after ENFORCED_STREAM_SECONDS with `enforce`."""
    limits: NamespaceLimits = UNLIMITED
    """Limits by the namespaces of callers."""
    node_evaluators: str = ""
    """`namespace/name` of the service account of evaluators that serve all pods of a node; empty: none."""


@dataclass(frozen=True, slots=True)
class ReceiptPorts:
    """What `Receipts` need of the process: see there."""

    pods: Pods
    on_nodes: NodePods
    clock: Callable[[], float]
    changed: Callable[[Place], None] = lambda _place: None
    served_after: Callable[[float], None] = lambda _seconds: None


class Proxy:
    """What one process serves, on the loop that it is made on."""

    def __init__(
        self,
        options: ProxyOptions,
        access: AccessReviews,
        ports: ReceiptPorts,
        loop: asyncio.AbstractEventLoop,
        *,
        namespaces: Collection[str] = ("",),
        order_kinds: Collection[str] = (),
    ) -> None:
        """`namespaces` are watched one by one; an empty name is all of them. `order_kinds`: those of
        ORDER_KINDS that are watched.
        """
        enforced = options.auth == ENFORCE
        limits = StreamLimits(options.max_streams, options.max_streams_per_host, options.limits.streams)
        self.access = access
        self.informer = informer_of_objects()
        self.catalog = ObjectCatalog(self.informer.store)
        self.notices = Notices(self.catalog)
        self.orders = OrderObjects(self.informer, order_kinds, namespaces)
        self.progress = ProgressObjects(ports.clock, loop, self.informer.store)
        self.order_notices = OrderNotices()
        self.views = ReaderViews(access, self.orders, enforced=enforced)
        self.authorizer = Authorizer(options.auth, access, self.views, self.catalog, self.notices, limits)
        self.deliveries = self._deliveries(options.context)
        Reactions(self.informer, self.deliveries, self.orders, namespaces)
        self.receipt_service = ReceiptService(self.deliveries, access, self.views, options.auth)
        self.nodes = NodeEvaluators(options.node_evaluators, options.auth, access, ports.on_nodes)
        self.receipts = Receipts(
            parts=self.receipt_service.parts,
            expected=self.receipt_service.expected_digest,
            caller=self.receipt_service.caller,
            pods=ports.pods,
            clock=ports.clock,
            represented=self.nodes.represented,
            changed=ports.changed,
            served_after=ports.served_after,
            most_per_host=options.max_streams_per_host,
            quota=options.limits.receipts,
        )
        self.open_streams = StreamObservers(self.authorizer, self.deliveries, self.receipts)
        self.deliveries.ordered.moved = self.open_streams.move
        self.topics.moved = self.open_streams.move
        self.hub = Hub(FairQueue())
        self.service = SyncService(
            self.deliveries,
            self.hub,
            loop,
            deadline_seconds=options.stream_seconds or (ENFORCED_STREAM_SECONDS if enforced else 0),
            observer=self.open_streams,
        )

    def _deliveries(self, context: Mapping[str, Any]) -> Deliveries:
        topics = self.topics = Topics(self.catalog)
        contents = Contents(self.catalog, context, topics.sinks, self.progress)
        ordered = OrderedTopics(self.orders, self.catalog, contents, topics, self.order_notices)
        deliveries = Deliveries(self.catalog, topics, contents, ordered, self.views)
        self.orders.changed = deliveries.on_orders
        self.orders.pod_changed = self._on_pod
        return deliveries

    def routes(self) -> Routes:
        """flagd.sync.v1, sync.v1 and flagstaff.delivery.v1, for authorized callers."""
        streams = {
            method.path: self.authorizer.stream(method, self.service.handler(method)) for method in METHODS
        }
        # A stream of one message: a token may have to be reviewed first.
        sync = Routes(streams={**streams, GET_METADATA: self.authorizer.for_any_user(self._metadata)})
        return merge(sync, self.receipts.routes(), self.nodes.routes())

    @property
    def usage(self) -> dict[str, Callable[[], Mapping[str, int]]]:
        """What namespaces have now, by the field of `NamespaceLimits` that limits it. Any thread may ask."""
        return {"streams": self.authorizer.limits.by_namespace, "receipts": self.receipts.by_namespace}

    def pod_gone(self, uid: str) -> None:
        """A Pod was deleted: its token is not valid any more, and its evaluator is not counted."""
        self.receipts.pod_gone(uid)
        self._end_streams(self.authorizer.streams_of_pod(uid), "the Pod of this token was deleted")

    def _on_pod(self, uid: str) -> None:
        """What is ordered for a Pod may have changed: end its streams of what is not ordered for it now."""
        self._end_streams(
            {
                stream
                for stream in self.authorizer.streams_of_pod(uid)
                if isinstance(stream.topic, OrderedPods)
                and not self.views.covers(stream.caller, stream.topic)
            },
            "this Pod is not one of the ordered pods any more",
        )

    def _end_streams(self, streams: Collection[OpenStream], why: str) -> None:
        if streams:
            self.service.end_those(lambda visit: visit in streams, Code.PERMISSION_DENIED, why)

    async def end_revoked(self) -> None:
        """End the streams whose reader may no longer read what they were sent."""
        self.deliveries.on_review()
        revoked = await self.authorizer.revoked_streams()
        if revoked:
            self.service.end_those(
                lambda visit: (getattr(visit, "reader", ""), getattr(visit, "topic", None)) in revoked,
                Code.PERMISSION_DENIED,
                "the right to get this flag set was withdrawn",
            )  # fmt: skip

    def close(self) -> None:
        """End all reviews and deliveries; `service` ends the streams."""
        self.authorizer.close()
        self.nodes.close()
        self.views.close()
        self.access.close()
        self.progress.close()
        self.deliveries.close()

    def _metadata(self, call: Call, message: bytes, stream: MessageStream) -> None:
        stream.send(self.service.get_metadata(call, message))
        stream.close()


_NOTICE_SECONDS: Final = 5.0
_SHED_SECONDS: Final = 0.1


class ProxyWatch(Protocol):
    """One watch of the cluster."""

    def age(self) -> float | None:
        """Seconds since the API server last confirmed it; None: never."""

    def page(self) -> dict[str, Any]:
        """Return the entry of `/readyz`."""

    async def run(self) -> None:
        """Watch until cancelled."""


@dataclass(slots=True)
class ProxyReplica:
    """A proxy, and what it works with."""

    proxy: Proxy
    sync: Listener
    recorder: Recorder
    watches: Sequence[ProxyWatch]
    """The watches of delivered objects."""
    beside: Sequence[ProxyWatch]
    """The watches of what readiness does not depend on: Pods, and objects with standing orders."""
    events: EventSink
    now: Callable[[], datetime]
    drain_delay: float
    """Seconds between the end of readiness and the end of the first stream."""
    drain_seconds: float
    """Seconds over which streams end."""
    draining: bool = field(default=False, init=False)

    def readiness(self) -> dict[str, Any]:
        """Ready once every kind was listed, and without an API server, too; says how old its view is."""
        ages = [age for watch in self.watches if (age := watch.age()) is not None]
        return {
            "ready": self.proxy.deliveries.synced and not self.draining,
            "draining": self.draining,
            "ageSeconds": round(max(ages), 1) if ages else None,
            "streams": self.proxy.hub.streams,
            "watches": [watch.page() for watch in self.watches],
        }

    async def work(self) -> None:
        """Watch objects, record receipts, post Events, and check subscribers' rights, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self.watches, *self.beside):
                group.create_task(watch.run())
            for turn in (self.recorder.run, self._notice, self._revoke):
                group.create_task(forever(turn))

    async def drain(self) -> None:
        """Send subscribers elsewhere: no longer ready, then no new ones, then a few at a time."""
        self.draining = True
        await asyncio.sleep(self.drain_delay)
        service = self.proxy.service
        slices = max(1, int(self.drain_seconds / _SHED_SECONDS))
        portion = -(-self.proxy.hub.streams // slices)
        leaving = asyncio.create_task(self.sync.drain(self.drain_seconds + 1.0))
        for _ in range(slices):
            if not service.shed(portion):
                break
            await asyncio.sleep(_SHED_SECONDS)
        service.close()
        await leaving

    async def _notice(self) -> None:
        await asyncio.sleep(_NOTICE_SECONDS)
        if self.proxy.deliveries.synced:
            for resource, occurrence in (*self.proxy.notices.take(), *self.proxy.order_notices.take()):
                self.events.accept(event_of(resource, occurrence, self.now()))

    async def _revoke(self) -> None:
        await asyncio.sleep(VERDICT_SECONDS)
        await self.proxy.end_revoked()
