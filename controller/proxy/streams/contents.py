"""What each object's content was built to: once for all who subscribe, and what is large in its turn in a
thread.

What was built stays until the object goes, so that a subscriber who comes back finds the last good set even
if the object has become bad meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import about
from controller.delivery.delivered import no_progress
from controller.proxy.streams.building import Built, Unfit, build
from evaluator.flags.model import REVISION_KEY
from evaluator.http.messages import Code
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from controller.api.meta import Resource
    from controller.delivery.claims import Place
    from controller.proxy.catalog import Catalog, Seen
    from evaluator.flags.effective import Progress
    from evaluator.wire.servicer import Make, Payload, Tell

_log = logging.getLogger(__name__)

LARGE: Final = 16_384
"""Bytes of a spec from which on it is built in a thread; up to here it takes about two milliseconds."""
NOT_SYNCED: Final = Missing(Code.UNAVAILABLE, "this proxy does not know yet which objects there are")
UNBUILDABLE: Final = Unfit("InternalError", "the flag set cannot be encoded; the proxy's log has more")


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


class Contents:
    """What was built of the catalog's objects, for those that somebody asked for."""

    def __init__(
        self,
        catalog: Catalog,
        context: Mapping[str, Any],
        watchers: Callable[[Place], Iterable[tuple[Make, Tell]]],
        progress: Callable[[Resource], Progress] = no_progress,
    ) -> None:
        """`context` is what in-process providers lay over each evaluation context; `watchers` are who is told
        what is built of an object; `progress` is an object's rollouts and overrides, as in its status.
        """
        self.built = 0
        """How many contents were built."""
        self._catalog = catalog
        self._context = context
        self._watchers = watchers
        self._progress = progress
        self._delivered: dict[Place, Delivered] = {}
        self._waiting: dict[Place, None] = {}
        """Whose content is to be built in the thread, in turn."""
        self._building: asyncio.Task[None] | None = None

    @property
    def building(self) -> bool:
        """Whether a large set is being built."""
        return self._building is not None

    def all(self) -> Iterator[tuple[Place, Delivered]]:
        """All of them."""
        yield from tuple(self._delivered.items())

    def of(self, place: Place) -> Delivered | None:
        """What is delivered of the object there, if anybody ever asked for it."""
        return self._delivered.get(place)

    def forget(self, place: Place) -> None:
        """The object there has gone."""
        self._delivered.pop(place, None)
        self._waiting.pop(place, None)

    def close(self) -> None:
        """Build nothing more."""
        self._waiting.clear()
        if self._building is not None:
            self._building.cancel()

    def newest(self, place: Place) -> Delivered:
        """What is delivered there, up to date if that is quick; otherwise it is made so soon, and
        told then.
        """
        seen = self._catalog.served(place)
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

    def payload(self, found: Delivered, make: Make) -> Payload | Missing:
        """What is delivered, as `make` encodes it, or why nothing is."""
        if found.built is None:
            return found.missing
        payload = found.payloads.get(make)
        if payload is None:
            payload = found.payloads[make] = make(found.built.document, self._context)
        return payload

    def _build(self, seen: Seen, before: Built | None, parts: Mapping[str, Seen]) -> Built | Unfit:
        def shard(name: str) -> Resource | None:
            return parts[name].resource() if name in parts else None

        try:
            resource = seen.resource()
            return build(resource, shard, None if before is None else before.good, self._progress(resource))
        except Exception:  # noqa: BLE001 - logged; what is delivered stays
            _log.exception("it cannot be built", extra=_about(seen))
            return UNBUILDABLE

    async def _build_waiting(self) -> None:
        """One set after another, each the newest by its turn, until none is waited for."""
        try:
            while self._waiting:
                place = next(iter(self._waiting))
                del self._waiting[place]
                seen, found = self._catalog.served(place), self._delivered.get(place)
                if seen is None or found is None or seen.number == found.number:
                    continue
                parts = {
                    name: part
                    for name in seen.shards
                    if (part := self._catalog.shard((place[0], name))) is not None
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
                    self.newest(place)
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

    def _tell_all(self, place: Place) -> None:
        found = self._delivered[place]
        for make, tell in self._watchers(place):
            tell(self.payload(found, make))


def _about(seen: Seen) -> dict[str, str]:
    return about(seen.meta.key, seen.meta.annotations.get(REVISION_KEY, ""))
