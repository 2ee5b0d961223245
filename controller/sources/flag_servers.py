"""Servers of flags that an object merges with its own: by HTTP, and by flagd.sync."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import ssl
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from cachetools import LRUCache
from yarl import URL

from controller.api.fields import LocalReference
from controller.api.remote_provider import FIELD
from controller.delivery.delivered import INVALID, RemoteAnswer, RemoteRequest
from controller.runtime.hosts import Hosts, resolve
from controller.runtime.http_client import Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.plain_text import one_line
from controller.runtime.secret_texts import Tls
from controller.runtime.setbacks import Failed, Stalled
from evaluator.flags.document import Syntax
from evaluator.flags.merge import parse
from evaluator.flags.model import REVISION_KEY
from evaluator.host.times import parse_http_date
from evaluator.wire import flag_server, sync_pb2
from evaluator.wire.sync_messages import SELECTOR_HEADER, SERVICE

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    import aiohttp
    import grpc.aio

    from controller.api.meta import ObjectKey
    from controller.runtime.limits import Places
    from controller.sources.secrets import Secrets


_MOST: Final = 10_000
"""Objects of which a digest is kept."""


@dataclass(frozen=True, slots=True)
class KnownContents:
    """A digest of the newest content of each object."""

    _digests: LRUCache[ObjectKey, bytes] = field(default_factory=lambda: LRUCache(_MOST))

    def is_in_force(self, request: RemoteRequest, content: bytes) -> bool:
        """Whether it is the content of the last request, whose flags are in force as a whole."""
        digest = hashlib.blake2b(content, digest_size=32).digest()
        # Without a version, what was fetched last was bad, or is of another provider.
        known = bool(request.version) and self._digests.get(request.key) == digest
        self._digests[request.key] = digest
        return known


_FIELD: Final = f"spec.{FIELD}.credentials.secret"


class Login(NamedTuple):
    """What is shown to a server, and whom it may trust."""

    token: str = ""
    """Empty: none is sent."""
    tls: Tls = Tls()


ANONYMOUS: Final = Login()


def split_url(request: RemoteRequest) -> SplitResult:
    """Split the provider's URL. Raises Stalled for brackets around no address, and for another port."""
    try:
        parts = urlsplit(request.spec.url or "")
        _ = parts.port
    except ValueError:
        todo = "the host must be a name or an address, and the port from 1 to 65535; correct url"
        raise Stalled("URLInvalid", todo) from None
    return parts


async def login_of(request: RemoteRequest, secrets: Secrets, host: str) -> Login:
    """Read the login for `host`. Raises Failed where the Secret does not exist, Stalled where its key does
    not, or where the Secret is not for this host.
    """
    credentials = request.spec.credentials
    if credentials is None:
        return ANONYMOUS
    secret = await secrets.require(LocalReference(name=credentials.secret), request, _FIELD)
    secret.require_host(host)
    tls, key = secret.tls(), credentials.key
    token = secret.line(key)
    if not token and not tls.certificate:
        token = secret.require(key, "as the bearer token; name another one in credentials.key")
    return Login(token, tls)


MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a document, from any server."""
SECONDS: Final = 10.0
"""For one request and its answer."""
_MOST_ETAG: Final = 256
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HTTP_REASONS: Final = {
    Cause.TOO_LONG: "TooLarge",
    Cause.TIMEOUT: "Timeout",
    Cause.CERTIFICATE: "CertificateRefused",
    Cause.PROXY_LOGIN: "AuthenticationFailed",
}
_HTTP_TODO: Final = {
    Cause.TOO_LONG: "make the set smaller, or take a FlagSource",
    Cause.CERTIFICATE: "add its authority as 'ca.crt' to the Secret of credentials",
}


@dataclass(frozen=True, slots=True)
class HttpFlags:
    """Fetches documents."""

    client: HttpClient
    secrets: Secrets
    seconds: float = SECONDS
    known: KnownContents = field(default_factory=KnownContents)

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """See RemoteSource."""
        url = request.spec.url or ""
        host = split_url(request).hostname or ""
        login = await login_of(request, self.secrets, host)
        headers = flag_server.request_headers(request.version if _is_etag(request.version) else "")
        if login.token:
            headers["Authorization"] = f"Bearer {login.token}"
        route = Route(login.tls, namespace=request.key.namespace, seconds=self.seconds)
        try:
            async with self.client.request("GET", url, headers=headers, route=route) as answer:
                if answer.status == 304 and "If-None-Match" in headers:
                    return None
                _require_document(answer, host)
                content = await read_all(answer, MOST_BYTES)
        except RequestError as error:
            todo = _HTTP_TODO.get(error.cause)
            message = error.message if todo is None else f"{error.message}; {todo}"
            raise Failed(_HTTP_REASONS.get(error.cause, "FetchFailed"), message) from error
        syntax = flag_server.syntax_of(answer.url.path, answer.headers)
        ends = "Content-Length" in answer.headers or "chunked" in answer.headers.get("Transfer-Encoding", "")
        if syntax is Syntax.YAML and not ends:
            raise Failed(INVALID, f"{host} {flag_server.UNENDED}")
        if content.lstrip()[:1] == b"<":
            raise _is_html(host)
        if self.known.is_in_force(request, content):
            return None
        etag = answer.headers.get("ETag", "")
        version = etag if _is_etag(etag) else ""
        return RemoteAnswer(
            partial(parse, content, file=f"flags.{syntax.value}"),
            version,
            modified=parse_http_date(answer.headers.get("Last-Modified", "")),
        )


def _require_document(answer: aiohttp.ClientResponse, host: str) -> None:
    """Raise Failed for an answer that is not the document."""
    status = answer.status
    if status in flag_server.REFUSING:
        todo = "correct the token in the Secret of credentials"
        raise Failed("AuthenticationFailed", f"{host} answers {status}; {todo}")
    if status in flag_server.ABSENT:
        raise Failed("NotFound", f"{host} answers {status}: there is no such document; correct url")
    if status in _REDIRECTS:
        raise Failed("Redirected", f"{host} answers {status}, to {_target(answer)}; {_NOT_FOLLOWED}")
    if status != 200:
        raise Failed("FetchFailed", f"{host} answers {status}; it is asked again")
    if "html" in answer.headers.get("Content-Type", "").lower():
        raise _is_html(host)


_NOT_FOLLOWED: Final = "redirects are not followed, since they would carry the token along; correct url"


def _target(answer: aiohttp.ClientResponse) -> str:
    """Return the host that a redirect leads to: the rest may be secret."""
    try:
        return URL(answer.headers.get("Location", "")).host or "another path"
    except ValueError:
        return "what is no URL"


def _is_html(host: str) -> Failed:
    return Failed(INVALID, f"{host} answers with HTML instead of flags; correct url: is this a login page?")


def _is_etag(text: str) -> bool:
    """Whether it is an ETag that can be sent back."""
    quoted = text.removeprefix("W/")
    return len(text) <= _MOST_ETAG and text.isascii() and text.isprintable() and quoted[:1] == '"'


_DETAILS: Final = 200
_GRPC_REASONS: Final = {
    "UNAUTHENTICATED": "AuthenticationFailed",
    "PERMISSION_DENIED": "AuthenticationFailed",
    "NOT_FOUND": "NotFound",
    "INVALID_ARGUMENT": "NotFound",
    "DEADLINE_EXCEEDED": "Timeout",
}
_GRPC_TODO: Final = {
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
            ("grpc.enable_http_proxy", 0),
            *flag_server.channel_options(MOST_BYTES),
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
    reason = "TooLarge" if flag_server.is_too_large(details) else _GRPC_REASONS.get(code, "FetchFailed")
    todo = _GRPC_TODO.get(reason, "it is asked again")
    # Of a connection that fails, gRPC itself says why. A server's own words may repeat what it was sent.
    words = details.replace(token, "…") if token else details
    said = f": {one_line(words, _DETAILS)}" if code == "UNAVAILABLE" else ""
    return Failed(reason, f"{host} answers {code}{said}; {todo}")
