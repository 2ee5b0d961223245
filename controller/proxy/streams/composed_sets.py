"""The flags of several sets, composed once for all topics that have these sets; large ones in a thread, one
at a time.

A set stays at its last good content here even when its object is deleted, so the other sets move on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cachetools import FIFOCache

from controller.proxy.orders.resolution import OrderedSet
from controller.proxy.streams.composition import compose
from controller.proxy.streams.contents import LARGE, Content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from controller.delivery.claim import Place
    from controller.proxy.streams.building import EncodedFlagSet
    from controller.proxy.streams.contents import Contents
    from evaluator.wire.servicer import Make
    from evaluator.wire.sync_messages import Payload

REMEMBERED: Final = 64
"""Compositions whose parts are known to receipts: evaluators may serve one for a while."""
Sets: TypeAlias = tuple[OrderedSet, ...]


class SetPart(NamedTuple):
    """What is served of one flag set, alone or as a part of a composition."""

    place: Place
    digest: str
    """Empty where it is not known."""
    revision: str


@dataclass(slots=True)
class ComposedSet:
    """The flags of several sets."""

    sets: Sets
    content: Content = field(default_factory=Content)
    good: dict[Place, EncodedFlagSet] = field(default_factory=dict)
    """The last good content of each set."""
    parts: FIFOCache[str, tuple[SetPart, ...]] = field(default_factory=lambda: FIFOCache(REMEMBERED))
    """By the digest of a composition."""

    def parts_to_compose(self) -> list[EncodedFlagSet]:
        """Return the content of each set, if it is to be composed anew; empty also while a set has none."""
        if len(self.good) < len(self.sets):
            return []
        good = [self.good[ordered.place] for ordered in self.sets]
        return [] if self.content.version == tuple(part.document for part in good) else good

    def take(self, built: EncodedFlagSet, good: Sequence[EncodedFlagSet]) -> None:
        """Store `built`, which was composed of `good`, one for each set."""
        if self.content.built is None or self.content.built.document != built.document:
            self.content.payloads.clear()
        self.content.version, self.content.built = tuple(part.document for part in good), built
        self.parts[built.digest] = tuple(
            SetPart(ordered.place, part.digest, part.revision)
            for ordered, part in zip(self.sets, good, strict=True)
        )


class ComposedSets:
    """The compositions that topics have."""

    def __init__(
        self, contents: Contents, composed: Callable[[Sets], None], makes: Callable[[Sets], Iterable[Make]]
    ) -> None:
        """`composed` is called once a large composition is there; `makes` returns how the messages of its
        subscribers are encoded.
        """
        self._contents = contents
        self._composed = composed
        self._makes = makes
        self._known: dict[Sets, ComposedSet] = {}
        self._waiting: dict[Sets, None] = {}
        """Compositions to be made in the thread, in order."""
        self._building: asyncio.Task[None] | None = None

    @property
    def building(self) -> bool:
        """Whether a large set is being composed."""
        return self._building is not None

    def get(self, sets: Sets) -> ComposedSet | None:
        """Return the composition, if any topic has it."""
        return self._known.get(sets)

    def forget(self, sets: Sets) -> None:
        """Drop the composition: no topic has it any more."""
        self._known.pop(sets, None)
        self._waiting.pop(sets, None)

    def close(self) -> None:
        """Compose nothing more."""
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    def newest(self, sets: Sets) -> ComposedSet:
        """Return the composition of what the sets have now. A large one is composed in the thread, and
        `composed` is called afterwards.
        """
        known = self._known.setdefault(sets, ComposedSet(sets))
        for ordered in sets:
            built = self._contents.newest(ordered.place).built
            if built is not None:
                known.good[ordered.place] = built
        good = known.parts_to_compose()
        if not good:
            return known
        if sum(len(part.document) for part in good) <= LARGE:
            known.take(_compose(sets, good), good)
        else:
            self._waiting[sets] = None
            if self._building is None:
                self._building = asyncio.get_running_loop().create_task(self._compose_waiting())
        return known

    async def _compose_waiting(self) -> None:
        """Compose one after another, each as it is at its turn, until none is waiting."""
        try:
            while self._waiting:
                sets = next(iter(self._waiting))
                del self._waiting[sets]
                known = self._known.get(sets)
                good = [] if known is None else known.parts_to_compose()
                if known is None or not good:
                    continue
                built, payloads = await asyncio.to_thread(
                    partial(self._compose_with_payloads, sets, good, set(self._makes(sets)))
                )
                if self._known.get(sets) is known:
                    known.take(built, good)
                    known.content.payloads.update(payloads)
                    self._composed(sets)
                    self.newest(sets)
        finally:
            self._building = None

    def _compose_with_payloads(
        self, sets: Sets, good: Sequence[EncodedFlagSet], makes: Iterable[Make]
    ) -> tuple[EncodedFlagSet, dict[Make, Payload]]:
        built = _compose(sets, good)
        return built, {make: make(built.document, self._contents.context) for make in makes}


def _compose(sets: Sets, good: Sequence[EncodedFlagSet]) -> EncodedFlagSet:
    return compose([(ordered.origin, part) for ordered, part in zip(sets, good, strict=True)])
