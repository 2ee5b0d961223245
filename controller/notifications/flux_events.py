"""Posts Events to Flux's notification-controller, for Flux's Alerts."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter

from controller.api import flagsource
from controller.api.kinds import FLUX_SOURCES
from controller.api.meta import GROUP, ObjectKey, about, timestamp
from controller.api.provenance import LINK
from controller.notifications.forms.posts import Post
from controller.notifications.links import link_of, source_of
from controller.runtime.event_queue import EventQueue
from controller.runtime.events import Severity

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from controller.api.meta import Resource
    from controller.notifications.sending.posting import Sender
    from controller.runtime.events import Event
    from controller.runtime.objects.cache import Cache

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1.0
_MOST_PAUSE: Final = 30.0
_MOST_ANSWERS: Final = 10
"""Most error answers to one Event, over about three minutes. Without an answer it is retried for ever."""


class FluxEvents(EventQueue):
    """Posts each Event to one address."""

    def __init__(
        self, address: str, sender: Sender, objects: Cache, instance: str, registry: CollectorRegistry
    ) -> None:
        """`instance`: the name of this replica."""
        dropped = Counter(
            "flagstaff_flux_events_dropped",
            "Events that did not reach --events-addr because too many were waiting.",
            registry=registry,
        )
        super().__init__(dropped)
        self._address = address
        self._sender = sender
        self._objects = objects
        self._instance = instance

    async def post(self, event: Event) -> None:
        """Post until it is accepted or refused."""
        page = link_of(self._objects, event.object, event.revision)
        event = replace(event, metadata={**event.metadata, LINK: page})
        body = json.dumps(
            _flux_event(event, _named(self._objects, event.object), self._instance),
            ensure_ascii=False,
            separators=(",", ":"),
        )
        headers = {"Content-Type": "application/json", "Idempotency-Key": event.key}
        post, pause, answers = Post(self._address, body.encode(), headers), _FIRST_PAUSE, 0
        while True:
            answer = await self._sender.send(post, 15.0)
            # With 429 Flux reports that it received the same Event within the last minutes.
            if 200 <= answer.status < 300 or answer.status == 429:
                return
            answers += answer.status > 0
            if 300 <= answer.status < 500 or answers == _MOST_ANSWERS:
                log.warning(
                    "an Event did not reach --events-addr: %s", answer.text, extra=about(event.object)
                )
                return
            log.debug("an Event is posted to --events-addr later: %s", answer.text)
            await asyncio.sleep(max(pause, answer.retry_after))
            pause = min(_MOST_PAUSE, 2 * pause)


def _named(objects: Cache, key: ObjectKey) -> Resource | None:
    """Return the Flux source of a FlagSet, or its FlagSource's export; None for another namespace."""
    place = source_of(objects, key)
    source = None if place is None else objects.get(place)
    if source is None or source.key.kind != flagsource.KIND:
        kinds = {each.kind for each in FLUX_SOURCES}
        return source if source is not None and source.key.kind in kinds else None
    found = objects.get(ObjectKey("ExternalArtifact", source.namespace, source.name))
    return found if found and source.uid in {each.get("uid") for each in found.owners} else None


def _flux_event(event: Event, source: Resource | None, instance: str) -> dict[str, Any]:
    """Flux's Event (event.toolkit.fluxcd.io/v1beta1) about the source, or our object where there is none."""
    key, api_version, uid, message = event.object, event.api_version, event.uid, event.message
    if source is not None:
        message = f"{key.kind}/{key.name}: {message}"
        key, api_version, uid = source.key, source.api_version, source.uid
    # Flux forwards metadata prefixed with the object's group, and recognises duplicates by the token.
    facts = {name.removeprefix(f"{GROUP}/"): text[:4_000] for name, text in event.metadata.items()}
    facts |= {"revision": event.revision, "digest": event.digest}
    facts |= {"object": str(event.object), "token": event.key}
    group = api_version.rpartition("/")[0]
    return {
        "involvedObject": {
            "apiVersion": api_version,
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid,
        },
        "severity": "error" if event.severity is Severity.WARNING else "info",
        "timestamp": timestamp(event.time),
        "message": message[:39_000],
        "reason": event.reason,
        "metadata": {f"{group}/{name}": text for name, text in facts.items() if text},
        "reportingController": "flagstaff-controller",
        "reportingInstance": instance,
    }
