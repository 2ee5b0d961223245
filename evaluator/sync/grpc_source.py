"""`flagd.sync.v1` from flagd, its proxy or ours: a stream of whole flag sets, resumed after errors."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import grpc.aio
from google.protobuf.json_format import MessageToDict

from evaluator.flags.model import EMPTY
from evaluator.sync.config import InvalidSourceError, SourceConfig
from evaluator.sync.credentials import authorization
from evaluator.sync.schedule import DEFAULT_TIMING, SourceTiming
from evaluator.sync.source import MAX_BYTES, RENEWAL, UNCHANGED, Companion, Delivery, SourceEvent, SourceFault
from evaluator.wire import sync_pb2
from evaluator.wire.delivery import MARK, AskFailed, NotOffered
from evaluator.wire.flag_server import channel_options, is_too_large
from evaluator.wire.sync_messages import SELECTOR_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine


_MAX_DETAILS: Final = 200
_ENVOY: Final = "write envoy://host:port/service"
_REASONS: Final = {
    "UNAVAILABLE": "Unreachable",
    "RESOURCE_EXHAUSTED": "Busy",
    "NOT_FOUND": "NotFound",
    "UNAUTHENTICATED": "Unauthenticated",
    "PERMISSION_DENIED": "Forbidden",
    "FAILED_PRECONDITION": "Invalid",
    "INVALID_ARGUMENT": "Refused",
    "UNIMPLEMENTED": "Refused",
}
SAID: Final = frozenset(_REASONS.values()) - {"Busy", "Refused"}
"""Reasons with which a peer explains absent flags: none, unknown, bad, or not permitted."""


def _fault(peer: str, code: str, details: str) -> SourceFault:
    """Make a fault of a gRPC status; `code` is its name."""
    text = "".join(sign for sign in details if sign.isprintable())[:_MAX_DETAILS]
    reason = "TooLarge" if is_too_large(text) else _REASONS.get(code, "Ended")
    return SourceFault(reason, f"{peer}: {code}: {text}")


def delivery_of(peer: str, message: sync_pb2.SyncFlagsResponse) -> Delivery:
    """Convert a peer's message. Raises SourceFault for a context with bad numbers or too deep."""
    try:
        context = MessageToDict(message.sync_context) if message.HasField("sync_context") else EMPTY
    except (ValueError, RecursionError):
        raise SourceFault("Invalid", f"{peer}: its context values are not JSON") from None
    content = message.flag_configuration.encode()
    return Delivery(((f"grpc://{peer}/flags.json", content),), context)


def target(config: SourceConfig) -> tuple[str, list[tuple[str, Any]]]:
    """Return (gRPC's target, channel options). `envoy://HOST:PORT/SERVICE` connects to HOST:PORT with
    authority SERVICE. Raises InvalidSourceError.
    """
    if config.uri.startswith("uds:"):
        return "unix:" + config.uri.removeprefix("uds:").removeprefix("//"), []
    if not config.uri.startswith("envoy:"):
        return config.uri, []
    try:
        parts = urlsplit(config.uri)
        port = parts.port
    except ValueError:
        raise InvalidSourceError(f"the source {config.name}: {_ENVOY}") from None
    service = parts.path.strip("/")
    if not parts.hostname or not port or not service or "/" in service:
        raise InvalidSourceError(f"the source {config.name}: {_ENVOY}")
    return parts.netloc, [("grpc.default_authority", service)]


class Connector:
    """Opens channels to one peer, and makes unary calls."""

    def __init__(self, name: str, config: SourceConfig, timing: SourceTiming) -> None:
        """name: the peer's, for messages. Raises InvalidSourceError for an unusable target."""
        self._name = name
        self._config = config
        self._call_seconds = timing.call
        ping_timeout_ms = int(timing.ping_timeout * 1000)
        self._target, self._options = target(config)
        self._options += [
            *channel_options(config.max_msg_size or MAX_BYTES),
            ("grpc.keepalive_time_ms", int(timing.keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", ping_timeout_ms),
            # This option ends a stream whose peer hangs; the one above alone does not.
            ("grpc.http2.ping_timeout_ms", ping_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    async def connect(self) -> grpc.aio.Channel:
        """Open a new channel, which the caller closes; reads certificates. Raises SourceFault."""
        credentials = await asyncio.to_thread(self._credentials)
        if credentials is None:
            return grpc.aio.insecure_channel(self._target, self._options)
        return grpc.aio.secure_channel(self._target, credentials, self._options)

    async def metadata(self) -> list[tuple[str, str]]:
        """Return a call's metadata. Rereads the token's file, as tokens are renewed. Raises SourceFault."""
        return await asyncio.to_thread(self._metadata)

    async def call(self, channel: grpc.aio.Channel, path: str, request: bytes) -> bytes:
        """Make one unary call. Raises AioRpcError, and SourceFault for a token that cannot be read."""
        metadata = await self.metadata()
        answer: bytes = await channel.unary_unary(path, None, None)(
            request, metadata=metadata, timeout=self._call_seconds
        )
        return answer

    async def ask(self, channel: grpc.aio.Channel, path: str, request: bytes) -> bytes:
        """Make a `call` for a Companion. Raises AskFailed."""
        try:
            return await self.call(channel, path, request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise NotOffered("it does not accept receipts") from None
            raise AskFailed(self.fault(error).message) from None
        except SourceFault as fault:
            raise AskFailed(fault.message) from None

    def fault(self, error: grpc.aio.AioRpcError) -> SourceFault:
        """Return the fault of a status."""
        return _fault(self._name, error.code().name, error.details() or "")

    def _credentials(self) -> grpc.ChannelCredentials | None:
        config = self._config
        if not config.tls:
            return None
        try:
            roots = config.cert_path or ssl.get_default_verify_paths().cafile
            return grpc.ssl_channel_credentials(
                root_certificates=Path(roots).read_bytes() if roots else None,
                private_key=_file(config.client_key_path),
                certificate_chain=_file(config.client_cert_path),
            )
        except OSError as error:
            cause = f"{error.filename}: {error.strerror}"
            raise SourceFault("Credentials", f"{self._name}: {cause}") from None

    def _metadata(self) -> list[tuple[str, str]]:
        config = self._config
        metadata = [(key.lower(), value) for key, value in config.headers.items()]
        if config.selector and config.selector.isascii():
            metadata.append((SELECTOR_HEADER, config.selector))
        if (shown := authorization(config)) is not None:
            metadata.append(("authorization", shown))
        return metadata


class PeerConnection:
    """One channel for questions, which grpcio connects again after a failure."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._channel: grpc.aio.Channel | None = None

    async def ask(self, path: str, request: bytes) -> bytes:
        """Make one unary call. Raises AskFailed."""
        if self._channel is None:
            try:
                self._channel = await self._connector.connect()
            except SourceFault as fault:
                raise AskFailed(fault.message) from None
        return await self._connector.ask(self._channel, path, request)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)


def _file(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


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
