"""The backend of the sync service: which flags a topic has, also by standing orders, and what its streams
are sent.

A set that an order names and that cannot be sent is left to the subscribers, which keep what they have of it;
they are sent the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from controller.api.flagset import proven_writer
from controller.delivery.claims import ClaimChange, Place
from controller.delivery.standing_orders import OrderedPods, set_title
from controller.proxy.catalog import Identified, Listeners, Named, ObjectCatalog, Topic, Topics, parse
from controller.proxy.contents import NOT_SYNCED, ComposedSets, Contents, SetComposition, SetPart
from controller.proxy.orders import (
    NOT_READY,
    OrderedSet,
    OrderNotices,
    OrderObjects,
    OrderProblem,
    place_of,
    resolve,
)
from evaluator.flags.model import ComposedPart
from evaluator.http.messages import Call, Code
from evaluator.wire.servicer import Deliver, Make, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence


K = TypeVar("K")

_NOT_SYNCED: Final = Missing(
    Code.UNAVAILABLE, "this proxy has not listed the Namespaces, workloads and FlagGrants with orders yet"
)


@dataclass(slots=True)
class _State:
    """One topic."""

    composition: SetComposition = field(default_factory=SetComposition)
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
        catalog: ObjectCatalog,
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
        self._by_composition: dict[SetComposition, set[OrderedPods]] = {}

    def refresh(self, topic: OrderedPods, listeners: Listeners) -> None:
        """Find what is ordered for the topic now, and deliver that to its listeners or have it encoded."""
        state = self._states.setdefault(topic, _State())
        if not self._objects.synced:
            _deliver_missing(listeners, _NOT_SYNCED)
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
        self._follow(topic, state, _State(SetComposition(sets, kept), problems, names))
        if sets and state.started:
            self._deliver_newest(state.composition, listeners)
        elif problems:
            text = "; ".join(f"{problem.reason}: {problem.message}" for problem in problems)
            _deliver_missing(listeners, Missing(Code.FAILED_PRECONDITION, text[:500]))
        else:
            _deliver_missing(
                listeners, Missing(Code.NOT_FOUND, f"{topic}: nothing is ordered", ends_streams=True)
            )

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
        self, topic: OrderedPods, composition: SetComposition, ordered: OrderedSet
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

    def _deliver_newest(self, composition: SetComposition, listeners: Listeners) -> None:
        content = self.composed.newest(composition)
        if content.built is not None:
            for make, deliver in listeners.all():
                deliver(self._contents.payload(content, make))

    def _deliver_composed(self, composition: SetComposition) -> None:
        content = self.composed.get(composition)
        for listeners in self._listeners(composition):
            for make, deliver in listeners.all():
                if content is not None:
                    deliver(self._contents.payload(content, make))

    def _listeners(self, composition: SetComposition) -> Iterator[Listeners]:
        for topic in tuple(self._by_composition.get(composition, ())):
            if self._states[topic].started and (listeners := self._topics.get(topic)) is not None:
                yield listeners

    def _makes(self, composition: SetComposition) -> Iterable[Make]:
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


def _deliver_missing(listeners: Listeners, missing: Missing) -> None:
    for _, deliver in listeners.all():
        deliver(missing)


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
        self, catalog: ObjectCatalog, topics: Topics, contents: Contents, ordered: OrderedTopics, views: Views
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
