"""The content of each object, and of several composed, read and encoded once for all who subscribe.

Large content is read in a thread, one at a time.

Content is kept until the object goes, so that a subscriber who comes back finds the last good set even if the
object has become bad meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api.meta import Resource, about
from controller.delivery.overrides import with_kept
from controller.proxy.building import EncodedFlagSet, Undeliverable, build, compose
from controller.proxy.catalog import ObjectCatalog, decode_spec, spec_bytes
from controller.proxy.orders import PRECEDENCE, OrderedSet
from evaluator.flags.model import REVISION_KEY
from evaluator.http.messages import Code
from evaluator.wire.servicer import Deliver, Make, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from controller.delivery.claims import Place
    from controller.proxy.progress_objects import ProgressObjects
    from evaluator.flags.accept import Progress
    from evaluator.wire.sync_messages import Payload


_log = logging.getLogger(__name__)

LARGE: Final = 16_384
"""Bytes of a spec from which on it is built in a thread; up to here it takes about two milliseconds."""
NOT_SYNCED: Final = Missing(Code.UNAVAILABLE, "this proxy has not listed the cluster's objects yet")
UNBUILDABLE: Final = Undeliverable(
    "InternalError", "the flag set cannot be encoded; the proxy's log has more"
)


@dataclass(slots=True)
class ObjectContent:
    """What is delivered of one object."""

    version: object = None
    """The version of the content that was built last, progress included; None: none was yet."""
    built: EncodedFlagSet | None = None
    """The last good one."""
    undeliverable: Undeliverable | None = None
    """Why the newest content is not delivered."""
    payloads: dict[Make, Payload] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Return whether it is known: a flag set, or why there is none."""
        return self.version is not None

    @property
    def missing(self) -> Missing:
        """The status for subscribers where nothing was built."""
        return NOT_SYNCED if self.undeliverable is None else self.undeliverable.missing


