"""Follows one source: last good from disk, then whatever it delivers; what is bad changes nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evaluator.exchange import let_go
from evaluator.flags.model import EMPTY
from evaluator.flags.problems import Severity
from evaluator.flags.saved import Saved
from evaluator.sync.accept import Accepted, Refused, accept, fingerprint
from evaluator.sync.source import RENEWAL, Delivery, SourceFault, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evaluator.exchange import Exchange
    from evaluator.flags.model import FlagSet, Json
    from evaluator.flags.problems import Problem
    from evaluator.sync.lastgood import Keeper
    from evaluator.sync.retry import Backoff
    from evaluator.sync.source import SyncSource

log = logging.getLogger(__name__)

_RESTAMP: Final = 600.0
"""Seconds after which an unchanged set is saved again, so that a restart knows how old it is."""
_NOT_READ: Final = "not read since the start; its last good set is served"
_UNREAD: Final = "NotRead"
_PROVEN: Final = 1.0
"""Seconds after which a source that answers counts as well again: one that delivers and falls in turn is not asked faster and faster."""
_TOLD: Final = 20
"""Problems of one delivery that are logged one by one."""


class Contexts:
    """What sources want in every evaluation context: theirs merged in place, the last source wins."""

    def __init__(self, sources: Iterable[str], merged: dict[str, Any]) -> None:
        self._each: dict[str, Mapping[str, Json]] = dict.fromkeys(sources, EMPTY)
        self._merged = merged

    def put(self, source: str, context: Mapping[str, Json]) -> bool:
        """From here on this is what `source` wants; whether that is anything else."""
        if self._each[source] == context:
            return False
        self._each[source] = context
        self._merged.clear()
        for each in self._each.values():
            self._merged.update(each)
        return True


class Follower:
    """One source, its last good set and its health."""

    def __init__(
        self,
        source: SyncSource,
        exchange: Exchange,
        contexts: Contexts,
        *,
        clock: Callable[[], float],
        backoff: Backoff,
        keeper: Keeper | None = None,
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._store = exchange.store
        self._contexts = contexts
        self._clock = clock
        self._backoff = backoff
        self._keeper = keeper
        self._accepted: FlagSet | None = None
        self._context: Mapping[str, Json] = EMPTY
        self._taken: bytes | None = None
        self._untaken: Delivery | None = None
        """What was delivered last, until it is judged and served: its source will not say it again."""
        self._refusal: SourceFault | None = None
        self._told: str | None = None
        self._stamped: float | None = None
        self._log = logging.LoggerAdapter(log, {"source": source.name})

    async def restore(self) -> None:
        """Serve what is on disk, if anything is."""
        if self._keeper is None:
            return
        name = self._source.name
        try:
            saved = await self._exchange.read(self._keeper.load)
        except OSError as error:
            self._log.error("the last good set cannot be read: %s", error)
            return
        if saved is None:
            return
        self._accepted, self._context = saved.flag_set, saved.context
        moment = saved.saved_at.timestamp()
        self._store.mark_from_disk(moment, name)
        self._store.mark_stale(_NOT_READ, moment, name, cause=_UNREAD)
        along = partial(self._contexts.put, name, saved.context)
        await self._exchange.put(saved.flag_set, source=name, along=along, fresh=False)
        self._log.info("the last good set of %s is served", saved.saved_at.isoformat())

    async def run(self) -> None:
        """Follow until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began, answered = clock(), False
            fault = SourceFault("Ended", "it ended without a reason")
            try:
                async with aclosing(self._source.deliveries()) as deliveries:
                    async for heard in deliveries:
                        await self._hear(heard)
                        await self._restate()
                        answered = True
            except SourceFault as told:
                fault = told
            except Exception as error:  # noqa: BLE001 - logged with its trace, and tried again
                self._log.exception("following it failed")
                fault = SourceFault("Failed", f"following it failed: {type(error).__name__}")
            if fault.reason != RENEWAL:
                self._stale(fault)
                await self._restate()
            if answered and clock() - began > _PROVEN:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.pause())

    async def _hear(self, heard: Delivery | Unchanged | SourceFault) -> None:
        if isinstance(heard, SourceFault):
            self._stale(heard)
        elif isinstance(heard, Delivery):
            self._untaken = heard
            await self._take(heard)
        elif self._untaken is not None:
            await self._take(self._untaken)
        else:
            self._confirm()

    async def _take(self, delivery: Delivery) -> None:
        seen = await asyncio.to_thread(fingerprint, delivery)
        if seen == self._taken:
            self._untaken = None
            self._confirm()
            return
        known = self._store.catalog.digest_of(self._source.name)
        judged = await self._exchange.read(partial(_judge, delivery, self._accepted, known))
        self._tell(judged.problems)
        if not isinstance(judged, Accepted):
            self._taken, self._untaken = seen, None
            self._refusal = SourceFault("Invalid", judged.cause)
            self._stale(self._refusal)
            return
        name = self._source.name
        if judged.held:
            self._log.warning(
                "%d flags stay at their last good definition: %s",
                len(judged.held),
                ", ".join(judged.held[:_TOLD]),
            )
        # With the set: an evaluation sees both or neither, and whoever is told of the set passes both on.
        along = partial(self._contexts.put, name, delivery.context)
        await self._exchange.put(judged.flag_set, source=name, digest=judged.digest, along=along)
        self._accepted, self._context = judged.flag_set, delivery.context
        self._taken, self._untaken, self._refusal = seen, None, None
        self._stamped = None
        self._confirm()

    def _confirm(self) -> None:
        """What the source holds is what it delivered last."""
        if self._refusal is not None:
            self._stale(self._refusal)
            return
        now = self._clock()
        self._store.mark_success(now, self._source.name)
        if self._told is not None:
            self._told = None
            self._log.info("the source is current again")
        if self._keeper is None or self._accepted is None:
            return
        if self._stamped is None or not 0 <= now - self._stamped < _RESTAMP:
            self._stamped = now
            moment = datetime.fromtimestamp(now, UTC)
            self._keeper.keep(Saved(self._accepted, moment, self._context))

    def _stale(self, fault: SourceFault) -> None:
        name = self._source.name
        told = f"{fault.reason}: {fault.message}"
        self._store.mark_stale(told, self._clock(), name, cause=fault.reason)
        if told != self._told:
            self._told = told
            self._log.warning("the source is stale: %s", told)

    async def _restate(self) -> None:
        """Whoever is answered is told whether it is stale."""
        try:
            await self._exchange.restate(self._source.name)
        except Exception:  # noqa: BLE001 - logged with its trace, and tried again
            self._log.exception("answers do not say whether the source is stale")

    def _tell(self, problems: tuple[Problem, ...]) -> None:
        """Warnings are for whoever writes the definitions, and other programs' definitions are full of them."""
        errors = [problem for problem in problems if problem.severity is Severity.ERROR]
        for problem in errors[:_TOLD]:
            self._log.warning("%s", problem)
        if len(errors) > _TOLD:
            self._log.warning("%d more errors", len(errors) - _TOLD)
        if len(problems) > len(errors):
            self._log.debug("%d warnings", len(problems) - len(errors))


def _judge(delivery: Delivery, previous: FlagSet | None, known: str | None) -> Accepted | Refused:
    """What it comes to after `previous`, whose digest is `known`.

    What says the same comes to that very set, or to its flags where only the set's metadata differs: who compares the two on the loop does so at
    once, and what was made anew is freed here.
    """
    judged = accept(delivery, previous)
    if previous is None or not isinstance(judged, Accepted) or judged.digest != known:
        return judged
    made = judged.flag_set
    if (made.flags, made.evaluators) != (previous.flags, previous.evaluators):
        return judged
    if made.metadata != previous.metadata:
        previous = replace(previous, metadata=made.metadata)
    judged = replace(judged, flag_set=previous)
    remains: list[object] = [*made.flags.values()]
    del made
    let_go(remains)
    return judged
