"""The loop that all kinds share: the newest object, a reconcile, one write of status."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from controller.api.kinds import read_spec
from controller.api.meta import REQUESTED_AT, ObjectKey, Resource, about
from controller.api.status import Status
from controller.runtime.event import EventSink, EventType
from controller.runtime.queue import KeyedQueue, RetryLater
from controller.runtime.result import Result, Settled, progressing_status, settle
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.runtime.shards import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.runtime.cache import Cache


log = logging.getLogger(__name__)


class StatusWriter(Protocol):
    """Writes statuses to the cluster."""

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone. Raises Failed, or
        Stalled where the object has no room for it.
        """


class Statuses:
    """The statuses of one kind's objects."""

    def __init__(
        self,
        objects: Cache,
        writer: StatusWriter,
        wake: Callable[[ObjectKey, float], None],
        room_again: float,
    ) -> None:
        """`wake` receives each object to reconcile again, and the delay in seconds; `room_again`: see
        LoopTiming.
        """
        self._objects = objects
        self._writer = writer
        self._wake = wake
        self._room_again = room_again
        self._unwritten: dict[ObjectKey, Mapping[str, Any]] | None = None
        """Statuses of a kind that has no room for them."""
        self._ask_at = 0.0

    def newest(self, key: ObjectKey) -> Resource | None:
        """Return the object as last seen, with the status to be written."""
        resource = self._objects.get(key)
        if resource is None or self._unwritten is None or key not in self._unwritten:
            return resource
        return replace(resource, status=self._unwritten[key])

    def forget(self, key: ObjectKey) -> None:
        """Forget the status of a deleted object."""
        if self._unwritten is not None:
            self._unwritten.pop(key, None)

    def on_relist(self) -> None:
        """Check again whether the kind has our status fields: its definition may have changed."""
        self._ask_at = 0.0
        for key in self._unwritten or ():
            self._wake(key, 0.0)

    async def write(self, resource: Resource, status: Mapping[str, Any]) -> None:
        """Make `status` the object's where it differs. Raises as StatusWriter."""
        if status != resource.status or self._asks_for_room():
            await self._store(resource, status)
        if self._unwritten is not None:
            self._wake(resource.key, self._room_again)

    async def _store(self, resource: Resource, status: Mapping[str, Any]) -> None:
        if self._unwritten is not None:
            if not self._asks_for_room():
                self._unwritten[resource.key] = status
                return
            resource = self._objects.get(resource.key) or resource
        written = await self._writer.write_status(resource, status)
        if written is None:
            return
        self._objects.learn(written)
        if Status.of(written).conditions:
            # Those that were not written differ now from what they should say.
            for key in self._unwritten or ():
                self._wake(key, 0.0)
            self._unwritten = None
            return
        if self._unwritten is None:
            # Another project's definition of the kind: it prunes what it does not know.
            log.warning(
                "%s in this cluster has no status field for our status: none is written from now "
                "on; see the Events and the logs",
                resource.key.kind,
            )
            self._unwritten = {}
        self._unwritten[resource.key] = status
        self._ask_at = asyncio.get_running_loop().time() + self._room_again

    def _asks_for_room(self) -> bool:
        """Return whether to check again if a status that was pruned is stored now."""
        return self._unwritten is not None and asyncio.get_running_loop().time() >= self._ask_at


@dataclass(frozen=True, slots=True)
class LoopTiming:
    """Times of a loop, in seconds."""

    slow: float = 10.0
    """A reconcile that takes longer says `Reconciling` meanwhile, unless it only checks for news. Where
    thousands are new each takes seconds, and one more write of each would make all slower.
    """
    most_unwritten: float = 30.0
    """The longest backoff of a status that was not written: after an outage of the API server of an hour, its
    results must not wait for another hour.
    """
    room_again: float = 600.0
    """Until a kind that had no room for our status is asked again: its definition may have been replaced by
    ours.
    """


class Reconciler(Protocol):
    """Reconciles the objects of one kind."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Bring the object to its spec, idempotently. A raised Setback is the whole result."""

    def forget(self, key: ObjectKey) -> None:
        """Forget the state of a deleted object. Must not fail."""


@runtime_checkable
class Suspending(Protocol):
    """A reconciler that has something to do while an object is suspended."""

    async def suspend(self, resource: Resource, now: datetime) -> Result:
        """Reconcile a suspended object."""


@runtime_checkable
class Finalizing(Protocol):
    """A reconciler that has something to do before the API server forgets a deleted object."""

    def finalizes(self, resource: Resource) -> bool:
        """Return whether a finalizer of ours is on the object."""

    async def finalize(self, resource: Resource, now: datetime) -> Result:
        """Do what is due for a deleted object, and remove the finalizer."""


def is_worked_on(reconciler: Reconciler, resource: Resource) -> bool:
    """Whether an object is reconciled: suspended ones are by a `Suspending` reconciler alone, and deleted
    ones, suspended or not, by a `Finalizing` one.
    """
    if resource.deleting:
        return isinstance(reconciler, Finalizing) and reconciler.finalizes(resource)
    return not resource.suspended or isinstance(reconciler, Suspending)


async def reconcile_as_wanted(reconciler: Reconciler, resource: Resource, now: datetime) -> Result:
    """Reconcile an object that is worked on. Raises Setback."""
    if resource.deleting and isinstance(reconciler, Finalizing):
        return await reconciler.finalize(resource, now)
    if resource.suspended and isinstance(reconciler, Suspending):
        return await reconciler.suspend(resource, now)
    return await reconciler.reconcile(resource, now)