class Contents:
    """What was built of the catalog's objects that were asked for."""

    def __init__(
        self,
        catalog: ObjectCatalog,
        context: Mapping[str, Any],
        sinks: Callable[[Place], Iterable[tuple[Make, Deliver]]],
        progress: ProgressObjects,
    ) -> None:
        """`context` is what in-process providers lay over each evaluation context; `sinks` are those of the
        object's subscribers.
        """
        self.built = 0
        """The number of contents that were built."""
        self.rebuilt: Callable[[Place], None] = lambda _place: None
        """Called when the content of an object was built, after its own subscribers were sent it."""
        self._catalog = catalog
        self.context = context
        self._sinks = sinks
        self.progress = progress
        self._contents: dict[Place, ObjectContent] = {}
        self._waiting: dict[Place, None] = {}
        """The objects whose content is to be built in the thread, in order."""
        self._building: asyncio.Task[None] | None = None

    @property
    def building(self) -> bool:
        """Whether a large set is being built."""
        return self._building is not None

    def all(self) -> Iterator[tuple[Place, ObjectContent]]:
        """Return all contents."""
        yield from tuple(self._contents.items())

    def of(self, place: Place) -> ObjectContent | None:
        """Return what is delivered of an object, if anybody ever asked for it."""
        return self._contents.get(place)

    def forget(self, place: Place) -> None:
        """Drop the content of a deleted object."""
        self._contents.pop(place, None)
        self._waiting.pop(place, None)

    def close(self) -> None:
        """Build nothing more."""
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    def newest(self, place: Place) -> ObjectContent:
        """What is delivered there. A large object is built in the thread, and delivered afterwards."""
        served = self._catalog.object_at(place)
        if served is None:
            return self._contents.get(place) or ObjectContent()
        content = self._contents.setdefault(place, ObjectContent())
        progress = self.progress.progress(served, delivered=content.built is not None)
        version = self._version(place, progress)
        if content.version == version:
            return content
        if spec_bytes(served) <= LARGE and not self._catalog.shards(place):
            self._take(content, version, served, self._build(served, content.built, {}, progress))
            self._deliver_all(place)
        else:
            self._waiting[place] = None
            if self._building is None:
                self._building = asyncio.get_running_loop().create_task(self._build_waiting())
        return content

    def payload(self, content: ObjectContent, make: Make) -> Payload | Missing:
        """What is delivered, as `make` encodes it, or why nothing is."""
        if content.built is None:
            return content.missing
        payload = content.payloads.get(make)
        if payload is None:
            payload = content.payloads[make] = make(content.built.document, self.context)
        return payload

    def _version(self, place: Place, progress: Progress) -> tuple[object, Progress]:
        return self._catalog.version(place), progress

    def _build(
        self,
        served: Resource,
        before: EncodedFlagSet | None,
        shards: Mapping[str, Resource | None],
        progress: Progress,
    ) -> EncodedFlagSet | Undeliverable:
        def shard(name: str) -> Resource | None:
            resource = shards.get(name)
            return None if resource is None else decode_spec(resource)

        previous = None if before is None else before.good
        try:
            return build(decode_spec(served), shard, previous, progress)
        except Exception:  # noqa: BLE001 - logged; what is delivered stays
            _log.exception("it cannot be built", extra=_about(served))
            return UNBUILDABLE

    async def _build_waiting(self) -> None:
        """Build one set after another, each as it is at its turn, until no build is waiting."""
        try:
            while self._waiting:
                place = next(iter(self._waiting))
                del self._waiting[place]
                served, content = self._catalog.object_at(place), self._contents.get(place)
                if served is None or content is None:
                    continue
                progress = self.progress.progress(served, delivered=content.built is not None)
                version = self._version(place, progress)
                if version == content.version:
                    continue
                shards = self._catalog.shards(place)
                makes = {make for make, _ in self._sinks(place)}
                built, payloads = await asyncio.to_thread(
                    partial(self._build_with_payloads, served, content.built, shards, makes, progress)
                )
                # Another object of that name may have come meanwhile.
                if self._contents.get(place) is content:
                    self._take(content, version, served, built)
                    content.payloads.update(payloads)
                    self._deliver_all(place)
                    self.newest(place)
        finally:
            self._building = None

    def _build_with_payloads(
        self,
        served: Resource,
        before: EncodedFlagSet | None,
        shards: Mapping[str, Resource | None],
        makes: Iterable[Make],
        progress: Progress,
    ) -> tuple[EncodedFlagSet | Undeliverable, dict[Make, Payload]]:
        built = self._build(served, before, shards, progress)
        if isinstance(built, Undeliverable):
            return built, {}
        return built, {make: make(built.document, self.context) for make in makes}

    def _take(
        self,
        content: ObjectContent,
        version: tuple[object, Progress],
        served: Resource,
        built: EncodedFlagSet | Undeliverable,
    ) -> None:
        content.version = version
        self.built += 1
        if isinstance(built, Undeliverable):
            content.undeliverable = built
            level = logging.INFO if built.reason == "ShardsMissing" else logging.WARNING
            kept = "the previous set stays" if content.built else "nothing is delivered"
            _log.log(level, "%s: %s; %s", built.reason, built.message, kept, extra=_about(served))
            return
        content.undeliverable = None
        if built.kept:
            self.progress.keep(served.namespace, built.kept)
            content.version = version[0], with_kept(version[1], built.kept)
        if content.built is None or content.built.document != built.document:
            content.payloads.clear()
        content.built = built
        if built.held or built.left_out:
            _log.warning(
                "%d flags with errors stay at their last good definition, %d have none here and are left out",
                len(built.held), len(built.left_out), extra=_about(served),
            )  # fmt: skip

    def _deliver_all(self, place: Place) -> None:
        content = self._contents[place]
        for make, deliver in self._sinks(place):
            deliver(self.payload(content, make))
        self.rebuilt(place)


def _about(served: Resource) -> dict[str, str]:
    return about(served.key, served.annotations.get(REVISION_KEY, ""))


class SetComposition(NamedTuple):
    """What is composed."""

    sets: tuple[OrderedSet, ...] = ()
    """The sets that are sent."""
    kept: tuple[str, ...] = ()
    """What asks for the sets that are not sent: of these, receivers keep what they have."""


