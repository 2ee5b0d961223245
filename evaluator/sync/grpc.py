"""`flagd.sync.v1` from flagd, its proxy or ours: a stream of whole flag sets, resumed after a cut."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from evaluator.sync import peer
from evaluator.sync.credentials import authorization
from evaluator.sync.receipts import AskFailed, NotOffered
from evaluator.sync.source import MAX_BYTES, RENEWAL, UNCHANGED, SourceFault
from evaluator.wire.delivery import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.receipts import Reporter
    from evaluator.sync.source import Heard

T = TypeVar("T")

_SYNC: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
_FETCH: Final = "/flagd.sync.v1.FlagSyncService/FetchAllFlags"
_METADATA: Final = "/flagd.sync.v1.FlagSyncService/GetMetadata"
SELECTOR_HEADER: Final = "flagd-selector"

KEEPALIVE: Final = 40.0
"""Seconds of silence before a ping: flagd takes one every 30 s."""
_PING_TIMEOUT: Final = 10.0
_CONFIRM: Final = 10.0
"""Seconds after which a silent stream's peer is asked something: if it answers, nothing changed."""
_ASK_SECONDS: Final = 3.0
_UNANSWERED: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
})  # fmt: skip
"""What we say ourselves when a peer says nothing. It may mean one of them, too; any other is an answer."""
_SILENCE: Final = 1.0
"""Seconds after which a peer that took the stream and sends no flags is asked why."""
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
        reporter: Reporter | None = None,
    ) -> None:
        """`reporter` tells the peer what is served of it. Raises InvalidSourceError for a target that cannot be reached."""
        self.name = name
        self.identity = identity
        self._config = config
        self._reporter = reporter
        self._target, self._options = peer.target(config)
        self._options += [
            ("grpc.max_receive_message_length", config.max_msg_size or MAX_BYTES),
            ("grpc.keepalive_time_ms", int(keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", int(_PING_TIMEOUT * 1000)),
            # This one ends a stream whose peer hangs; the one above alone does not.
            ("grpc.http2.ping_timeout_ms", int(_PING_TIMEOUT * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
            # When to try again is decided by whoever follows; a shared one would remember earlier failures.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        ]

    async def deliveries(self) -> AsyncGenerator[Heard, None]:
        """Each set that the peer sends; a stream that ends, for whatever reason, is raised."""
        credentials, metadata = await asyncio.to_thread(self._secrets)
        channel = (
            grpc.aio.insecure_channel(self._target, self._options)
            if credentials is None
            else grpc.aio.secure_channel(self._target, credentials, self._options)
        )
        call, listened = self._call(channel, metadata), False
        try:
            async with (
                self._telling(channel),
                aclosing(self._read(channel, call)) as heard,
            ):
                async for each in heard:
                    listened = True
                    yield each
        except grpc.aio.AioRpcError as error:
            if listened and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise SourceFault(RENEWAL, f"{self.name}: the stream has had its time") from None
            raise self._fault(error) from None
        finally:
            await channel.close(None)

    def _call(self, channel: grpc.aio.Channel, metadata: list[tuple[str, str]]) -> Any:
        method = channel.unary_stream(
            _SYNC,
            request_serializer=sync_pb2.SyncFlagsRequest.SerializeToString,
            response_deserializer=sync_pb2.SyncFlagsResponse.FromString,
        )
        request = sync_pb2.SyncFlagsRequest(
            provider_id=self._config.provider_id, selector=self._config.selector
        )
        if self._reporter is not None:
            metadata = [*metadata, (MARK, "1")]
        return method(request, metadata=metadata)

    @asynccontextmanager
    async def _telling(self, channel: grpc.aio.Channel) -> AsyncIterator[None]:
        """Receipts are sent for as long as the block lasts, and a goodbye where it is our own doing that it ends."""
        if self._reporter is None:
            yield
            return
        ask = partial(self._ask, channel)
        telling = asyncio.create_task(self._reporter.run(ask))
        stopping = True
        try:
            yield
        except (grpc.aio.AioRpcError, SourceFault):
            stopping = False
            raise
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            if stopping:
                await self._reporter.leave(ask)

    async def _ask(self, channel: grpc.aio.Channel, path: str, request: bytes) -> bytes:
        """One call beside the stream. Raises AskFailed."""
        try:
            # A token's file is read again: a stream may outlive the token that it was opened with.
            metadata = await asyncio.to_thread(self._metadata)
            answer: bytes = await channel.unary_unary(path, None, None)(
                request, metadata=metadata, timeout=_ASK_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise NotOffered("it does not take receipts") from None
            raise AskFailed(self._fault(error).message) from None
        except SourceFault as fault:
            raise AskFailed(fault.message) from None
        return answer

    async def _read(self, channel: grpc.aio.Channel, call: Any) -> AsyncGenerator[Heard, None]:
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
                yield peer.delivered(self.name, message)
        finally:
            call.cancel()
            await _cancelled(reading)

    async def _silence(
        self,
        channel: grpc.aio.Channel,
        reading: asyncio.Future[Any],
        accepted: asyncio.Event,
    ) -> AsyncGenerator[SourceFault, None]:
        """Why nothing comes, until something does. Raises SourceFault for a peer that does not say so either."""
        clock, limit, pause = asyncio.get_running_loop().time, self._config.timeout, _SILENCE
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
        request = sync_pb2.FetchAllFlagsRequest(
            provider_id=self._config.provider_id, selector=self._config.selector
        )
        try:
            metadata = await asyncio.to_thread(self._metadata)
            fetch = channel.unary_unary(
                _FETCH, sync_pb2.FetchAllFlagsRequest.SerializeToString, None
            )
            await fetch(request, metadata=metadata, timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            fault = self._fault(error)
            return fault if fault.reason in peer.SAID else None
        except SourceFault as fault:
            return fault
        return None

    async def _answers(self, channel: grpc.aio.Channel) -> bool:
        """Whether the peer answers on the connection that its stream is on, be it that it has no such method."""
        if self._reporter is not None and self._reporter.taken_within(_CONFIRM):
            return True
        try:
            metadata = await asyncio.to_thread(self._metadata)
            await channel.unary_unary(_METADATA, None, None)(
                b"", metadata=metadata, timeout=_ASK_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            return error.code() not in _UNANSWERED
        except SourceFault:
            return False
        return True

    def _secrets(self) -> tuple[grpc.ChannelCredentials | None, list[tuple[str, str]]]:
        config, metadata = self._config, self._metadata()
        if not config.tls:
            return None, metadata
        try:
            roots = config.cert_path or ssl.get_default_verify_paths().cafile
            credentials = grpc.ssl_channel_credentials(
                root_certificates=Path(roots).read_bytes() if roots else None,
                private_key=_file(config.client_key_path),
                certificate_chain=_file(config.client_cert_path),
            )
        except OSError as error:
            cause = f"{error.filename}: {error.strerror}"
            raise SourceFault("Credentials", f"{self.name}: {cause}") from None
        return credentials, metadata

    def _metadata(self) -> list[tuple[str, str]]:
        config = self._config
        metadata = [(key.lower(), value) for key, value in config.headers.items()]
        if config.selector and config.selector.isascii():
            metadata.append((SELECTOR_HEADER, config.selector))
        if (shown := authorization(config)) is not None:
            metadata.append(("authorization", shown))
        return metadata

    def _fault(self, error: grpc.aio.AioRpcError) -> SourceFault:
        return peer.fault(self.name, error.code().name, error.details() or "")


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


def _file(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
