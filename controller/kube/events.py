"""The API server as a sink of Events: they wait in a bounded queue, and are posted one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache
from prometheus_client import Counter

from controller.api.meta import about
from controller.kube.answers import require_good
from controller.kube.client import COMPONENT
from controller.kube.paths import path_of
from controller.kube.requests import PASSING, Requests
from controller.runtime.lasting import forever
from controller.runtime.setbacks import Setback
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubernetes.aio.client import ApiClient
    from prometheus_client import CollectorRegistry

    from controller.runtime.events import Event

log = logging.getLogger(__name__)

MOST_WAITING: Final = 5_000
"""Events of about 1 KiB; more than a first start with 1,000 sources and 1,000 flag sets makes."""
_MOST_KNOWN: Final = 2 * MOST_WAITING
_DRAIN: Final = 2.0
"""Seconds that a stop waits for what is not posted yet."""
_FIRST_PAUSE: Final = 1.0
_MOST_PAUSE: Final = 30.0
_MOST_ANSWERS: Final = 10
"""Passing refusals of one Event, over about three minutes. While there is no answer it waits."""
_NOTE: Final = 1024
"""Characters that an Event's message may have."""


class ApiServerEvents:
    """An EventSink. What is accepted is posted while `posting` is open; what waits when the process is killed
    is lost.
    """

    def __init__(
        self,
        api: ApiClient,
        registry: CollectorRegistry,
        *,
        wrote: Callable[[str, str], None] = lambda _verb, _kind: None,
    ) -> None:
        """`wrote` is told the verb and the kind of each Event that is posted."""
        self._server = Requests(api)
        self._wrote = wrote
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(MOST_WAITING)
        self._known: LRUCache[str, None] = LRUCache(_MOST_KNOWN)
        self._dropping = False
        self._dropped = Counter(
            "flagstaff_events_dropped",
            "Events that were not posted because too many were waiting.",
            registry=registry,
        )

    def accept(self, event: Event) -> None:
        """Let the Event wait to be posted, unless its key was accepted before. The oldest makes room."""
        if event.key in self._known:
            return
        self._known[event.key] = None
        if self._waiting.full():
            self._waiting.get_nowait()
            self._waiting.task_done()
            self._dropped.inc()
            if not self._dropping:
                log.warning("more than %d Events wait to be posted; the oldest are dropped", MOST_WAITING)
            self._dropping = True
        self._waiting.put_nowait(event)

    @contextlib.asynccontextmanager
    async def posting(self) -> AsyncIterator[None]:
        """Post for as long as the block lasts, and at its end what waits, for 2 seconds at most."""
        task = asyncio.create_task(forever(self._post_next))
        try:
            yield
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN):
                    await self._waiting.join()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _post_next(self) -> None:
        event = await self._waiting.get()
        try:
            await self._post(event)
        except Setback as setback:
            log.warning("an Event was not posted: %s", setback.message, extra=about(event.object))
        finally:
            self._waiting.task_done()
        self._dropping = self._dropping and not self._waiting.empty()

    async def _post(self, event: Event) -> None:
        """Raises a setback where the API server refuses it for good."""
        path, body = path_of("v1", "Event", event.object.namespace), manifest(event)
        pause, answers = _FIRST_PAUSE, 0
        self._wrote("event", event.object.kind)
        while True:
            try:
                answer = await self._server.ask("POST", path, {}, body)
            except Setback as setback:
                log.debug("an Event is posted later: %s", setback.message)
                wait = pause
            else:
                # It is there: posted before a crash, or by a request whose answer was lost.
                if answer.status == HTTPStatus.CONFLICT:
                    return None
                # A webhook that fails on this one must not hold up the others for ever.
                answers += 1
                if answer.status not in PASSING or answers == _MOST_ANSWERS:
                    return require_good(answer, "Event", body["metadata"]["name"])
                wait = max(pause, answer.retry_after)
            await asyncio.sleep(wait)
            pause = min(_MOST_PAUSE, 2 * pause)


def manifest(event: Event) -> dict[str, Any]:
    """The Event as the API server takes it, named after its key."""
    key, moment = event.object, event.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations = {REVISION_KEY: event.revision, DIGEST_KEY: event.digest}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{key.name[:200].rstrip('-.')}.{event.key[:16]}",
            "namespace": key.namespace,
            "annotations": {name: text for name, text in annotations.items() if text},
        },
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": event.uid,
            "resourceVersion": event.resource_version,
        },
        "type": event.severity,
        "reason": event.reason,
        "message": event.message[:_NOTE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
