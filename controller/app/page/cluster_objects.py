"""The objects and Events that the page of a cluster shows, kept current by a watch of each kind."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import (
    EVENT,
    FEATURE_FLAG,
    FEATURE_FLAG_CONFIGURATION,
    FLAG_OVERRIDE,
    FLAG_RECEIPT,
    FLAG_ROLLOUT,
    FLAG_SET,
    FLAG_SHARD,
    FLAG_SOURCE,
    FLUX_SOURCES,
)
from controller.api.objects.meta import ObjectKey, Resource
from controller.delivery.progress.rollouts import PROGRESS_INDEXES
from controller.page.delivery.shown_events import ShownEvent, read_event
from controller.runtime.objects.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

log = logging.getLogger(__name__)

WATCHED: Final = (
    FLAG_SOURCE,
    *FLUX_SOURCES,
    FLAG_SET,
    FEATURE_FLAG_CONFIGURATION,
    FEATURE_FLAG,
    FLAG_SHARD,
    FLAG_OVERRIDE,
    FLAG_RECEIPT,
    FLAG_ROLLOUT,
)
"""The kinds that are shown, beside Events."""
EVENTS_ABOUT: Final = (FLAG_SET.api_version, FEATURE_FLAG_CONFIGURATION.api_version)
"""The versions of the kinds whose Events are shown: the API server selects by them."""
MOST_EVENTS: Final = 5_000
"""Most Events that are kept; the oldest go first."""


class ClusterObjects:
    """Implements the Reflector's `Sink`. Written on the loop, read in any thread."""

    def __init__(self, began: int) -> None:
        """`began`: distinguishes the versions of this process from those of others."""
        self.objects = Cache(PROGRESS_INDEXES)
        self.notify: Callable[[str], None] = lambda _namespace: None
        """Called with the namespace of each change."""
        self._began = began
        self._counter = itertools.count(1)
        self._changed: dict[str, int] = {}
        """The number of the last change, by namespace."""
        self._events: dict[tuple[str, str], ShownEvent] = {}
        """By namespace and name of the Event. A plain dict: its values are copied in one step."""
        self._listed: set[tuple[str, str]] = set()

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Add or replace an object or an Event."""
        try:
            if kind == EVENT.kind:
                namespace = self._learn_event(body)
            else:
                resource = Resource.of({**body, "kind": kind})
                self.objects.put(resource)
                namespace = resource.namespace
        except (KeyError, TypeError, AttributeError):
            log.exception("a malformed %s was sent", kind)
            return
        self.record_change(namespace)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object. An Event that the API server drops is dropped here without a word."""
        if kind == EVENT.kind:
            self._events.pop((namespace, name), None)
            return
        self.objects.forget(ObjectKey(kind, namespace, name))
        self.record_change(namespace)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of a kind were sent."""
        self._listed.add((kind, namespace))

    def has_listed(self, kinds: Iterable[str], namespaces: Collection[str]) -> bool:
        """Whether all objects of these kinds and namespaces were sent."""
        return self._listed >= set(itertools.product(kinds, namespaces))

    def version(self, namespaces: Collection[str] | None) -> str:
        """A text that changes whenever anything in these namespaces does; None: in any."""
        changed = self._changed
        known = changed.values() if namespaces is None else map(changed.get, namespaces)
        return f"{self._began}-{max(filter(None, [*known]), default=0)}"

    def namespaces(self) -> set[str]:
        """The namespaces that have flag sets."""
        kinds = (FLAG_SET.kind, FEATURE_FLAG_CONFIGURATION.kind, FEATURE_FLAG.kind)
        return {resource.namespace for kind in kinds for resource in self.objects.of_kind(kind)}

    def events(self, namespaces: Collection[str] | None) -> list[ShownEvent]:
        """The Events in these namespaces, the newest first; None: in any."""
        events = list(self._events.values())
        shown = [event for event in events if namespaces is None or event.namespace in namespaces]
        return sorted(shown, key=lambda event: event.sort_key, reverse=True)

    def _learn_event(self, body: dict[str, Any]) -> str:
        event, meta = read_event(body), body["metadata"]
        if len(self._events) >= MOST_EVENTS:
            self._events.pop(next(iter(self._events)))
        self._events[str(meta["namespace"]), str(meta["name"])] = event
        return event.namespace

    def record_change(self, namespace: str) -> None:
        """Have pages that show a namespace ask for their views again."""
        self._changed[namespace] = next(self._counter)
        self.notify(namespace)
