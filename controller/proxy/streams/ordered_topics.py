"""The topics of standing orders: which flag sets each has now, and what its subscribers are sent of them.

A set that an order names and that cannot be sent is left to the subscribers, which keep what they have of it;
they are sent the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from controller.api.flagset import proven_writer
from controller.delivery.standing_orders import set_title
from controller.proxy.orders.resolution import NOT_READY, OrderProblem, place_of, resolve
from controller.proxy.streams.composed_sets import ComposedSets, Composition, SetPart
from evaluator.flags.model import ComposedPart
from evaluator.http.messages import Code
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from controller.delivery.claim import Place
    from controller.delivery.claims import ClaimChange
    from controller.delivery.standing_orders import OrderedPods
    from controller.proxy.catalog import Catalog
    from controller.proxy.orders.order_notices import OrderNotices
    from controller.proxy.orders.order_objects import OrderObjects
    from controller.proxy.orders.resolution import OrderedSet
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

    composition: Composition = field(default_factory=Composition)
    """What its subscribers are sent; without sets: nothing."""
    problems: tuple[OrderProblem, ...] = ()
    """Why they are not sent other sets that they should follow."""
    names: frozenset[Place] = field(default_factory=frozenset)
    """Names of objects on which that depends."""
    started: bool = False
    """Whether anything is sent: until a direct set was made, nothing is."""


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
        self._by_composition: dict[Composition, set[OrderedPods]] = {}

    def refresh(self, topic: OrderedPods, listeners: Listeners) -> None:
        """Find what is ordered for the topic now, and deliver that to its listeners or have it encoded."""
        state = self._states.setdefault(topic, _State())
        if not self._objects.synced:
            _deliver(listeners, _NOT_SYNCED)
            return
        resolution = resolve(topic, self._objects, self._catalog)
        undeliverable = list(filter(None, map(self._undeliverable, resolution.sets)))
        problems = (*resolution.problems, *undeliverable)
        kept = tuple(problem.order for problem in problems)
        sets = tuple(ordered for ordered in resolution.sets if ordered.order not in kept)
        self._notices.note(topic, problems)
        # Until then its pods would start without the flags of their own, which come within moments.
        state.started |= all(problem.reason != NOT_READY for problem in problems)
        names = resolution.names.union(ordered.place for ordered in resolution.sets)
        self._follow(topic, state, _State(Composition(sets, kept), problems, names))
        if sets and state.started:
            self._deliver_newest(state.composition, listeners)
        elif problems:
            text = "; ".join(f"{problem.reason}: {problem.message}" for problem in problems)
            _deliver(listeners, Missing(Code.FAILED_PRECONDITION, text[:500]))
        else:
            _deliver(listeners, Missing(Code.NOT_FOUND, f"{topic}: nothing is ordered", ends_streams=True))

    def forget(self, topic: OrderedPods) -> None:
        """Drop a topic that has no subscribers any more."""
        state = self._states.get(topic)
        if state is not None and self._topics.get(topic) is None:
            self._follow(topic, state, _State())
            del self._states[topic]
            self._notices.note(topic, ())

    def of(self, change: ClaimChange) -> set[OrderedPods]:
        """The topics that a change of the catalog may concern."""
        places: set[Place] = set(change.places)
        for place in change.places:
            served = self._catalog.object_at(place)
            if served is not None and (writer := proven_writer(served)):
                places.add((served.namespace, writer))
        return {topic for place in places for topic in self._by_place.get(place, ())}

    def in_namespace(self, namespace: str) -> list[OrderedPods]:
        """The topics of pods of a namespace, of all where it is empty."""
        return [topic for topic in self._states if namespace in {"", topic.namespace}]

    def on_build(self, place: Place) -> None:
        """Deliver the topics that may have the set there, of which there is other content now."""
        for topic in tuple(self._by_place.get(place, ())):
            state, listeners = self._states[topic], self._topics.get(topic)
            if listeners is None:
                continue
            if state.started and any(ordered.place == place for ordered in state.composition.sets):
                self._deliver_newest(state.composition, listeners)
            else:
                self.refresh(topic, listeners)

    def places(self, topic: OrderedPods) -> tuple[Place, ...]:
        """Where the flag sets are that subscribers of a topic are sent."""
        state = self._states.get(topic)
        return () if state is None else tuple(ordered.place for ordered in state.composition.sets)

    def parts(self, topic: OrderedPods, served: Sequence[ComposedPart]) -> tuple[SetPart, ...]:
        """What a subscriber serves of each flag set of the topic, if it `served` these parts: of those that
        it is sent, and of those that it keeps.
        """
        state = self._states.get(topic)
        if state is None:
            return ()
        by_origin = {part.origin: part for part in served}
        parts: dict[Place, SetPart] = {}
        for ordered in state.composition.sets:
            part = by_origin.get(ordered.origin, ComposedPart(ordered.order))
            hidden = self._hidden_flags(topic, state.composition, ordered)
            parts[ordered.place] = SetPart(ordered.place, part.digest, part.revision, hidden=hidden)
        problems = {problem.order: problem for problem in state.problems}
        for part in served:
            if (problem := problems.get(part.order)) is None:
                continue
            if (place := self._place_kept(topic, problem, part)) is not None:
                parts.setdefault(place, SetPart(place, part.digest, part.revision, problem.reason))
        return tuple(parts.values())

    def _place_kept(self, topic: OrderedPods, problem: OrderProblem, part: ComposedPart) -> Place | None:
        """Where the set is that a subscriber keeps; None where it may not say so: a set of another namespace
        is believed only if the order names it.
        """
        title = set_title(part.origin, topic.namespace)
        if title is None:
            return None
        if title.namespace != topic.namespace and (title.namespace, title.name) != problem.named:
            return None
        return place_of(title, self._catalog)

    def _hidden_flags(
        self, topic: OrderedPods, composition: Composition, ordered: OrderedSet
    ) -> tuple[tuple[str, str], ...]:
        content = self.composed.get(composition)
        built = None if content is None else content.built
        return tuple(
            (flag.key, "/".join(set_title(flag.by, topic.namespace) or ()))
            for flag in (() if built is None else built.hidden)
            if flag.origin == ordered.origin
        )

    def _undeliverable(self, ordered: OrderedSet) -> OrderProblem | None:
        """Why nothing can be sent of a set, no earlier content either; None: it can, or is not known yet."""
        content = self._contents.newest(ordered.place)
        if content.built is not None or content.undeliverable is None:
            return None
        message = f"{ordered.origin} cannot be delivered: {content.undeliverable.message}"
        return OrderProblem(ordered.order, content.undeliverable.reason, message)

    def close(self) -> None:
        """Deliver nothing more."""
        self.composed.close()

    def _follow(self, topic: OrderedPods, state: _State, newest: _State) -> None:
        before = state.composition
        for place in _places(state):
            _drop(self._by_place, place, topic)
        state.composition, state.problems, state.names = newest.composition, newest.problems, newest.names
        for place in _places(state):
            self._by_place.setdefault(place, set()).add(topic)
        if before == state.composition:
            return
        if before.sets and _drop(self._by_composition, before, topic):
            self.composed.forget(before)
        if state.composition.sets:
            self._by_composition.setdefault(state.composition, set()).add(topic)
        self.moved(topic)

    def _deliver_newest(self, composition: Composition, listeners: Listeners) -> None:
        content = self.composed.newest(composition)
        if content.built is not None:
            for make, deliver in listeners.all():
                deliver(self._contents.payload(content, make))

    def _deliver_composed(self, composition: Composition) -> None:
        content = self.composed.get(composition)
        for listeners in self._listeners(composition):
            for make, deliver in listeners.all():
                if content is not None:
                    deliver(self._contents.payload(content, make))

    def _listeners(self, composition: Composition) -> Iterator[Listeners]:
        for topic in tuple(self._by_composition.get(composition, ())):
            if self._states[topic].started and (listeners := self._topics.get(topic)) is not None:
                yield listeners

    def _makes(self, composition: Composition) -> Iterable[Make]:
        return [make for listeners in self._listeners(composition) for make, _ in listeners.all()]


def _places(state: _State) -> set[Place]:
    return {*state.names, *(ordered.place for ordered in state.composition.sets)}


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
