"""Posts Events and the messages of alerts to Flux's notification-controller, for Flux's Alerts."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter

from controller.api import flagsource
from controller.api.meta import DIFFERENCES, GROUP, LINK, ObjectKey, Resource, about
from controller.api.records import FLUX_SOURCES
from controller.events.commit_pages import link_of, source_of
from controller.events.notice import Post, ProviderTarget
from controller.runtime.event import Event, EventType
from controller.runtime.event_queue import DRAIN, MOST_WAITING, EventQueue
from controller.runtime.http_client import Route
from evaluator.host.backoff import Backoff
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from controller.api.flagprovider import Message
    from controller.events.senders import Sender
    from controller.runtime.cache import Cache

log = logging.getLogger(__name__)

FLUX: Final = "http://notification-controller.flux-system.svc.cluster.local./"
"""Where Flux's notification-controller is in a cluster that Flux was installed into."""
FLUX_API: Final = FLUX_SOURCES[0].api_version
_BACKOFF: Final = Backoff(first=1.0, most=30.0, jitter=0.0)
_ROUTE: Final = Route(seconds=15.0)
_MOST_ANSWERS: Final = 10
"""Most error answers to one Event, over about three minutes. Without an answer it is retried for ever."""


class FluxEvents(EventQueue):
    """Posts each Event to one address."""

    def __init__(  # noqa: PLR0913 - the last three for tests
        self,
        address: str,
        sender: Sender,
        objects: Cache,
        instance: str,
        registry: CollectorRegistry,
        *,
        backoff: Backoff = _BACKOFF,
        most: int = MOST_WAITING,
        drain: float = DRAIN,
    ) -> None:
        """`instance`: the name of this replica. `backoff`: between tries. The others: see EventQueue."""
        dropped = Counter(
            "flagstaff_flux_events_dropped",
            "Events that did not reach --events-addr because too many were waiting.",
            registry=registry,
        )
        super().__init__(dropped, resource="Events for Flux", most=most, drain=drain)
        self._backoff = backoff
        self._address = address
        self._sender = sender
        self._objects = objects
        self._instance = instance

    async def post(self, event: Event) -> None:
        """Post until it is accepted or refused."""
        post, failures, answers = self._post_of(event), 0, 0
        while True:
            answer = await self._sender.send(post, _ROUTE)
            # With 429 Flux reports that it received the same Event within the last minutes.
            if 200 <= answer.status < 300 or answer.status == 429:
                return
            failures, answers = failures + 1, answers + (answer.status > 0)
            if 300 <= answer.status < 500 or answers == _MOST_ANSWERS:
                log.warning(
                    "an Event did not reach --events-addr: %s", answer.text, extra=about(event.object)
                )
                return
            log.debug("an Event is posted to --events-addr later: %s", answer.text)
            await asyncio.sleep(max(self._backoff.delay(failures, 0.0), answer.retry_after))

    def _post_of(self, event: Event) -> Post:
        source = _flux_source(self._objects, event.object)
        own = Resource(event.object, event.uid, 0, "", api_version=event.api_version)
        message = (
            event.message if source is None else f"{event.object.kind}/{event.object.name}: {event.message}"
        )
        told = {name: text for name, text in event.metadata.items() if name != DIFFERENCES}
        facts = {**told, LINK: link_of(self._objects, event.object, event.revision)}
        facts |= {"revision": event.revision, "digest": event.digest}
        facts |= {"object": str(event.object), "token": event.key}
        content = {
            "severity": "error" if event.severity is EventType.WARNING else "info",
            "timestamp": timestamp(event.time),
            "message": message[:39_000],
            "reason": event.reason,
        }
        return _post(self._address, content, source or own, facts, event.key, self._instance)


def post_of_flux(objects: Cache, message: Message, target: ProviderTarget) -> Post:
    """Return the request that hands an alert's message to Flux.

    It names an object that Flux's Alerts can choose, always in the provider's own namespace: the Flux source
    of a FlagSet, or else an ExternalArtifact with the name of its FlagSource, or of the object itself.
    """
    key = ObjectKey(message.kind, message.namespace or target.namespace, message.name)
    place = source_of(objects, key) or key
    source = _flux_source(objects, key) if key.namespace == target.namespace else None
    stand_in = Resource(
        ObjectKey("ExternalArtifact", target.namespace, place.name), message.uid, 0, "", api_version=FLUX_API
    )
    facts = {**message.metadata, "object": str(key), "token": message.key, "alert": message.alert}
    event = {
        "severity": "info" if message.severity == "info" else "error",
        "timestamp": message.time,
        "message": f"{key.kind}/{key.name}: {message.message}",
        "reason": message.reason,
    }
    return _post(target.address, event, source or stand_in, facts, message.key, target.instance)


def _flux_source(objects: Cache, key: ObjectKey) -> Resource | None:
    """Return the Flux source of a FlagSet, or its FlagSource's export; None for another namespace."""
    place = source_of(objects, key)
    source = None if place is None else objects.get(place)
    if source is None or source.key.kind != flagsource.KIND:
        kinds = {type_.kind for type_ in FLUX_SOURCES}
        return source if source is not None and source.key.kind in kinds else None
    exported = objects.get(ObjectKey("ExternalArtifact", source.namespace, source.name))
    return exported if exported and source.uid in {owner.get("uid") for owner in exported.owners} else None


def _post(
    address: str, event: dict[str, Any], named: Resource, facts: dict[str, str], key: str, instance: str
) -> Post:
    """Return a request with Flux's Event (event.toolkit.fluxcd.io/v1beta1) about the object `named`."""
    # Flux forwards metadata prefixed with the object's group, and recognises duplicates by the token.
    group = named.api_version.rpartition("/")[0]
    facts = {name.removeprefix(f"{GROUP}/"): text[:4_000] for name, text in facts.items() if text}
    content = event | {
        "involvedObject": {
            "apiVersion": named.api_version,
            "kind": named.key.kind,
            "namespace": named.namespace,
            "name": named.name,
            "uid": named.uid,
        },
        "metadata": {f"{group}/{name}": text for name, text in facts.items()},
        "reportingController": "flagstaff-controller",
        "reportingInstance": instance,
    }
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Post(address, body, {"Content-Type": "application/json", "Idempotency-Key": key})
