"""Follows one source: last good from disk, then whatever it delivers; what is bad changes nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.model import EMPTY
from evaluator.flags.problems import Severity
from evaluator.flags.saved import Saved
from evaluator.sync.accept import Accepted, accept, fingerprint
from evaluator.sync.source import Delivery, SourceFault, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.exchange import Exchange
    from evaluator.flags.model import FlagSet, Json
    from evaluator.flags.problems import Problem
    from evaluator.store import Store
    from evaluator.sync.lastgood import Keeper, LastGood
    from evaluator.sync.retry import Backoff
    from evaluator.sync.source import SyncSource

log = logging.getLogger(__name__)

_RESTAMP: Final = 600.0
"""Seconds after which an unchanged set is saved again, so that a restart knows how old it is."""
_PROVEN: Final = 1.0
"""Seconds after which a source that answers counts as well again: one that delivers and falls in turn is not asked faster and faster."""
_TOLD: Final = 20
"""Problems of one delivery that are logged one by one."""


@dataclass
class Serving:
    """What all sources share: one store, and the way into it."""

    exchange: Exchange
    clock: Callable[[], float]
    """Unix seconds."""
    context: dict[str, Any]
    """The sources' contexts, merged in place."""
    contexts: dict[str, Mapping[str, Json]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """What is served."""
        return self.exchange.store

    async def serve(
        self, name: str, flag_set: FlagSet, digest: str | None, context: Mapping[str, Json]
    ) -> None:
        """Serve `flag_set` as what `name` holds: compiled off the loop, swapped with its context within one step of it.

        `digest` is the set's where the source has just said it, None where it was on disk.
        """
        await self.exchange.put(flag_set, source=name, digest=digest)
        self.contexts[name] = context
        self.context.clear()
        for each in self.store.catalog.names:
            self.context.update(self.contexts.get(each, EMPTY))
        if digest is not None:
            self.store.mark_success(self.clock(), name)


class Follower:
    """One source, its last good set and its health."""

    def __init__(
        self,
        source: SyncSource,
        serving: Serving,
        backoff: Backoff,
        last_good: LastGood | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._source = source
        self._serving = serving
        self._backoff = backoff
        self._last_good = last_good
        self._keeper = keeper
        self._accepted: FlagSet | None = None
        self._context: Mapping[str, Json] = EMPTY
        self._taken: bytes | None = None
        self._refusal: SourceFault | None = None
        self._told: tuple[str, str] | None = None
        self._stamped: float | None = None
        self.heard = asyncio.Event()
        """Set once the source has delivered or failed, or was read from disk."""

    async def restore(self) -> None:
        """Serve what is on disk, if anything is."""
        if self._last_good is None:
            return
        name, store = self._source.name, self._serving.store
        try:
            saved = await asyncio.to_thread(self._last_good.load)
        except OSError as error:
            log.error("%s: its last good set cannot be read: %s", name, error)  # noqa: TRY400 - no trace is needed
            return
        if saved is None:
            return
        self._accepted, self._context = saved.flag_set, saved.context
        moment = saved.saved_at.timestamp()
        store.mark_from_disk(moment, name)
        store.mark_stale("not read since the start; its last good set is served", moment, name)
        await self._serving.serve(name, saved.flag_set, None, saved.context)
        log.info("%s: its last good set of %s is served", name, saved.saved_at.isoformat())
        self.heard.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            fault = SourceFault("Ended", "it ended without a reason")
            try:
                async with aclosing(self._source.deliveries()) as deliveries:
                    async for heard in deliveries:
                        await self._hear(heard)
                        if clock() - began > _PROVEN and not isinstance(heard, SourceFault):
                            self._backoff.reset()
            except SourceFault as told:
                fault = told
            except Exception as error:
                log.exception("%s: following it failed", self._source.name)
                fault = SourceFault("Failed", f"following it failed: {type(error).__name__}")
            self._stale(fault)
            await asyncio.sleep(self._backoff.pause())

    async def _hear(self, heard: Delivery | Unchanged | SourceFault) -> None:
        if isinstance(heard, SourceFault):
            self._stale(heard)
        elif isinstance(heard, Unchanged):
            self._confirm()
        else:
            await self._take(heard)

    async def _take(self, delivery: Delivery) -> None:
        seen = await asyncio.to_thread(fingerprint, delivery)
        if seen == self._taken:
            self._confirm()
            return
        judged = await self._serving.exchange.read(partial(accept, delivery, self._accepted))
        self._taken = seen
        self._tell(judged.problems)
        if not isinstance(judged, Accepted):
            self._refusal = SourceFault("Invalid", judged.cause)
            self._stale(self._refusal)
            return
        name = self._source.name
        if judged.held:
            log.warning(
                "%s: %d flags stay at their last good definition: %s",
                name,
                len(judged.held),
                ", ".join(judged.held[:_TOLD]),
            )
        self._refusal = None
        self._accepted, self._context = judged.flag_set, delivery.context
        await self._serving.serve(name, judged.flag_set, judged.digest, delivery.context)
        self._stamped = None
        self._confirm()

    def _confirm(self) -> None:
        """What the source holds is what it delivered last."""
        if self._refusal is not None:
            self._stale(self._refusal)
            return
        now = self._serving.clock()
        self._serving.store.mark_success(now, self._source.name)
        if self._told is not None:
            self._told = None
            log.info("%s: it can be read again", self._source.name)
        self.heard.set()
        if self._keeper is None or self._accepted is None:
            return
        if self._stamped is None or not 0 <= now - self._stamped < _RESTAMP:
            self._stamped = now
            moment = datetime.fromtimestamp(now, UTC)
            self._keeper.keep(Saved(self._accepted, moment, self._context))

    def _stale(self, fault: SourceFault) -> None:
        store, name = self._serving.store, self._source.name
        store.mark_stale(f"{fault.reason}: {fault.message}", self._serving.clock(), name)
        told = (fault.reason, fault.message)
        if told != self._told:
            self._told = told
            log.warning("%s: %s: %s", name, *told)
        self.heard.set()

    def _tell(self, problems: tuple[Problem, ...]) -> None:
        """Warnings are for whoever writes the definitions, and other programs' definitions are full of them."""
        errors = [problem for problem in problems if problem.severity is Severity.ERROR]
        for problem in errors[:_TOLD]:
            log.warning("%s", problem)
        if len(errors) > _TOLD:
            log.warning("%s: %d more errors", self._source.name, len(errors) - _TOLD)
        if len(problems) > len(errors):
            log.debug("%s: %d warnings", self._source.name, len(problems) - len(errors))
