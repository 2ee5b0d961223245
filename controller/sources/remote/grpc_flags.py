"""The flags of a server that speaks flagd.sync: flagd, or a Flagstaff proxy."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.delivery.remote_answers import RemoteAnswer
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.runtime.tenancy.hosts import resolve
from controller.runtime.user_text.plain_text import one_line
from controller.sources.remote.http_flags import MOST_BYTES, SECONDS
from controller.sources.remote.known_contents import KnownContents
from controller.sources.remote.provider_login import login_of, split_url
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import REVISION_KEY
from evaluator.wire import sync_pb2
from evaluator.wire.sync_messages import SELECTOR_HEADER, SERVICE

if TYPE_CHECKING:
    import grpc.aio

    from controller.delivery.remote_answers import RemoteRequest
    from controller.runtime.tenancy.hosts import Hosts
    from controller.runtime.tenancy.places import Places
    from controller.runtime.user_text.secret_texts import Tls
    from controller.sources.remote.provider_login import Login
    from controller.sources.secrets import Secrets

_DETAILS: Final = 200
_OWN_LIMIT: Final = "larger than max"
"""Part of gRPC's message for a message above our limit: servers send the same status when overloaded."""
_REASONS: Final = {
    "UNAUTHENTICATED": "AuthenticationFailed",
    "PERMISSION_DENIED": "AuthenticationFailed",
    "NOT_FOUND": "NotFound",
    "INVALID_ARGUMENT": "NotFound",
    "DEADLINE_EXCEEDED": "Timeout",
}
_TODO: Final = {
    "AuthenticationFailed": "correct the token in the Secret of credentials, or the rights of its account",
    "NotFound": "correct selector",
    "TooLarge": "select a smaller set",
}


@dataclass(frozen=True, slots=True)
class GrpcFlags:
    """Fetches flag sets; each time on a connection of its own, to an address that `hosts` allows."""

    hosts: Hosts | None
    """None: anywhere."""
    secrets: Secrets
    places: Places
    """The requests at a time."""
    seconds: float = SECONDS
    known: KnownContents = field(default_factory=KnownContents)

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """See RemoteSource."""
        import grpc.aio  # noqa: PLC0415 - 15 MB, for those who have such a provider

        parts = split_url(request)
        host, port = parts.hostname or "", parts.port or 0
        login = await login_of(request, self.secrets, host)
        async with self.places.place(request.key.namespace):
            try:
                async with asyncio.timeout(self.seconds):
                    target = await self._target(parts.scheme, host, port)
                    channel = await self._channel(parts.scheme, parts.netloc, target, login.tls)
                    async with channel:
                        content = await self._ask(channel, request, login)
            except grpc.aio.AioRpcError as error:
                raise _failure(host, error.code().name, error.details() or "", login.token) from error
            except TimeoutError:
                raise Failed("Timeout", f"{host}: no answer within {self.seconds:g} s") from None
        if self.known.is_in_force(request, content):
            return None
        return RemoteAnswer(partial(parse, content, file="flags.json"), version_key=REVISION_KEY)

    async def _target(self, scheme: str, host: str, port: int) -> str:
        """Return the judged addresses, as gRPC's target. Raises Setback."""
        if self.hosts is None:
            addresses = await resolve(host, port)
        else:
            if scheme == "grpc" and not self.hosts.plain_http:
                message = "grpc:// is denied by --deny-http-sources; write grpcs://"
                raise Stalled("URLInvalid", message)
            addresses = await self.hosts.addresses(host, port)
        version = ipaddress.ip_address(addresses[0].partition("%")[0]).version
        # One target has addresses of one version.
        same = [address for address in addresses if (":" in address) == (version == 6)]
        if version == 6:
            return "ipv6:" + ",".join(f"[{address}]:{port}" for address in same)
        return "ipv4:" + ",".join(f"{address}:{port}" for address in same)

    async def _channel(self, scheme: str, authority: str, target: str, tls: Tls) -> grpc.aio.Channel:
        import grpc.aio  # noqa: PLC0415 - see `fetch`

        options: list[tuple[str, Any]] = [
            ("grpc.default_authority", authority),
            ("grpc.max_receive_message_length", MOST_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # Shared subchannels would keep earlier failures.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if scheme == "grpc":
            return grpc.aio.insecure_channel(target, options)
        roots = await asyncio.to_thread(_roots, tls)
        credentials = grpc.ssl_channel_credentials(
            roots, tls.key.encode() or None, tls.certificate.encode() or None
        )
        name = authority.rpartition(":")[0].strip("[]")
        return grpc.aio.secure_channel(
            target, credentials, [*options, ("grpc.ssl_target_name_override", name)]
        )

    async def _ask(self, channel: grpc.aio.Channel, request: RemoteRequest, login: Login) -> bytes:
        """Return the whole set. Raises AioRpcError."""
        import grpc.aio  # noqa: PLC0415 - see `fetch`

        selector = request.spec.selector
        asked = sync_pb2.SyncFlagsRequest(provider_id=str(request.key), selector=selector)
        metadata = [("authorization", f"Bearer {login.token}")] if login.token else []
        if selector and selector.isascii():
            metadata.append((SELECTOR_HEADER, selector))
        fetch = channel.unary_unary(
            f"{SERVICE}FetchAllFlags",
            request_serializer=sync_pb2.SyncFlagsRequest.SerializeToString,
            response_deserializer=sync_pb2.FetchAllFlagsResponse.FromString,
        )
        try:
            answer = await fetch(asked, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            answer = await _first_message(channel, asked, metadata)
        return bytes(answer.flag_configuration.encode())


async def _first_message(channel: grpc.aio.Channel, asked: Any, metadata: list[tuple[str, str]]) -> Any:
    """Return the first message of a stream: some servers have nothing else."""
    sync = channel.unary_stream(
        f"{SERVICE}SyncFlags",
        request_serializer=sync_pb2.SyncFlagsRequest.SerializeToString,
        response_deserializer=sync_pb2.SyncFlagsResponse.FromString,
    )
    call = sync(asked, metadata=metadata)
    try:
        message = await call.read()
    finally:
        call.cancel()
    if not isinstance(message, sync_pb2.SyncFlagsResponse):
        raise Failed("FetchFailed", "the server ended the stream without flags; it is asked again")
    return message


def _roots(tls: Tls) -> bytes:
    """The system's authorities, and the Secret's. Blocks."""
    system = ssl.get_default_verify_paths().cafile
    return (Path(system).read_bytes() if system else b"") + tls.authority.encode()


def _failure(host: str, code: str, details: str, token: str) -> Failed:
    reason = "TooLarge" if _OWN_LIMIT in details else _REASONS.get(code, "FetchFailed")
    todo = _TODO.get(reason, "it is asked again")
    # Of a connection that fails, gRPC itself says why. A server's own words may repeat what it was sent.
    words = details.replace(token, "…") if token else details
    said = f": {one_line(words, _DETAILS)}" if code == "UNAVAILABLE" else ""
    return Failed(reason, f"{host} answers {code}{said}; {todo}")
