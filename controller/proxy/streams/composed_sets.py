"""The flags of several sets, composed once for all topics that have these sets; large ones in a thread, one
at a time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from controller.proxy.orders.resolution import PRECEDENCE, OrderedSet
from controller.proxy.streams.composition import compose
from controller.proxy.streams.contents import LARGE, Content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from controller.delivery.claim import Place
    from controller.proxy.streams.building import EncodedFlagSet
    from controller.proxy.streams.contents import Contents
    from evaluator.wire.servicer import Make
    from evaluator.wire.sync_messages import Payload


class Composition(NamedTuple):
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
        composed: Callable[[Composition], None],
        makes: Callable[[Composition], Iterable[Make]],
    ) -> None:
        """`composed` is called once a large composition is there; `makes` returns how the messages of its
        subscribers are encoded.
        """
        self._contents = contents
        self._composed = composed
        self._makes = makes
        self._known: dict[Composition, Content] = {}
        self._waiting: dict[Composition, None] = {}
        """Compositions to be made in the thread, in order."""
        self._building: asyncio.Task[None] | None = None

    @property
    def building(self) -> bool:
        """Whether a large set is being composed."""
        return self._building is not None

    def get(self, composition: Composition) -> Content | None:
        """Return the composed flags, if any topic has them."""
        return self._known.get(composition)

    def forget(self, composition: Composition) -> None:
        """Drop the composition: no topic has it any more."""
        self._known.pop(composition, None)
        self._waiting.pop(composition, None)

    def close(self) -> None:
        """Compose nothing more."""
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    def newest(self, composition: Composition) -> Content:
        """Return the composition of what the sets have now. A large one is composed in the thread, and
        `composed` is called afterwards.
        """
        known = self._known.setdefault(composition, Content())
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

    def _contents_to_compose(self, composition: Composition, known: Content) -> list[EncodedFlagSet]:
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
        self, composition: Composition, good: Sequence[EncodedFlagSet], makes: Iterable[Make]
    ) -> tuple[EncodedFlagSet, dict[Make, Payload]]:
        built = _compose(composition, good)
        return built, {make: make(built.document, self._contents.context) for make in makes}


def _take(known: Content, built: EncodedFlagSet, good: Sequence[EncodedFlagSet]) -> None:
    if known.built is None or known.built.document != built.document:
        known.payloads.clear()
    known.version, known.built = _version(good), built


def _version(good: Sequence[EncodedFlagSet]) -> object:
    return tuple(part.document for part in good)


def _compose(composition: Composition, good: Sequence[EncodedFlagSet]) -> EncodedFlagSet:
    sent = zip(composition.sets, good, strict=True)
    sets: list[tuple[str, str, EncodedFlagSet | None]] = [
        *((ordered.order, ordered.origin, content) for ordered, content in sent),
        *((order, "", None) for order in composition.kept),
    ]
    return compose(sorted(sets, key=lambda one: PRECEDENCE.index(one[0])))
