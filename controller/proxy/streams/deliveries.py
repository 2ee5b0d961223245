"""The backend of the sync service: which object's flags a topic has, and what its streams are sent of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from controller.delivery.claims import ClaimChange
from controller.delivery.standing_orders import OrderedPods
from controller.proxy.streams.contents import NOT_SYNCED
from controller.proxy.streams.selector import Identified, Named, parse
from evaluator.http.messages import Code
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from controller.delivery.claim import Place
    from controller.proxy.catalog import Catalog
    from controller.proxy.streams.contents import Contents
    from controller.proxy.streams.ordered_topics import OrderedTopics
    from controller.proxy.streams.selector import Topic
    from controller.proxy.streams.topics import Listeners, Topics
    from evaluator.http.messages import Call
    from evaluator.wire.servicer import Deliver, Make

REVIEWED_AHEAD: Final = 16
"""Objects with one flagSetId about which the cluster is asked at a time."""


class UnreviewedError(Exception):
    """The right of the topic's reader to read it is still being reviewed."""


class Views(Protocol):
    """Which objects a caller may read, where it asks for a flagSetId that several objects have."""

    def reader(self, call: Call) -> str:
        """The reader whose view a call has; empty: the view of everything."""

    def namespace(self, reader: str) -> str:
        """Return the namespace of a reader's service account; empty if it is none, or unknown."""

    def readable(self, reader: str, place: Place, changed: Callable[[], None]) -> bool | None:
        """Return whether `place` is in a reader's view; None: unknown yet, `changed` is called once known."""


def missing_object(topic: Topic) -> Missing:
    """There is no such object. Streams that were sent its flags end: those are not current any more."""
    return Missing(Code.NOT_FOUND, f"{topic}: there is no such flag set", ends_streams=True)


class Deliveries:
    """Implements `Backend` of the sync service."""

    def __init__(
        self, catalog: Catalog, topics: Topics, contents: Contents, ordered: OrderedTopics, views: Views
    ) -> None:
        self.catalog = catalog
        self.contents = contents
        contents.progress.changed = self.on_progress
        self.ordered = ordered
        contents.rebuilt = ordered.on_build
        self.synced = False
        """Whether the catalog is complete; nothing is delivered before."""
        self._topics = topics
        self._views = views

    # -- asked by the sync service

    def topic(self, selector: str, call: Call) -> Hashable:
        """The topic that a selector means; raises RpcError INVALID_ARGUMENT."""
        topic = parse(selector)
        if isinstance(topic, Identified):
            return Identified(topic.flag_set_id, self._views.reader(call))
        return topic

    def context(self) -> Mapping[str, Any]:
        """The JSON values that are laid over evaluation contexts."""
        return self.contents.context

    def watch(self, topic: Hashable, make: Make, deliver: Deliver) -> Callable[[], None]:
        """See Backend. What is encoded already is delivered before this returns."""
        wanted = cast("Topic", topic)
        listeners, cancel = self._topics.add(wanted, make, deliver)
        self._refresh(wanted, listeners)
        if not isinstance(wanted, OrderedPods):
            return cancel

        def cancel_ordered() -> None:
            cancel()
            self.ordered.forget(wanted)

        return cancel_ordered

    # -- called by the watches

    def ready(self) -> None:
        """Note that the catalog is complete: an object that is not in it does not exist."""
        self.synced = True
        for topic, listeners in self._topics.all():
            self._refresh(topic, listeners)

    def on_change(self, change: ClaimChange) -> None:
        """Send what a change of the catalog changes."""
        for place in change.places:
            if self.catalog.object_at(place) is None:
                self.contents.forget(place)
            for topic, listeners in self._topics.of(place, change.claims):
                self._refresh(topic, listeners)
            # Without subscribers, too: the last good set must be current when the next one comes.
            if self.contents.of(place) is not None:
                self.contents.newest(place)
        self._refresh_ordered(self.ordered.of(change))

    def on_progress(self, namespace: str, name: str) -> None:
        """Send what a change of the progress of the flag set of this name changes."""
        if self.synced:
            named = {(namespace, name), *self.catalog.places_written_by((namespace, name))}
            places = frozenset(place for place in named if self.catalog.object_at(place) is not None)
            self.on_change(ClaimChange(places=places))

    def on_orders(self, namespace: str) -> None:
        """Send what a change of the orders of pods of a namespace changes; empty: of all namespaces."""
        self._refresh_ordered(self.ordered.in_namespace(namespace))

    def on_review(self) -> None:
        """Decide again what a reader is sent: it may read more or less than before."""
        for topic, listeners in self._topics.topics_of_identifiers():
            self._refresh(topic, listeners)

    # -- asked by others

    def place_of(self, topic: Named | Identified) -> Place | None:
        """Return where the object is whose flags a topic has; None also while its reader is reviewed."""
        try:
            return self._find(topic)
        except UnreviewedError:
            return None

    def place_sent(self, topic: Named | Identified) -> Place | None:
        """Return as `place_of` does; during a review, where the object is whose flags the topic's streams
        were sent last. Raises UnreviewedError if they were sent none.
        """
        try:
            return self._find(topic)
        except UnreviewedError:
            listeners = self._topics.get(topic)
            place = None if listeners is None else listeners.place
            if place is None or self.catalog.object_at(place) is None:
                raise
            return place

    def close(self) -> None:
        """Deliver nothing more."""
        self._topics.clear()
        self.contents.close()
        self.ordered.close()

    def _find(self, topic: Named | Identified) -> Place | None:
        """Return as `place_of` does. Raises UnreviewedError while the reader is reviewed."""
        if isinstance(topic, Named):
            place = (topic.namespace, topic.name)
            return place if self.catalog.object_at(place) is not None else self.catalog.written_by(place)
        places = self.catalog.holders(topic.flag_set_id, self._views.namespace(topic.reader))
        for start, place in enumerate(places):
            allowed = self._views.readable(topic.reader, place, self.on_review)
            if allowed:
                return place
            if allowed is None:
                for next_ in places[start + 1 : start + REVIEWED_AHEAD]:
                    self._views.readable(topic.reader, next_, self.on_review)
                raise UnreviewedError
        return None

    def _refresh_ordered(self, topics: Iterable[OrderedPods]) -> None:
        for topic in topics:
            if (listeners := self._topics.get(topic)) is not None:
                self._refresh(topic, listeners)

    def _refresh(self, topic: Topic, listeners: Listeners) -> None:
        """Deliver what the topic has now to its listeners, or have that encoded."""
        if not self.synced:
            _deliver_missing(listeners, NOT_SYNCED)
            return
        if isinstance(topic, OrderedPods):
            self.ordered.refresh(topic, listeners)
            return
        try:
            self._topics.move(topic, listeners, self._find(topic))
        except UnreviewedError:
            return
        if listeners.place is None:
            _deliver_missing(listeners, missing_object(topic))
            return
        content = self.contents.newest(listeners.place)
        if content.is_known:
            for make, deliver in listeners.all():
                deliver(self.contents.payload(content, make))


def _deliver_missing(listeners: Listeners, missing: Missing) -> None:
    for _, deliver in listeners.all():
        deliver(missing)
