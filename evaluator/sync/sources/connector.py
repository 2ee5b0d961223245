"""Connects to a gRPC peer, makes unary calls, and translates its messages and statuses."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import grpc.aio
from google.protobuf.json_format import MessageToDict

from evaluator.flags.model import EMPTY
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.source import MAX_BYTES, Delivery, SourceFault
from evaluator.sync.sources.credentials import authorization
from evaluator.wire.delivery import AskFailed, NotOffered
from evaluator.wire.sync_messages import SELECTOR_HEADER

if TYPE_CHECKING:
    from evaluator.sync.config import SourceConfig
    from evaluator.sync.timing import SourceTiming
    from evaluator.wire import sync_pb2

_MAX_DETAILS: Final = 200
_ENVOY: Final = "write envoy://host:port/service"
_OWN_LIMIT: Final = "larger than max"
"""Part of gRPC's message for a message above our limit: peers send the same status code when overloaded."""
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
    reason = "TooLarge" if _OWN_LIMIT in text else _REASONS.get(code, "Ended")
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
            ("grpc.max_receive_message_length", config.max_msg_size or MAX_BYTES),
            ("grpc.keepalive_time_ms", int(timing.keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", ping_timeout_ms),
            # This option ends a stream whose peer hangs; the one above alone does not.
            ("grpc.http2.ping_timeout_ms", ping_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
            # The follower decides when to try again; gRPC's shared subchannels would keep earlier failures.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
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


def _file(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
