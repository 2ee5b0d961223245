"""A proxy's parts joined: what is watched becomes what is served. Opens no port, and knows no Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.proxy.catalog import Catalog
from controller.proxy.following import Following
from controller.proxy.guard import ENFORCE, Guard
from controller.proxy.notices import Notices
from controller.proxy.seats import Seats
from controller.proxy.topics import Deliveries
from evaluator.http.messages import Code
from evaluator.http.routes import Routes, merged
from evaluator.http.server.scheduler import FairQueue
from evaluator.wire.hub import Hub
from evaluator.wire.messages import GET_METADATA, METHODS
from evaluator.wire.servicer import SyncService

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from controller.proxy.access import Access
    from controller.proxy.members import Pods
    from evaluator.http.messages import Call, MessageStream

ENFORCED_STREAM_SECONDS = 3600
"""Tokens live about as long: a stream that its token has outlived is opened anew, with the next."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a proxy serves."""

    context: Mapping[str, Any]
    """Laid over evaluation contexts by in-process providers."""
    auth: str
    """`off`, `warn` or `enforce`."""
    max_streams: int
    max_streams_per_host: int
    stream_seconds: int
    """A stream ends after so long; 0: never, or after ENFORCED_STREAM_SECONDS with `enforce`."""


class Proxy:
    """What one process serves, on the loop that it is made on."""

    def __init__(
        self,
        options: Options,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        pods: Pods,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is Unix seconds."""
        self.access = access
        self.catalog = Catalog()
        self.notices = Notices(self.catalog)
        self.guard = Guard(
            options.auth,
            access,
            self.catalog,
            self.notices,
            Seats(options.max_streams, options.max_streams_per_host),
        )
        self.deliveries = Deliveries(
            self.catalog,
            options.context,
            reader=self.guard.reader,
            readable=self.guard.readable,
        )
        self.guard.changed = self.deliveries.reviewed
        self.hub = Hub(FairQueue())
        aging = ENFORCED_STREAM_SECONDS if options.auth == ENFORCE else 0
        self.service = SyncService(
            self.deliveries,
            self.hub,
            loop,
            deadline_seconds=options.stream_seconds or aging,
        )
        self.following = Following(self.deliveries, access, self.guard, pods, clock)
        self.service.visits = self.following

    def routes(self) -> Routes:
        """flagd.sync.v1, sync.v1 and flagstaff.delivery.v1, for those who may."""
        streams = {method.path: self.guard.stream(method, self.service.handler(method)) for method in METHODS}
        # A stream of one message: a token may have to be reviewed first.
        sync = Routes(streams={**streams, GET_METADATA: self.guard.known(self._metadata)})
        return merged(sync, self.following.receipts.routes())

    async def end_revoked(self) -> None:
        """End the streams of those who may no longer read what they were sent."""
        self.deliveries.reviewed()
        revoked = await self.guard.revoked()
        if revoked:
            self.service.end_those(
                lambda visit: (getattr(visit, "reader", ""), getattr(visit, "topic", None)) in revoked,
                Code.PERMISSION_DENIED,
                "the right to get this flag set was withdrawn",
            )  # fmt: skip

    def close(self) -> None:
        """Ask and tell nothing more; streams are ended by `service`."""
        self.guard.close()
        self.access.close()
        self.deliveries.close()

    def _metadata(self, call: Call, message: bytes, stream: MessageStream) -> None:
        stream.send(self.service.get_metadata(call, message))
        stream.close()
