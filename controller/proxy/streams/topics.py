"""The topics with subscribers, and those that may have the flags of an object. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.api.flagset import proven_writer
from controller.proxy.streams.selector import Identified, Named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from controller.delivery.claim import Place
    from controller.proxy.catalog import Catalog
    from controller.proxy.streams.selector import Topic
    from evaluator.wire.servicer import Deliver, Make


@dataclass(slots=True)
class Listeners:
    """The subscribers of one topic."""

    place: Place | None = None
    """The object whose flags they were sent last."""
    sinks: dict[object, tuple[Make, Deliver]] = field(default_factory=dict)
    """For each, how flags are encoded and the function that receives them."""

    def all(self) -> tuple[tuple[Make, Deliver], ...]:
        """The sinks as they are now: one may be cancelled while others receive."""
        return tuple(self.sinks.values())


class Topics:
    """The topics with listeners."""

    def __init__(self, catalog: Catalog) -> None:
        self.moved: Callable[[Named], None] = lambda _topic: None
        """Called when a topic has the flags of another object than before."""
        self._catalog = catalog
        self._listeners: dict[Topic, Listeners] = {}
        self._identified: dict[str, set[Identified]] = {}
        """Topics by flagSetId, one for each reader."""
        self._elsewhere: dict[Place, set[Named]] = {}
        """Topics that have the flags of an object with another name than theirs: what a FlagSet writes."""

    def add(self, topic: Topic, make: Make, deliver: Deliver) -> tuple[Listeners, Callable[[], None]]:
        """(all listeners of the topic, the function that removes this one)."""
        token = object()
        listeners = self._listeners.setdefault(topic, Listeners())
        listeners.sinks[token] = (make, deliver)
        if isinstance(topic, Identified):
            self._identified.setdefault(topic.flag_set_id, set()).add(topic)

        def cancel() -> None:
            listeners.sinks.pop(token, None)
            if not listeners.sinks and self._listeners.get(topic) is listeners:
                self._drop(topic)

        return listeners, cancel

    def get(self, topic: Topic) -> Listeners | None:
        """Return all listeners of the topic; None if it has none."""
        return self._listeners.get(topic)

    def all(self) -> Iterator[tuple[Topic, Listeners]]:
        """Every topic with listeners."""
        yield from tuple(self._listeners.items())

    def topics_of_identifiers(self) -> Iterator[tuple[Topic, Listeners]]:
        """Every topic that is a flagSetId."""
        for topics in tuple(self._identified.values()):
            for topic in tuple(topics):
                if (listeners := self._listeners.get(topic)) is not None:
                    yield topic, listeners

    def of(self, place: Place, flag_set_ids: Iterable[str] = ()) -> list[tuple[Topic, Listeners]]:
        """The topics that may have the flags there: by the name, the flagSetId, or `flag_set_ids`."""
        ids = {self._catalog.claims.flag_set_id(place), *flag_set_ids}
        topics: list[Topic] = [topic for id_ in ids for topic in self._identified.get(id_, ())]
        topics.append(Named(*place))
        served = self._catalog.object_at(place)
        writer = "" if served is None else proven_writer(served)
        if writer not in {"", place[1]}:
            topics.append(Named(place[0], writer))
        topics += self._elsewhere.get(place, set()).difference(topics)
        return [(topic, self._listeners[topic]) for topic in topics if topic in self._listeners]

    def sinks(self, place: Place) -> Iterator[tuple[Make, Deliver]]:
        """The sinks of everybody who was sent the flags of the object there."""
        for _, listeners in self.of(place):
            if listeners.place == place:
                yield from listeners.all()

    def move(self, topic: Topic, listeners: Listeners, place: Place | None) -> None:
        """Note that the listeners of a topic are sent the flags of the object there; None: of none."""
        before, listeners.place = listeners.place, place
        if not isinstance(topic, Named) or before == place:
            return
        own = (topic.namespace, topic.name)
        if before not in {own, None}:
            self._elsewhere[before].discard(topic)
            if not self._elsewhere[before]:
                del self._elsewhere[before]
        if place not in {own, None}:
            self._elsewhere.setdefault(place, set()).add(topic)
        self.moved(topic)

    def clear(self) -> None:
        """Forget everybody."""
        self._listeners.clear()

    def _drop(self, topic: Topic) -> None:
        self.move(topic, self._listeners.pop(topic), None)
        if isinstance(topic, Identified):
            topics = self._identified[topic.flag_set_id]
            topics.discard(topic)
            if not topics:
                del self._identified[topic.flag_set_id]
