"""Follows sources: last good set from disk, then deliveries, each judged; a bad delivery changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.accept import Accepted, Refused
from evaluator.flags.accept import accept as accept_parsed
from evaluator.flags.canonical import digest
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge
from evaluator.flags.model import DIGEST_KEY, EMPTY, LEFT_OUT_KEY, FlagSet, Json
from evaluator.flags.overrides import end_expired, next_expiry
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.saved import Saved, keep_parts, read_parts
from evaluator.store.store import Content, Fault, Report, SnapshotSwapper, Store, free_one_by_one
from evaluator.sync.lastgood import LastGood, LastGoodWriter, StateFolder
from evaluator.sync.schedule import DEFAULT_TIMING, RetryPauses, SourceTiming
from evaluator.sync.source import (
    BOUNDS,
    RENEWAL,
    Delivery,
    SourceEvent,
    SourceEvents,
    SourceFault,
    SyncSource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.host.gc_policy import GcPolicy


__all__ = ["Accepted", "Refused", "accept"]


def accept(delivery: Delivery, previous: FlagSet | None) -> Accepted | Refused:
    """Judge a delivery after `previous`, the last accepted of this source. Takes long for a large set."""
    layer = read_layer(delivery.documents, bounds=BOUNDS)
    parsed = merge([layer], document=True, bounds=BOUNDS)
    delivered, left_out = _read_left_out(keep_parts(read_parts(parsed.flag_set), previous))
    judged = accept_parsed(replace(parsed, flag_set=delivered, bad=parsed.bad | left_out), previous)
    if isinstance(judged, Accepted) and (judged.held or not left_out.issuperset(judged.missing)):
        # The peer's digest covers its delivery, which may differ from what is served: do not pass it on.
        metadata = {key: value for key, value in judged.flag_set.metadata.items() if key != DIGEST_KEY}
        flag_set = replace(judged.flag_set, metadata=MappingProxyType(metadata))
        judged = replace(judged, flag_set=flag_set, desired=flag_set)
    return judged


def _read_left_out(flag_set: FlagSet) -> tuple[FlagSet, frozenset[str]]:
    """Return the set without the mark, and keys of flags of which the sender has no good definition."""
    text = flag_set.metadata.get(LEFT_OUT_KEY)
    if not isinstance(text, str):
        return flag_set, frozenset()
    metadata = {key: value for key, value in flag_set.metadata.items() if key != LEFT_OUT_KEY}
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    keys = keys if isinstance(keys, list) else []
    named = frozenset(key for key in keys if isinstance(key, str))
    return replace(flag_set, metadata=MappingProxyType(metadata)), named - flag_set.flags.keys()


log = logging.getLogger(__name__)

_RESTAMP: Final = 600.0
"""Seconds after which an unchanged set is saved again, so that a restart knows how old it is."""
_UNREAD_TEXT: Final = "not read since the start; its last good set is served"
NOT_READ: Final = "NotRead"
"""The cause of a fault: the last good set is served, and nothing is known of the source yet."""
_CLOCK_READ: Final = 60.0
"""Most seconds until the clock is read again for the end of an override."""
_LOGGED: Final = 20
"""Most problems of one delivery that are logged one by one."""


class Follower:
    """One source, its last good set and its health."""

    def __init__(
        self,
        source: SyncSource,
        exchange: SnapshotSwapper,
        *,
        clock: Callable[[], float],
        backoff: RetryPauses,
        keeper: LastGoodWriter | None = None,
        timing: SourceTiming = DEFAULT_TIMING,
    ) -> None:
        self._source = source
        self._changes = SourceEvents(source)
        self._exchange = exchange
        self._store = exchange.store
        self._clock = clock
        self._backoff = backoff
        self._keeper = keeper
        self._proven = timing.proven
        self._accepted: FlagSet | None = None
        self._context: Mapping[str, Json] = EMPTY
        self._untaken: Delivery | None = None
        """The last delivery until it is judged and served: its source will not send it again."""
        self._refusal: SourceFault | None = None
        self._stale_message: str | None = None
        self._stamped: float | None = None
        self._turn = asyncio.Lock()
        self._end: float | None = None
        """When the first override of `_accepted` expires."""
        self._ending = asyncio.Event()
        """Set when `_end` may have changed."""
        self._log = logging.LoggerAdapter(log, {"source": source.name})

    async def restore(self) -> None:
        """Serve the last good set on disk, if there is one."""
        if self._keeper is None:
            return
        name = self._source.name
        try:
            saved = await self._exchange.read(self._keeper.last_good.load)
        except OSError as error:
            self._log.error("the last good flag set cannot be read: %s", error)
            return
        if saved is None:
            return
        flag_set = await self._exchange.read(partial(end_expired, saved.flag_set, self._clock()))
        self._accepted, self._context = flag_set, saved.context
        await self._find_end()
        content = Content(flag_set, context=saved.context)
        at, fault = saved.saved_at.timestamp(), Fault(_UNREAD_TEXT, NOT_READ)
        await self._exchange.apply(Report(name, at, content, fault, from_disk=True))
        self._log.info("serving the last good flag set of %s", saved.saved_at.isoformat())

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_overrides())
            await self._follow()

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began, answered = clock(), False
            fault = SourceFault("Ended", "the source ended without a reason")
            try:
                async with aclosing(self._changes.events()) as events:
                    async for event in events:
                        await self._on_event(event)
                        answered = True
            except SourceFault as raised:
                fault = raised
            except Exception as error:  # noqa: BLE001 - logged with its trace, and tried again
                self._log.exception("following it failed")
                fault = SourceFault("Failed", f"following it failed: {type(error).__name__}")
            if fault.reason != RENEWAL:
                await self._mark_stale(fault)
            if answered and clock() - began > self._proven:
                self._backoff.reset(spread=fault.reason != RENEWAL)
            await asyncio.sleep(self._backoff.pause())

    async def _on_event(self, event: SourceEvent) -> None:
        async with self._turn:
            await self._take_in(event)

    async def _take_in(self, event: SourceEvent) -> None:
        if isinstance(event, SourceFault):
            await self._mark_stale(event)
        elif isinstance(event, Delivery):
            self._untaken = event
            await self._take(event)
        elif self._untaken is not None:
            await self._take(self._untaken)
        else:
            await self._confirm()

    async def _take(self, delivery: Delivery) -> None:
        known = self._store.catalog.digest_of(self._source.name)
        judge = partial(_judge, delivery, self._accepted, known, self._clock())
        judged = await self._exchange.read(judge)
        self._log_problems(judged.problems)
        if not isinstance(judged, Accepted):
            self._untaken = None
            self._refusal = SourceFault("Invalid", judged.cause)
            await self._mark_stale(self._refusal)
            return
        if judged.held:
            self._log.warning(
                "%d flags stay at their last good definition: %s",
                len(judged.held),
                ", ".join(judged.held[:_LOGGED]),
            )
        changed = judged.digest != known or delivery.context != self._context
        content = Content(judged.flag_set, judged.digest, delivery.context)
        await self._current(content)
        self._accepted, self._context = judged.desired, delivery.context
        await self._find_end()
        self._untaken = self._refusal = None
        self._save(anew=True, changed=changed)

    async def _confirm(self) -> None:
        """Mark the source current: it holds its last delivery."""
        if self._refusal is not None:
            await self._mark_stale(self._refusal)
            return
        await self._current()
        self._save(anew=False)

    async def _current(self, content: Content | None = None) -> None:
        await self._exchange.apply(Report(self._source.name, self._clock(), content))
        if self._stale_message is not None:
            self._stale_message = None
            self._log.info("the source is current again")

    def _save(self, *, anew: bool, changed: bool = False) -> None:
        if self._keeper is None or self._accepted is None:
            return
        now = self._clock()
        if anew or self._stamped is None or not 0 <= now - self._stamped < _RESTAMP:
            self._stamped = now
            moment = datetime.fromtimestamp(now, UTC)
            self._keeper.keep(Saved(self._accepted, moment, self._context), changed=changed)

    async def _find_end(self) -> None:
        flags = EMPTY if self._accepted is None else self._accepted.flags
        self._end = await self._exchange.read(partial(next_expiry, flags.values()))
        self._ending.set()

    async def _end_overrides(self) -> None:
        """Serve the definition again that an override hides, once it expires: also without any delivery."""
        while True:
            self._ending.clear()
            if self._end is None:
                await self._ending.wait()
                continue
            # The clock may be set meanwhile.
            wait = min(max(0.0, self._end - self._clock()), _CLOCK_READ)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._ending.wait()
            async with self._turn:
                await self._end_expired()

    async def _end_expired(self) -> None:
        if self._accepted is None or self._end is None or self._clock() < self._end:
            return
        ended = await self._exchange.read(partial(end_expired, self._accepted, self._clock()))
        flag_set = _without_digest(ended)
        health = self._store.health(self._source.name)
        await self._exchange.apply(
            health.with_content(self._source.name, Content(flag_set, context=self._context))
        )
        self._accepted = flag_set
        await self._find_end()
        self._log.info("an override has expired")
        self._save(anew=True, changed=True)

    async def _mark_stale(self, fault: SourceFault) -> None:
        message = f"{fault.reason}: {fault.message}"
        report = Report(self._source.name, self._clock(), fault=Fault(message, fault.reason))
        await self._exchange.apply(report)
        if message != self._stale_message:
            self._stale_message = message
            self._log.warning("the source is stale: %s", message)

    def _log_problems(self, problems: tuple[Problem, ...]) -> None:
        """Log errors singly. Only the number of warnings is logged: they are many, and for authors."""
        errors = [problem for problem in problems if problem.severity is Severity.ERROR]
        for problem in errors[:_LOGGED]:
            self._log.warning("%s", problem)
        if len(errors) > _LOGGED:
            self._log.warning("%d more errors", len(errors) - _LOGGED)
        if len(problems) > len(errors):
            self._log.debug("%d warnings", len(problems) - len(errors))


def _judge(delivery: Delivery, previous: FlagSet | None, known: str | None, now: float) -> Accepted | Refused:
    """Judge a delivery after `previous`, whose digest is `known`, without overrides that ended before `now`.
    For equal content return `previous` itself,
    or its flags if only the set's metadata differs: the loop then compares by identity, and the copy is freed
    here.
    """
    judged = accept(delivery, previous)
    if isinstance(judged, Accepted) and (ended := end_expired(judged.flag_set, now)) is not judged.flag_set:
        ended = _without_digest(ended)
        judged = replace(judged, flag_set=ended, desired=ended, digest=digest(ended))
    if previous is None or not isinstance(judged, Accepted) or judged.digest != known:
        return judged
    made = judged.flag_set
    if (made.flags, made.evaluators) != (previous.flags, previous.evaluators):
        return judged
    if (made.metadata, made.parts) != (previous.metadata, previous.parts):
        previous = replace(previous, metadata=made.metadata, parts=made.parts)
    judged = replace(judged, flag_set=previous)
    objects: list[object] = [*made.flags.values()]
    del made
    free_one_by_one(objects)
    return judged


def _without_digest(flag_set: FlagSet) -> FlagSet:
    """The peer's digest covers its delivery, with the override."""
    metadata = {key: value for key, value in flag_set.metadata.items() if key != DIGEST_KEY}
    return replace(flag_set, metadata=MappingProxyType(metadata))