class SetPart(NamedTuple):
    """What a subscriber serves of one flag set, alone or as a part of a composition."""

    place: Place
    digest: str
    """Empty where it is not known."""
    revision: str
    reason: str = ""
    """Why it is not sent the set, and keeps what it has of it; empty: it is sent it."""
    hidden: tuple[tuple[str, str], ...] = ()
    """(key, set as `Kind/namespace/name`) of flags under an override that it has from another set."""


class ComposedSets:
    """The compositions that topics have."""

    def __init__(
        self,
        contents: Contents,
        composed: Callable[[SetComposition], None],
        makes: Callable[[SetComposition], Iterable[Make]],
    ) -> None:
        """`composed` is called once a large composition is there; `makes` returns how the messages of its
        subscribers are encoded.
        """
        self._contents = contents
        self._composed = composed
        self._makes = makes
        self._known: dict[SetComposition, ObjectContent] = {}
        self._waiting: dict[SetComposition, None] = {}
        """Compositions to be made in the thread, in order."""
        self._building: asyncio.Task[None] | None = None

    @property
    def building(self) -> bool:
        """Whether a large set is being composed."""
        return self._building is not None

    def get(self, composition: SetComposition) -> ObjectContent | None:
        """Return the composed flags, if any topic has them."""
        return self._known.get(composition)

    def forget(self, composition: SetComposition) -> None:
        """Drop the composition: no topic has it any more."""
        self._known.pop(composition, None)
        self._waiting.pop(composition, None)

    def close(self) -> None:
        """Compose nothing more."""
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    def newest(self, composition: SetComposition) -> ObjectContent:
        """Return the composition of what the sets have now. A large one is composed in the thread, and
        `composed` is called afterwards.
        """
        known = self._known.setdefault(composition, ObjectContent())
        good = self._contents_to_compose(composition, known)
        if not good:
            return known
        if sum(len(part.document) for part in good) <= LARGE:
            _take(known, _compose(composition, good), good)
        else:
            self._waiting[composition] = None
            if self._building is None:
                self._building = asyncio.get_running_loop().create_task(self._compose_waiting())
        return known

    def _contents_to_compose(self, composition: SetComposition, known: ObjectContent) -> list[EncodedFlagSet]:
        """Return the content of each set, if it is to be composed anew; empty also while a set has none."""
        contents = [self._contents.newest(ordered.place).built for ordered in composition.sets]
        good = [content for content in contents if content is not None]
        return good if len(good) == len(contents) and known.version != _version(good) else []

    async def _compose_waiting(self) -> None:
        """Compose one after another, each as it is at its turn, until none is waiting."""
        try:
            while self._waiting:
                composition = next(iter(self._waiting))
                del self._waiting[composition]
                known = self._known.get(composition)
                good = [] if known is None else self._contents_to_compose(composition, known)
                if known is None or not good:
                    continue
                built, payloads = await asyncio.to_thread(
                    partial(self._compose_with_payloads, composition, good, set(self._makes(composition)))
                )
                if self._known.get(composition) is known:
                    _take(known, built, good)
                    known.payloads.update(payloads)
                    self._composed(composition)
                    self.newest(composition)
        finally:
            self._building = None

    def _compose_with_payloads(
        self, composition: SetComposition, good: Sequence[EncodedFlagSet], makes: Iterable[Make]
    ) -> tuple[EncodedFlagSet, dict[Make, Payload]]:
        built = _compose(composition, good)
        return built, {make: make(built.document, self._contents.context) for make in makes}


def _take(known: ObjectContent, built: EncodedFlagSet, good: Sequence[EncodedFlagSet]) -> None:
    if known.built is None or known.built.document != built.document:
        known.payloads.clear()
    known.version, known.built = _version(good), built


def _version(good: Sequence[EncodedFlagSet]) -> object:
    return tuple(part.document for part in good)


def _compose(composition: SetComposition, good: Sequence[EncodedFlagSet]) -> EncodedFlagSet:
    sent = zip(composition.sets, good, strict=True)
    sets: list[tuple[str, str, EncodedFlagSet | None]] = [
        *((ordered.order, ordered.origin, content) for ordered, content in sent),
        *((order, "", None) for order in composition.kept),
    ]
    return compose(sorted(sets, key=lambda one: PRECEDENCE.index(one[0])))
