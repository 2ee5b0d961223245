"""The topics of standing orders: which flag sets each has now, and what its subscribers are sent of them.

Where an order cannot be followed, its pods keep the sets that they followed before; those move on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from controller.api.flagset import LABEL
from controller.proxy.orders.resolution import NOT_GRANTED, resolve
from controller.proxy.streams.composed_sets import ComposedSets, SetPart
from evaluator.http.messages import Code
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from controller.delivery.claim import Place
    from controller.delivery.claims import ClaimChange
    from controller.delivery.standing_orders import OrderedPods
    from controller.proxy.catalog import Catalog
    from controller.proxy.orders.order_notices import OrderNotices
    from controller.proxy.orders.order_objects import OrderObjects
    from controller.proxy.streams.composed_sets import Sets
    from controller.proxy.streams.contents import Contents
    from controller.proxy.streams.topics import Listeners, Topics
    from evaluator.wire.servicer import Make

_log = logging.getLogger(__name__)
K = TypeVar("K")

_NOT_SYNCED: Final = Missing(
    Code.UNAVAILABLE, "this proxy has not listed the Namespaces, workloads and FlagGrants with orders yet"
)


@dataclass(slots=True)
class _State:
    """One topic."""

    sets: Sets = ()
    """The flag sets that its subscribers follow."""
    names: frozenset[Place] = field(default_factory=frozenset)
    """Names of objects on which that depends."""


class OrderedTopics:
    """The topics of standing orders that have subscribers."""

    def __init__(
        self,
        objects: OrderObjects,
        catalog: Catalog,
        contents: Contents,
        topics: Topics,
        notices: OrderNotices,
    ) -> None:
        self.moved: Callable[[OrderedPods], None] = lambda _topic: None
        """Called when a topic has other flag sets than before."""
        self.composed = ComposedSets(contents, self._deliver_composed, self._makes)
        self._objects = objects
        self._catalog = catalog
        self._contents = contents
        self._topics = topics
        self._notices = notices
        self._states: dict[OrderedPods, _State] = {}
        self._by_place: dict[Place, set[OrderedPods]] = {}
        """Topics by the place of each of their sets, and by each of their names."""
        self._by_sets: dict[Sets, set[OrderedPods]] = {}

    def refresh(self, topic: OrderedPods, listeners: Listeners) -> None:
        """Find what is ordered for the topic now, and deliver that to its listeners or have it encoded."""
        state = self._states.setdefault(topic, _State())
        if not self._objects.synced:
            _deliver(listeners, _NOT_SYNCED)
            return
        resolution = resolve(topic, self._objects, self._catalog)
        problem = resolution.problem
        self._notices.note(topic, problem)
        sets = resolution.sets
        if problem is not None:
            # What may no longer be read is not followed any more; streams keep what they were sent.
            sets = () if problem.reason == NOT_GRANTED else state.sets
        self._follow(topic, state, sets, resolution.names)
        if sets:
            self._deliver_newest(sets, listeners)
        elif problem is not None:
            _deliver(
                listeners, Missing(Code.FAILED_PRECONDITION, f"{problem.reason}: {problem.message}"[:500])
            )
        else:
            _deliver(listeners, Missing(Code.NOT_FOUND, f"{topic}: nothing is ordered", ends_streams=True))

    def forget(self, topic: OrderedPods) -> None:
        """Drop a topic that has no subscribers any more."""
        state = self._states.get(topic)
        if state is not None and self._topics.get(topic) is None:
            self._follow(topic, state, (), frozenset())
            del self._states[topic]
            self._notices.note(topic, None)

    def of(self, change: ClaimChange) -> set[OrderedPods]:
        """The topics that a change of the catalog may concern."""
        places: set[Place] = set(change.places)
        for place in change.places:
            served = self._catalog.object_at(place)
            if served is not None and LABEL in served.labels:
                places.add((served.namespace, served.labels[LABEL]))
        return {topic for place in places for topic in self._by_place.get(place, ())}

    def in_namespace(self, namespace: str) -> list[OrderedPods]:
        """The topics of pods of a namespace, of all where it is empty."""
        return [topic for topic in self._states if namespace in {"", topic.namespace}]

    def on_build(self, place: Place) -> None:
        """Deliver the topics that have the set there, of which there is other content now."""
        for topic in tuple(self._by_place.get(place, ())):
            sets, listeners = self.sets(topic), self._topics.get(topic)
            if listeners is not None and any(ordered.place == place for ordered in sets):
                self._deliver_newest(sets, listeners)

    def sets(self, topic: OrderedPods) -> Sets:
        """The flag sets of a topic."""
        state = self._states.get(topic)
        return () if state is None else state.sets

    def places(self, topic: OrderedPods) -> tuple[Place, ...]:
        """Where the flag sets of a topic are."""
        return tuple(ordered.place for ordered in self.sets(topic))

    def parts(self, topic: OrderedPods, digest: str) -> tuple[SetPart, ...]:
        """What a subscriber serves of each flag set of the topic, if it serves the composition `digest`."""
        sets = self.sets(topic)
        composed = self.composed.get(sets)
        known = None if composed is None else composed.parts.get(digest)
        return known or tuple(SetPart(ordered.place, "", "") for ordered in sets)

    def close(self) -> None:
        """Deliver nothing more."""
        self.composed.close()

    def _follow(self, topic: OrderedPods, state: _State, sets: Sets, names: frozenset[Place]) -> None:
        before = state.sets
        for place in _places(before, state.names):
            _drop(self._by_place, place, topic)
        state.sets, state.names = sets, names
        for place in _places(sets, names):
            self._by_place.setdefault(place, set()).add(topic)
        if before == sets:
            return
        if before and _drop(self._by_sets, before, topic):
            self.composed.forget(before)
        if sets:
            self._by_sets.setdefault(sets, set()).add(topic)
        self.moved(topic)

    def _deliver_newest(self, sets: Sets, listeners: Listeners) -> None:
        composed = self.composed.newest(sets)
        if composed.content.built is not None:
            for make, deliver in listeners.all():
                deliver(self._contents.payload(composed.content, make))
            return
        for ordered in sets:
            content = self._contents.of(ordered.place)
            if content is not None and content.undeliverable is not None and content.built is None:
                _deliver(listeners, content.missing)

    def _deliver_composed(self, sets: Sets) -> None:
        composed = self.composed.get(sets)
        for listeners in self._listeners(sets):
            for make, deliver in listeners.all():
                if composed is not None:
                    deliver(self._contents.payload(composed.content, make))

    def _listeners(self, sets: Sets) -> Iterator[Listeners]:
        for topic in tuple(self._by_sets.get(sets, ())):
            if (listeners := self._topics.get(topic)) is not None:
                yield listeners

    def _makes(self, sets: Sets) -> Iterable[Make]:
        return [make for listeners in self._listeners(sets) for make, _ in listeners.all()]


def _places(sets: Sets, names: frozenset[Place]) -> set[Place]:
    return {*names, *(ordered.place for ordered in sets)}


def _drop(topics: dict[K, set[OrderedPods]], key: K, topic: OrderedPods) -> bool:
    """Remove a topic from an index; whether it was the last one of the key."""
    topics[key].discard(topic)
    if topics[key]:
        return False
    del topics[key]
    return True


def _deliver(listeners: Listeners, missing: Missing) -> None:
    for _, deliver in listeners.all():
        deliver(missing)