_random: Final = secrets.SystemRandom().random


class Followers:
    """Applies the deliveries of sources to a store that has the same source names."""

    def __init__(
        self,
        sources: Sequence[SyncSource],
        store: Store,
        *,
        clock: Callable[[], float],
        folder: StateFolder | None = None,
        random: Callable[[], float] = _random,
        gc_policy: GcPolicy | None = None,
    ) -> None:
        """clock: Unix seconds. folder: where last good sets are kept; None: nowhere."""
        exchange = SnapshotSwapper(store, clock, gc_policy)
        self._folder = folder
        self.keepers: list[LastGoodWriter] = []
        """The keepers that save, in the order of the sources; none without a state folder."""
        self._followers: list[Follower] = []
        for source in sources:
            keeper = None
            if self._folder is not None:
                last_good = LastGood(self._folder.path, source.identity)
                self._folder.followed.append(last_good)
                keeper = LastGoodWriter(last_good, source.name, RetryPauses(random), folder=self._folder)
                self.keepers.append(keeper)
            follower = Follower(source, exchange, clock=clock, backoff=RetryPauses(random), keeper=keeper)
            self._followers.append(follower)

    async def restore(self) -> None:
        """Serve the last good sets on disk, stale until their sources answer. Call it before `run`."""
        for follower in self._followers:
            await follower.restore()

    async def run(self) -> None:
        """Follow every source until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follower in self._followers:
                tasks.create_task(follower.run())
            for keeper in self.keepers:
                tasks.create_task(keeper.run())
            tasks.create_task(self._tidy())

    async def _tidy(self) -> None:
        """Remove the last good sets of sources that are no longer followed."""
        folder = self._folder
        if folder is None:
            return
        try:
            removed = await asyncio.to_thread(folder.sweep)
        except OSError as error:
            log.warning("%s: files of earlier sources cannot be removed: %s", folder.path, error.strerror)
            return
        if removed:
            log.info("%s: removed %d files of sources that are no longer configured", folder.path, removed)
