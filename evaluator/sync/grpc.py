"""`flagd.sync.v1` from flagd, its proxy or ours: a stream of whole flag sets, resumed after a cut."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import grpc.aio
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from evaluator.flags.model import EMPTY
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.credentials import authorization
from evaluator.sync.receipts import AskFailed, NotOffered
from evaluator.sync.source import MAX_BYTES, UNCHANGED, Delivery, SourceFault
from evaluator.wire.delivery import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.receipts import Reporter
    from evaluator.sync.source import Heard

_METHOD: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
SELECTOR_HEADER: Final = "flagd-selector"

KEEPALIVE: Final = 40.0
"""Seconds of silence before a ping: flagd takes one every 30 s."""
_PING_TIMEOUT: Final = 10.0
_CONFIRM: Final = 10.0
"""Seconds after which a stream that is silent and whole says that nothing changed."""
_ASK_SECONDS: Final = 3.0
_MAX_DETAILS: Final = 200
_ENVOY: Final = "write envoy://host:port/service"


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
        self._target, self._options = target(config)
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
        try:
            async with (
                self._telling(channel),
                aclosing(self._read(self._call(channel, metadata))) as heard,
            ):
                async for each in heard:
                    yield each
        except grpc.aio.AioRpcError as error:
            raise self._fault(error) from None
        finally:
            await channel.close(None)

    def _call(self, channel: grpc.aio.Channel, metadata: list[tuple[str, str]]) -> Any:
        method = channel.unary_stream(
            _METHOD,
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

    async def _read(self, call: Any) -> AsyncGenerator[Heard, None]:
        waiting, limit = self._config.timeout, True
        reading = asyncio.ensure_future(call.read())
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=waiting)
                if not done and limit:
                    raise SourceFault("Timeout", f"{self.name}: sent nothing within {waiting:g} s")
                if not done:
                    yield UNCHANGED
                    continue
                message = reading.result()
                if not isinstance(message, sync_pb2.SyncFlagsResponse):
                    raise SourceFault("Ended", f"{self.name}: ended the stream")
                reading = asyncio.ensure_future(call.read())
                waiting, limit = _CONFIRM, False
                yield delivered(self.name, message)
        finally:
            call.cancel()
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()

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
        code = error.code().name
        details = "".join(sign for sign in error.details() or "" if sign.isprintable())
        reason = {"UNAVAILABLE": "Unreachable", "RESOURCE_EXHAUSTED": "TooLarge"}.get(code, "Ended")
        return SourceFault(reason, f"{self.name}: {code}: {details[:_MAX_DETAILS]}")


def delivered(peer: str, message: sync_pb2.SyncFlagsResponse) -> Delivery:
    """What a peer sent. Raises SourceFault for a context that is no JSON: it has a number that is none, or nests without end."""
    try:
        context = MessageToDict(message.sync_context) if message.HasField("sync_context") else EMPTY
    except (ValueError, RecursionError):
        raise SourceFault("Invalid", f"{peer}: its context values are no JSON") from None
    content = message.flag_configuration.encode()
    return Delivery(((f"grpc://{peer}/flags.json", content),), context)


def target(config: SourceConfig) -> tuple[str, list[tuple[str, Any]]]:
    """What gRPC dials, and its channel options. `envoy://HOST:PORT/SERVICE` dials the proxy and asks for the service.

    Raises InvalidSourceError.
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


def _file(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
