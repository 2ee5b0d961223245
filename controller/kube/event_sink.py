"""The API server as a sink of Events: they wait in a bounded queue, and are posted one after the other."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter

from controller.api.meta import about
from controller.kube.answers import path_of, require_good
from controller.kube.client import COMPONENT
from controller.kube.requests import PASSING, RETRIES, ClientTransport, Requests
from controller.runtime.event_queue import DRAIN, MOST_WAITING, EventQueue
from controller.runtime.setbacks import Setback
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY
from evaluator.host.backoff import Backoff
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.aio.client import ApiClient
    from prometheus_client import CollectorRegistry

    from controller.runtime.event import Event

log = logging.getLogger(__name__)

MOST_ANSWERS: Final = 10
"""Most transient refusals of one Event, over about three minutes; missing answers do not count."""
_BACKOFF: Final = Backoff(first=1.0, most=30.0, jitter=0.0)
_OF_CLUSTER: Final = "default"
"""The namespace of Events about objects without one."""
_NOTE: Final = 1024
"""Characters that an Event's message may have."""


@dataclass(frozen=True, slots=True)
class EventTiming:
    """How long Events wait, in seconds, and how often they are tried."""

    backoff: Backoff = _BACKOFF
    """After refusals."""
    retries: int = RETRIES
    """How often a request is tried again."""
    drain: float = DRAIN
    """How long a stop waits for Events that are not posted."""


DEFAULT_TIMING: Final = EventTiming()


class ApiServerEvents(EventQueue):
    """Posts each Event as one of Kubernetes'."""

    def __init__(
        self,
        api: ApiClient,
        registry: CollectorRegistry,
        *,
        wrote: Callable[[str, str], None] = lambda _verb, _kind: None,
        timing: EventTiming = DEFAULT_TIMING,
        most: int = MOST_WAITING,
    ) -> None:
        """`wrote` is called with the verb and the kind of each Event that is posted; at most `most` wait."""
        dropped = Counter(
            "flagstaff_events_dropped",
            "Events that were not posted because too many were waiting.",
            registry=registry,
        )
        super().__init__(dropped, resource="Events", most=most, drain=timing.drain)
        self._server = Requests(ClientTransport(api), retries=timing.retries)
        self._timing = timing
        self._wrote = wrote

    async def post(self, event: Event) -> None:
        """Post until it exists, or the API server refuses it for good."""
        try:
            await self._post(event)
        except Setback as setback:
            log.warning("an Event was not posted: %s", setback.message, extra=about(event.object))

    async def _post(self, event: Event) -> None:
        """Raise a setback where the API server refuses it for good."""
        body = manifest(event)
        path = path_of("v1", "Event", body["metadata"]["namespace"])
        tries = answers = 0
        self._wrote("event", event.object.kind)
        while True:
            tries += 1
            wait = self._timing.backoff.delay(tries, 0.0)
            try:
                answer = await self._server.ask("POST", path, {}, body)
            except Setback as setback:
                log.debug("an Event is posted later: %s", setback.message)
            else:
                # It exists: posted before a crash, or by a request whose answer was lost.
                if answer.status == HTTPStatus.CONFLICT:
                    return None
                # A webhook that fails on this one must not hold up the others for ever.
                answers += 1
                if answer.status not in PASSING or answers == MOST_ANSWERS:
                    return require_good(answer, "Event", body["metadata"]["name"])
                wait = max(wait, answer.retry_after)
            await asyncio.sleep(wait)


def manifest(event: Event) -> dict[str, Any]:
    """The Event as the API server takes it, named after its key."""
    key, moment = event.object, timestamp(event.time)
    annotations = {**event.bounded_metadata, REVISION_KEY: event.revision, DIGEST_KEY: event.digest}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{key.name[:200].rstrip('-.')}.{event.key[:16]}",
            "namespace": key.namespace or _OF_CLUSTER,
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