class Observer(Protocol):
    """Counts what the loop does."""

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None:
        """Count a finished reconcile: `result` is `success`, `stalled`, `waiting` or `failed`."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Receivers of the results of reconciles."""

    writer: StatusWriter
    observer: Observer
    sinks: tuple[EventSink, ...] = ()
    """Each is given every Event before the status is written."""


class Loop:
    """Reconciles the objects of one kind from its queue."""

    def __init__(  # noqa: PLR0913
        self,
        reconciler: Reconciler,
        objects: Cache,
        outputs: Outputs,
        *,
        now: Callable[[], datetime],
        queue: KeyedQueue[ObjectKey],
        timing: LoopTiming = LoopTiming(),
        shard: Shard = WHOLE,
    ) -> None:
        """`shard`: objects of others are left to them."""
        self._shard = shard
        self._reconciler = reconciler
        self._objects = objects
        self._outputs = outputs
        self._now = now
        self.queue = queue
        self._statuses = Statuses(objects, outputs.writer, self.wake, timing.room_again)
        self._timing = timing

    def wake(self, key: ObjectKey, delay: float = 0.0) -> None:
        """Reconcile `key` in `delay` seconds."""
        self.queue.put(key, delay)

    def forget(self, key: ObjectKey) -> None:
        """Handle the deletion of an object."""
        self.queue.forget(key)
        self._reconciler.forget(key)
        self._statuses.forget(key)

    def on_relist(self) -> None:
        """Handle a restarted watch of the kind, as after a change of its definition."""
        self._statuses.on_relist()

    async def run(self) -> None:
        """Work until cancelled, on as many objects at a time as the queue gives out."""
        await self.queue.work(self._reconcile_key, _log_unwritten, longest=self._timing.most_unwritten)

    async def _reconcile_key(self, key: ObjectKey) -> None:
        """Reconcile one object. Raises Failed where the status was not written, RetryLater for a failure
        that the status shows, and for a status that does not fit.
        """
        resource = self._statuses.newest(key)
        if resource is None or not self._shard.owns(resource):
            # Deleted or moved to another shard after it was queued: nothing is counted.
            return
        if not is_worked_on(self._reconciler, resource):
            return
        started = asyncio.get_running_loop().time()
        result = await self._reconcile(resource)
        # Compare the new status with the newest object, which we or the user may have written meanwhile.
        latest = self._statuses.newest(key)
        if latest is None or not self._shard.owns(latest):
            # Deleted or moved to another shard during its reconcile: forget its state, too.
            self.forget(key)
            return
        if latest.uid != resource.uid:
            return
        settled = settle(_as_observed(resource, latest), result, self._now())
        self._outputs.observer.count_reconcile(key, result.kind, asyncio.get_running_loop().time() - started)
        await self._write(latest, settled)
        if settled.retry:
            raise RetryLater
        if settled.requeue_after is not None:
            self.queue.put(key, settled.requeue_after)

    async def _reconcile(self, resource: Resource) -> Result:
        slow: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        timer = loop.call_later(
            self._timing.slow, lambda: slow.append(loop.create_task(self._say_slow(resource)))
        )
        try:
            if resource.parsed_spec is None:
                # Once for each generation: a large one may take long to read.
                await asyncio.to_thread(read_spec, resource)
            return await reconcile_as_wanted(self._reconciler, resource, self._now())
        except Setback as setback:
            return Result.of(setback)
        except Exception as error:
            log.exception("the reconcile failed unexpectedly", extra=about(resource.key))
            message = f"{type(error).__name__}; the controller's log has more"
            return Result.of(Failed("InternalError", message))
        finally:
            timer.cancel()
            # Wait for a running write: the next one must come after it.
            await asyncio.gather(*slow)

    async def _say_slow(self, resource: Resource) -> None:
        if _steady(resource):
            return
        status = progressing_status(resource, "reconciliation in progress", self._now())
        try:
            if status != resource.status:
                await self._statuses.write(resource, status)
        except Setback as setback:
            log.warning("the status was not written: %s", setback.message, extra=about(resource.key))

    async def _write(self, resource: Resource, settled: Settled) -> None:
        # Before the status is written: no later reconcile would report these as new.
        for event in settled.events:
            for sink in self._outputs.sinks:
                sink.accept(event)
        try:
            await self._statuses.write(resource, settled.status)
        except Stalled as stalled:
            # Its size is refused at every try: this is no outage, whose end is awaited by short retries.
            _log_unwritten(resource.key, stalled)
            raise RetryLater from stalled
        for event in settled.events:
            level = logging.WARNING if event.severity is EventType.WARNING else logging.INFO
            log.log(level, "%s: %s", event.reason, event.message, extra=about(event.object, event.revision))


def _log_unwritten(key: ObjectKey, setback: Setback) -> None:
    log.warning("the status was not written: %s", setback.message, extra=about(key))


def _steady(resource: Resource) -> bool:
    """Whether the object is ready and its requests are done: another reconcile then reports no progress."""
    status, asked = Status.of(resource), resource.annotations.get(REQUESTED_AT)
    return (
        status.is_ready
        and status.observed_generation == resource.generation
        and asked in (None, status.last_handled_reconcile_at)
    )


def _as_observed(resource: Resource, latest: Resource) -> Resource:
    """`latest` with the generation and the request that the reconcile saw: a newer one is judged by the next
    reconcile.
    """
    return replace(
        latest, generation=resource.generation, spec=resource.spec, annotations=resource.annotations
    )
