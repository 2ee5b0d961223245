"""`flagd.sync.v1` from flagd, its proxy or ours: a stream of whole flag sets, resumed after a cut."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio

from evaluator.sync.source import RENEWAL, UNCHANGED, SourceFault
from evaluator.sync.sources.connector import SAID, Connector, delivery_of
from evaluator.sync.timing import DEFAULT_TIMING
from evaluator.wire import sync_pb2
from evaluator.wire.delivery import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.source import Companion, SourceEvent
    from evaluator.sync.timing import SourceTiming

T = TypeVar("T")

_SYNC: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
_FETCH: Final = "/flagd.sync.v1.FlagSyncService/FetchAllFlags"
_METADATA: Final = "/flagd.sync.v1.FlagSyncService/GetMetadata"
_UNANSWERED: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
})  # fmt: skip
"""Statuses that grpcio sets by itself when the peer does not answer. Any other status came from the peer."""
_LONGEST_SILENCE: Final = 30.0
"""Most seconds between two such calls."""


class GrpcSource:
    """Follows one peer. Implements `SyncSource`."""

    def __init__(
        self,
        name: str,
        identity: str,
        config: SourceConfig,
        *,
        timing: SourceTiming = DEFAULT_TIMING,
        companion: Companion | None = None,
    ) -> None:
        """companion: makes further calls to the peer. Raises InvalidSourceError for an unusable target."""
        self.name = name
        self.identity = identity
        self._timeout = config.timeout
        self._companion = companion
        self._connector = Connector(name, config, timing)
        self._timing = timing
        self._request = sync_pb2.SyncFlagsRequest(provider_id=config.provider_id, selector=config.selector)

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield each set that the peer sends; raise SourceFault when the stream ends, for any reason."""
        metadata = await self._connector.metadata()
        channel = await self._connector.connect()
        call, listened = self._call(channel, metadata), False
        try:
            async with self._run_companion(channel), aclosing(self._read(channel, call)) as events:
                async for event in events:
                    listened = True
                    yield event
        except grpc.aio.AioRpcError as error:
            if listened and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise SourceFault(RENEWAL, f"{self.name}: the stream reached its maximum age") from None
            raise self._connector.fault(error) from None
        finally:
            await channel.close(None)

    def _call(self, channel: grpc.aio.Channel, metadata: list[tuple[str, str]]) -> Any:
        method = channel.unary_stream(
            _SYNC,
            request_serializer=sync_pb2.SyncFlagsRequest.SerializeToString,
            response_deserializer=sync_pb2.SyncFlagsResponse.FromString,
        )
        if self._companion is not None:
            metadata = [*metadata, (MARK, "1")]
        return method(self._request, metadata=metadata)

    @asynccontextmanager
    async def _run_companion(self, channel: grpc.aio.Channel) -> AsyncIterator[None]:
        """Send receipts during the block, and a goodbye if this side ends it."""
        if self._companion is None:
            yield
            return
        ask = partial(self._connector.ask, channel)
        talking = asyncio.create_task(self._companion.run(ask))
        stopping = True
        try:
            yield
        except (grpc.aio.AioRpcError, SourceFault):
            stopping = False
            raise
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
            if stopping:
                await self._companion.leave(ask)

    async def _read(self, channel: grpc.aio.Channel, call: Any) -> AsyncGenerator[SourceEvent, None]:
        accepted = asyncio.Event()
        reading = asyncio.ensure_future(_first(call, accepted))
        try:
            async with aclosing(self._silence(channel, reading, accepted)) as silence:
                async for fault in silence:
                    yield fault
            while True:
                done, _ = await asyncio.wait({reading}, timeout=self._timing.confirm)
                if not done:
                    if await _meanwhile(reading, self._answers(channel)):
                        yield UNCHANGED
                    continue
                message = reading.result()
                if not isinstance(message, sync_pb2.SyncFlagsResponse):
                    raise SourceFault("Ended", f"{self.name}: ended the stream")
                reading = asyncio.ensure_future(call.read())
                yield delivery_of(self.name, message)
        finally:
            call.cancel()
            await _cancel(reading)

    async def _silence(
        self, channel: grpc.aio.Channel, reading: asyncio.Future[Any], accepted: asyncio.Event
    ) -> AsyncGenerator[SourceFault, None]:
        """Yield a silent peer's reasons until it sends a message. Raises SourceFault if it gives none."""
        clock, limit, pause = asyncio.get_running_loop().time, self._timeout, self._timing.silence
        until = clock() + limit
        while not (await asyncio.wait({reading}, timeout=min(pause, until - clock())))[0]:
            if clock() >= until:
                raise SourceFault("Timeout", f"{self.name}: sent nothing within {limit:g} s")
            if not accepted.is_set():
                continue
            fault = await _meanwhile(reading, self._absence(channel), until - clock())
            pause = min(_LONGEST_SILENCE, 2 * pause)
            if fault is not None and not reading.done():
                until = clock() + pause + limit
                yield fault

    async def _absence(self, channel: grpc.aio.Channel) -> SourceFault | None:
        """Ask a silent peer why it sends no flags; return None if it gives no reason."""
        try:
            await self._connector.call(channel, _FETCH, self._request.SerializeToString())
        except grpc.aio.AioRpcError as error:
            fault = self._connector.fault(error)
            return fault if fault.reason in SAID else None
        except SourceFault as fault:
            return fault
        return None

    async def _answers(self, channel: grpc.aio.Channel) -> bool:
        """Return whether the peer answers on the stream's connection, even with UNIMPLEMENTED."""
        if self._companion is not None and self._companion.was_taken_within(self._timing.confirm):
            return True
        try:
            await self._connector.call(channel, _METADATA, b"")
        except grpc.aio.AioRpcError as error:
            return error.code() not in _UNANSWERED
        except SourceFault:
            return False
        return True


async def _first(call: Any, accepted: asyncio.Event) -> Any:
    """Return the stream's first message; set `accepted` once the peer has accepted the call."""
    await call.initial_metadata()
    accepted.set()
    return await call.read()


async def _meanwhile(
    reading: asyncio.Future[Any], question: Coroutine[Any, Any, T], seconds: float | None = None
) -> T | None:
    """Return the result of `question`; None if a message comes first, or after `seconds`."""
    asking = asyncio.ensure_future(question)
    try:
        await asyncio.wait({reading, asking}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        await _cancel(asking)


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel the task, wait for it, and drop its result."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
