"""Where the sync service's flag sets come from at a proxy: which of the catalog's objects a topic has, and
who is told of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from controller.proxy.streams.contents import NOT_SYNCED, Contents
from controller.proxy.streams.selector import Identified, InvalidSelectorError, Named, parse
from evaluator.http.messages import Code, RpcError
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from controller.delivery.claims import Change, Place
    from controller.proxy.catalog import Catalog
    from controller.proxy.streams.contents import Delivered
    from controller.proxy.streams.selector import Topic
    from evaluator.http.messages import Call
    from evaluator.wire.servicer import Make, Tell


class UnreviewedError(Exception):
    """It is being asked who may read what."""


def gone(topic: Topic) -> Missing:
    """There is no such object. Streams that were sent its flags end, so that nobody takes them
    for current.
    """
    return Missing(Code.NOT_FOUND, f"{topic}: there is no such flag set", ends_streams=True)


@dataclass(slots=True)
class _Watched:
    """A topic that somebody listens to."""

    place: Place | None = None
    """Whose flags it has now."""
    watchers: dict[object, tuple[Make, Tell]] = field(default_factory=dict)


class Deliveries:
    """The backend of the sync service."""

    def __init__(
        self,
        catalog: Catalog,
        context: Mapping[str, Any],
        *,
        reader: Callable[[Call], str] = lambda _: "",
        readable: Callable[[str, Place], bool | None] = lambda _reader, _place: True,
    ) -> None:
        """`context` is what in-process providers lay over each evaluation context. `reader` names whose view
        of flagSetIds a call has, and `readable` says whether an object is in that view; None: not known yet,
        `Deliveries.reviewed` is called when it is.
        """
        self.catalog = catalog
        self.synced = False
        """Whether the catalog is complete; nothing is delivered before."""
        self._context = context
        self._reader = reader
        self._readable = readable
        self._watched: dict[Topic, _Watched] = {}
        self._identified: dict[str, set[Identified]] = {}
        self.contents = Contents(catalog, context, self._watchers)

    # -- what the sync service asks ------------------------------------------------------------------------------------

    def topic(self, selector: str, call: Call) -> Hashable:
        """The topic that a selector means; raises RpcError INVALID_ARGUMENT."""
        try:
            topic = parse(selector)
        except InvalidSelectorError as error:
            raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error
        if isinstance(topic, Identified):
            return Identified(topic.flag_set_id, self._reader(call))
        return topic

    def context(self) -> Mapping[str, Any]:
        """What is laid over evaluation contexts."""
        return self._context

    def watch(self, topic: Hashable, make: Make, tell: Tell) -> Callable[[], None]:
        """See Backend: what is built is told before this returns."""
        wanted, token = cast("Topic", topic), object()
        watched = self._watched.setdefault(wanted, _Watched())
        watched.watchers[token] = (make, tell)
        if isinstance(wanted, Identified):
            self._identified.setdefault(wanted.flag_set_id, set()).add(wanted)

        def cancel() -> None:
            watched.watchers.pop(token, None)
            if not watched.watchers and self._watched.get(wanted) is watched:
                self._drop(wanted)

        self._refresh(wanted, watched)
        return cancel

    # -- what the watches tell -----------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Everything that there is was learnt: from here on, what is not known is not there."""
        self.synced = True
        for topic, watched in tuple(self._watched.items()):
            self._refresh(topic, watched)

    def changed(self, change: Change) -> None:
        """The catalog has learnt something."""
        for place in change.places:
            if self.catalog.served(place) is None:
                self.contents.forget(place)
            for topic in self._topics(place, change.claims):
                self._refresh(topic, self._watched[topic])
            # Whoever was served before and will be again: the last good set is kept up to date meanwhile.
            if self.contents.of(place) is not None:
                self.contents.newest(place)

    def reviewed(self) -> None:
        """Somebody may read more or less than before."""
        for topics in tuple(self._identified.values()):
            for topic in tuple(topics):
                if topic in self._watched:
                    self._refresh(topic, self._watched[topic])

    # -- what others look at -------------------------------------------------------------------------------------------

    def place_of(self, topic: Topic) -> Place | None:
        """Whose flags a topic has now; None also while it is being asked what its reader may read."""
        try:
            return self._find(topic)
        except UnreviewedError:
            return None

    def place_told(self, topic: Topic) -> Place | None:
        """As `place_of`; while it is being asked, whose flags its streams were told last. Raises
        UnreviewedError where there are none.
        """
        try:
            return self._find(topic)
        except UnreviewedError:
            watched = self._watched.get(topic)
            place = None if watched is None else watched.place
            if place is None or self.catalog.served(place) is None:
                raise
            return place

    def _find(self, topic: Topic) -> Place | None:
        """As `place_of`. Raises UnreviewedError while nobody has said whether its reader may read the first
        that claims it.
        """
        if isinstance(topic, Named):
            place = (topic.namespace, topic.name)
            return place if self.catalog.served(place) is not None else None
        for seen in self.catalog.claims(topic.flag_set_id):
            allowed = self._readable(topic.reader, seen.place)
            if allowed is None:
                raise UnreviewedError
            if allowed:
                return seen.place
        return None

    def close(self) -> None:
        """Tell nobody anything more."""
        self._watched.clear()
        self.contents.close()

    # -- telling -------------------------------------------------------------------------------------------------------

    def _topics(self, place: Place, claims: Iterable[str]) -> list[Topic]:
        ids = {self.catalog.flag_set_id(place), *claims}
        found: list[Topic] = [each for id_ in ids for each in self._identified.get(id_, ())]
        found.append(Named(*place))
        return [topic for topic in found if topic in self._watched]

    def _drop(self, topic: Topic) -> None:
        del self._watched[topic]
        if isinstance(topic, Identified):
            topics = self._identified[topic.flag_set_id]
            topics.discard(topic)
            if not topics:
                del self._identified[topic.flag_set_id]

    def _refresh(self, topic: Topic, watched: _Watched) -> None:
        """Tell the topic what it has now, or have that built."""
        if not self.synced:
            _tell(watched, NOT_SYNCED)
            return
        try:
            watched.place = self._find(topic)
        except UnreviewedError:
            return
        if watched.place is None:
            _tell(watched, gone(topic))
        else:
            self._tell_built(watched, self.contents.newest(watched.place))

    def _watchers(self, place: Place) -> Iterator[tuple[Make, Tell]]:
        for topic in self._topics(place, ()):
            watched = self._watched[topic]
            if watched.place == place:
                yield from tuple(watched.watchers.values())

    def _tell_built(self, watched: _Watched, found: Delivered) -> None:
        if found.number == 0 and found.built is None:
            # It is being built; telling nothing is telling to wait.
            return
        for make, tell in tuple(watched.watchers.values()):
            tell(self.contents.payload(found, make))


def _tell(watched: _Watched, missing: Missing) -> None:
    for _, tell in tuple(watched.watchers.values()):
        tell(missing)
