"""`flagd.sync.v1` from flagd, its proxy or ours: a stream of whole flag sets, resumed after a cut."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio

from evaluator.sync.source import RENEWAL, UNCHANGED, SourceFault
from evaluator.sync.sources.connector import KEEPALIVE, SAID, Connector, delivered
from evaluator.wire import sync_pb2
from evaluator.wire.delivery import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.source import Companion, SourceEvent

T = TypeVar("T")

_SYNC: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
_FETCH: Final = "/flagd.sync.v1.FlagSyncService/FetchAllFlags"
_METADATA: Final = "/flagd.sync.v1.FlagSyncService/GetMetadata"
_CONFIRM: Final = 10.0
"""Seconds after which a silent stream's peer is asked something: if it answers, nothing changed."""
_UNANSWERED: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
})  # fmt: skip
"""Statuses that our own client sets when no answer comes; any other shows that the peer answered."""
_SILENCE: Final = 1.0
"""Seconds after which a peer that accepted the stream and sends no flags is asked why."""
_LONGEST_SILENCE: Final = 30.0
"""Seconds between two such questions, at most."""


class GrpcSource:
    """Follows one peer. Implements `SyncSource`."""

    def __init__(
        self,
        name: str,
        identity: str,
        config: SourceConfig,
        *,
        keepalive: float = KEEPALIVE,
        companion: Companion | None = None,
    ) -> None:
        """`companion` talks with the peer, too. Raises InvalidSourceError for an unusable target."""
        self.name = name
        self.identity = identity
        self._timeout = config.timeout
        self._companion = companion
        self._connector = Connector(name, config, keepalive)
        self._request = sync_pb2.SyncFlagsRequest(provider_id=config.provider_id, selector=config.selector)

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Each set that the peer sends; a stream that ends, for whatever reason, is raised."""
        metadata = await self._connector.metadata()
        channel = await self._connector.connect()
        call, listened = self._call(channel, metadata), False
        try:
            async with self._talking(channel), aclosing(self._read(channel, call)) as events:
                async for each in events:
                    listened = True
                    yield each
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
    async def _talking(self, channel: grpc.aio.Channel) -> AsyncIterator[None]:
        """Send receipts for as long as the block lasts, and a goodbye if we are the ones who end it."""
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
                done, _ = await asyncio.wait({reading}, timeout=_CONFIRM)
                if not done:
                    if await _meanwhile(reading, self._answers(channel)):
                        yield UNCHANGED
                    continue
                message = reading.result()
                if not isinstance(message, sync_pb2.SyncFlagsResponse):
                    raise SourceFault("Ended", f"{self.name}: ended the stream")
                reading = asyncio.ensure_future(call.read())
                yield delivered(self.name, message)
        finally:
            call.cancel()
            await _cancelled(reading)

    async def _silence(
        self, channel: grpc.aio.Channel, reading: asyncio.Future[Any], accepted: asyncio.Event
    ) -> AsyncGenerator[SourceFault, None]:
        """Why nothing comes, until something does. Raises SourceFault for a peer that does not say why."""
        clock, limit, pause = asyncio.get_running_loop().time, self._timeout, _SILENCE
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
        """Why there are no flags, by a peer whose stream is silent; None where it does not say."""
        try:
            await self._connector.call(channel, _FETCH, self._request.SerializeToString())
        except grpc.aio.AioRpcError as error:
            fault = self._connector.fault(error)
            return fault if fault.reason in SAID else None
        except SourceFault as fault:
            return fault
        return None

    async def _answers(self, channel: grpc.aio.Channel) -> bool:
        """Whether the peer answers on its stream's connection, if only that it has no such method."""
        if self._companion is not None and self._companion.taken_within(_CONFIRM):
            return True
        try:
            await self._connector.call(channel, _METADATA, b"")
        except grpc.aio.AioRpcError as error:
            return error.code() not in _UNANSWERED
        except SourceFault:
            return False
        return True


async def _first(call: Any, accepted: asyncio.Event) -> Any:
    """The stream's first message; `accepted` is set as soon as the peer has taken the call."""
    await call.initial_metadata()
    accepted.set()
    return await call.read()


async def _meanwhile(
    reading: asyncio.Future[Any], question: Coroutine[Any, Any, T], seconds: float | None = None
) -> T | None:
    """The answer to a question; None where a message comes first, or it takes longer."""
    asking = asyncio.ensure_future(question)
    try:
        await asyncio.wait({reading, asking}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        await _cancelled(asking)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Its end, whatever comes of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
