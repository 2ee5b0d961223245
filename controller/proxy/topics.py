"""Where the sync service's flag sets come from at a proxy: the catalog's objects, each content built once for all who subscribe.

Everything happens on the loop but for the building of large sets, which takes its turn in a thread. What was built stays until the object
goes, so that a subscriber who comes back finds the last good set even if the object has become bad meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from controller.api.meta import about
from controller.proxy.building import Built, Unfit, build
from controller.proxy.selector import Identified, InvalidSelectorError, Named, parse
from evaluator.flags.model import REVISION_KEY
from evaluator.http.routes import Code, RpcError
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from controller.api.claims import Change, Place
    from controller.api.meta import Resource
    from controller.proxy.catalog import Catalog, Seen
    from controller.proxy.selector import Topic
    from evaluator.http.routes import Call
    from evaluator.wire.servicer import Make, Payload, Tell

_log = logging.getLogger(__name__)

LARGE: Final = 16_384
"""Bytes of a spec from which on it is built in a thread; up to here it takes about two milliseconds."""
NOT_SYNCED: Final = Missing(
    Code.UNAVAILABLE, "this proxy does not know yet which objects there are"
)
UNBUILDABLE: Final = Unfit(
    "InternalError", "the flag set cannot be encoded; the proxy's log has more"
)


class UnreviewedError(Exception):
    """It is being asked who may read what."""


def gone(topic: Topic) -> Missing:
    """There is no such object. Streams that were sent its flags end, so that nobody takes them for current."""
    return Missing(Code.NOT_FOUND, f"{topic}: there is no such flag set", ends_streams=True)


@dataclass(slots=True)
class Delivered:
    """What is delivered of one object."""

    number: int
    """The content that was looked at last."""
    built: Built | None = None
    """The last good one."""
    unfit: Unfit | None = None
    """Why the newest content is not delivered."""
    payloads: dict[Make, Payload] = field(default_factory=dict)

    @property
    def missing(self) -> Missing:
        """What whoever asks is told where nothing was built."""
        return NOT_SYNCED if self.unfit is None else self.unfit.missing


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
        """`context` is what in-process providers lay over each evaluation context. `reader` names whose view of flagSetIds a call has, and
        `readable` says whether an object is in that view; None: not known yet, `Deliveries.reviewed` is called when it is.
        """
        self.catalog = catalog
        self.synced = False
        """Whether the catalog is complete; nothing is delivered before."""
        self.built = 0
        """How many contents were built."""
        self._context = context
        self._reader = reader
        self._readable = readable
        self._watched: dict[Topic, _Watched] = {}
        self._identified: dict[str, set[Identified]] = {}
        self._delivered: dict[Place, Delivered] = {}
        self._waiting: dict[Place, None] = {}
        """Whose content is to be built in the thread, in turn."""
        self._building: asyncio.Task[None] | None = None

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
                self._delivered.pop(place, None)
                self._waiting.pop(place, None)
            for topic in self._topics(place, change.claims):
                self._refresh(topic, self._watched[topic])
            # Whoever was served before and will be again: the last good set is kept up to date meanwhile.
            if place in self._delivered:
                self._delivery(place)

    def reviewed(self) -> None:
        """Somebody may read more or less than before."""
        for topics in tuple(self._identified.values()):
            for topic in tuple(topics):
                if topic in self._watched:
                    self._refresh(topic, self._watched[topic])

    # -- what others look at -------------------------------------------------------------------------------------------

    def delivered(self, place: Place) -> Delivered | None:
        """What is delivered of the object there, if anybody ever asked for it."""
        return self._delivered.get(place)

    @property
    def building(self) -> bool:
        """Whether a large set is being built."""
        return self._building is not None

    def deliveries(self) -> Iterator[tuple[Place, Delivered]]:
        """All of them."""
        yield from tuple(self._delivered.items())

    def place_of(self, topic: Topic) -> Place | None:
        """Whose flags a topic has now; None also while it is being asked what its reader may read."""
        try:
            return self._find(topic)
        except UnreviewedError:
            return None

    def _find(self, topic: Topic) -> Place | None:
        """As `place_of`. Raises UnreviewedError while nobody has said whether its reader may read the first that claims it."""
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
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    # -- building and telling ------------------------------------------------------------------------------------------

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
            self._tell_built(watched, self._delivery(watched.place))

    def _delivery(self, place: Place) -> Delivered:
        """What is delivered there, up to date if that is quick; otherwise it is made so soon, and told then."""
        seen = self.catalog.served(place)
        found = self._delivered.get(place)
        if seen is None or (found is not None and found.number == seen.number):
            return found or Delivered(0)
        found = self._delivered.setdefault(place, Delivered(0))
        if len(seen.spec) <= LARGE and not seen.shards:
            self._take(found, seen, self._build(seen, found.built, {}))
            self._tell_all(place)
        else:
            self._waiting[place] = None
            if self._building is None:
                self._building = asyncio.get_running_loop().create_task(self._build_waiting())
        return found

    def _build(self, seen: Seen, before: Built | None, parts: Mapping[str, Seen]) -> Built | Unfit:
        def shard(name: str) -> Resource | None:
            return parts[name].resource() if name in parts else None

        try:
            return build(seen.resource(), shard, None if before is None else before.good)
        except Exception:  # noqa: BLE001 - logged; what is delivered stays
            _log.exception("it cannot be built", extra=_about(seen))
            return UNBUILDABLE

    async def _build_waiting(self) -> None:
        """One set after another, each the newest by its turn, until none is waited for."""
        try:
            while self._waiting:
                place = next(iter(self._waiting))
                del self._waiting[place]
                seen, found = self.catalog.served(place), self._delivered.get(place)
                if seen is None or found is None or seen.number == found.number:
                    continue
                parts = {
                    name: part
                    for name in seen.shards
                    if (part := self.catalog.shard((place[0], name))) is not None
                }
                makes = {make for make, _ in self._watchers(place)}
                built, payloads = await asyncio.to_thread(
                    partial(self._make_aside, seen, found.built, parts, makes)
                )
                # Another object of that name may have come meanwhile.
                if self._delivered.get(place) is found:
                    self._take(found, seen, built)
                    found.payloads.update(payloads)
                    self._tell_all(place)
                    self._delivery(place)
        finally:
            self._building = None

    def _make_aside(
        self, seen: Seen, before: Built | None, parts: Mapping[str, Seen], makes: Iterable[Make]
    ) -> tuple[Built | Unfit, dict[Make, Payload]]:
        built = self._build(seen, before, parts)
        if isinstance(built, Unfit):
            return built, {}
        return built, {make: make(built.document, self._context) for make in makes}

    def _take(self, found: Delivered, seen: Seen, built: Built | Unfit) -> None:
        found.number = seen.number
        self.built += 1
        if isinstance(built, Unfit):
            found.unfit = built
            level = logging.INFO if built.reason == "ShardsMissing" else logging.WARNING
            kept = "the previous set stays" if found.built else "nothing is delivered"
            _log.log(level, "%s: %s; %s", built.reason, built.message, kept, extra=_about(seen))
            return
        found.unfit = None
        if found.built is None or found.built.document != built.document:
            found.payloads.clear()
        found.built = built
        if built.held or built.left_out:
            _log.warning(
                "%d flags with errors stay at their last good definition, %d have none here and are left out",
                len(built.held), len(built.left_out), extra=_about(seen),
            )  # fmt: skip

    def _watchers(self, place: Place) -> Iterator[tuple[Make, Tell]]:
        for topic in self._topics(place, ()):
            watched = self._watched[topic]
            if watched.place == place:
                yield from tuple(watched.watchers.values())

    def _tell_all(self, place: Place) -> None:
        found = self._delivered[place]
        for make, tell in self._watchers(place):
            tell(self._payload(found, make))

    def _tell_built(self, watched: _Watched, found: Delivered) -> None:
        if found.number == 0 and found.built is None:
            # It is being built; telling nothing is telling to wait.
            return
        for make, tell in tuple(watched.watchers.values()):
            tell(self._payload(found, make))

    def _payload(self, found: Delivered, make: Make) -> Payload | Missing:
        if found.built is None:
            return found.missing
        payload = found.payloads.get(make)
        if payload is None:
            payload = found.payloads[make] = make(found.built.document, self._context)
        return payload


def _tell(watched: _Watched, missing: Missing) -> None:
    for _, tell in tuple(watched.watchers.values()):
        tell(missing)


def _about(seen: Seen) -> dict[str, str]:
    return about(seen.meta.key, seen.meta.annotations.get(REVISION_KEY, ""))
