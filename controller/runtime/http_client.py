"""The one HTTP client for servers that users name: registries, webhooks, Flux's artifacts.

    client = HttpClient(hosts, places=Places(256, 256))
    route = Route(tls=secret.tls(), proxy=proxy_url(secret, ("http",)), namespace="shop", seconds=10.0)
    async with client.request("POST", url, headers=headers, data=body, route=route) as answer:
        content = await read_start(answer, 4096)

It connects only to addresses that `Hosts` allows, follows no redirect, keeps no cookies, decompresses nothing
and shares its connections fairly among namespaces: a server that never answers delays its own namespace only.
Whatever goes wrong is a Setback (the address is refused, a Secret cannot be used) or a RequestError, whose
text names the host, but no path, query or secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from cachetools import LRUCache
from yarl import URL

from controller.runtime.hosts import Hosts, resolve
from controller.runtime.plain_text import one_line
from controller.runtime.secret_texts import Tls
from controller.runtime.setbacks import Stalled
from controller.runtime.temporary import TemporaryFolder
from evaluator.host.system_proxies import proxy_hosts, system_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from controller.runtime.limits import Places


@lru_cache(maxsize=64)
def context_of(tls: Tls, *, only_authority: bool = False) -> ssl.SSLContext:
    """The system's authorities, unless `only_authority` leaves them out, and the Secret's, and our own
    certificate. Raises Stalled (InvalidSecret). Blocks for milliseconds.
    """
    try:
        context = ssl.create_default_context(cadata=tls.authority if only_authority else None)
        if tls.authority and not only_authority:
            context.load_verify_locations(cadata=tls.authority)
        if tls.certificate:
            _load_certificate(context, tls)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "they do not fit together"
        message = f"the certificates of certSecretRef cannot be used: {reason}"
        raise Stalled("InvalidSecret", message) from error
    return context


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    from controller.runtime.private_keys import read_private_key  # noqa: PLC0415 - for certificates alone

    try:
        _, key = read_private_key(tls.key)
    except ValueError as error:
        raise Stalled("InvalidSecret", f"'tls.key' of certSecretRef cannot be used: {error}") from None
    # The ssl module takes a client's certificate from files alone.
    folder = TemporaryFolder.make()
    try:
        own, private = folder.path / "tls.crt", folder.path / "tls.key"
        own.write_text(tls.certificate, encoding="utf-8")
        private.write_text(key, encoding="utf-8")
        context.load_cert_chain(own, private)
    finally:
        folder.remove()


class JudgedResolver(AbstractResolver):
    """Looks names up by way of `Hosts`. aiohttp asks it for no host that is an address: judge these first."""

    def __init__(self, hosts: Hosts, trusted: frozenset[str] = frozenset()) -> None:
        """`trusted`: names that are not judged: those of proxies that the operator set."""
        self._hosts = hosts
        self._trusted = trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the checked addresses. Raises Setback."""
        lookup = resolve if host in self._trusted else self._hosts.addresses
        results = []
        for address in await lookup(host, port):
            version = ipaddress.ip_address(address.partition("%")[0]).version
            kind = socket.AF_INET if version == 4 else socket.AF_INET6
            if family in {socket.AF_UNSPEC, kind}:
                flags = socket.AI_NUMERICHOST
                results.append(
                    ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
                )
        return results

    async def close(self) -> None:
        """Do nothing: there is no state."""


def judged_session(hosts: Hosts | None, trusted: frozenset[str] = frozenset()) -> aiohttp.ClientSession:
    """Open a client without cookies, limits and decompression; see `http_client`, which judges before each
    request what no resolver is asked for. `hosts`: None for anywhere. `trusted`: see `JudgedResolver`.
    """
    resolver = None if hosts is None else JudgedResolver(hosts, trusted)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False, resolver=resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(None),
        auto_decompress=False,
    )


_AGENT: Final = "flagstaff-controller"
_CONTEXTS: Final = 64
"""TLS contexts that are kept; each holds the system's authorities."""
_SHOWN: Final = 200


class Cause(Enum):
    """What kept a request from its answer."""

    CONNECTION = "connection"
    """Also a server that closes the connection, or does not speak HTTP."""
    CERTIFICATE = "certificate"
    PROXY = "proxy"
    PROXY_LOGIN = "proxy login"
    TIMEOUT = "timeout"
    TOO_LONG = "too long"


class RequestError(Exception):
    """A request without an answer that can be used. `message`: one line with the host, free of secrets."""

    def __init__(self, message: str, cause: Cause) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Route:
    """How a request reaches its server, and for whom."""

    tls: Tls = field(default=Tls(), repr=False)
    """Authorities beside the system's, and the client's own certificate."""
    proxy: str = field(default="", repr=False)
    """URL of an http proxy, with its username and password; empty: the environment's, if these are used."""
    namespace: str = ""
    """Whose share of the connections is used."""
    seconds: float | None = None
    """For the request and the whole answer, from the moment that there is a connection for the namespace;
    None: the caller limits them.
    """
    only_authority: bool = False
    """Whether the authorities of `tls`, if it has any, are believed alone, and none of the system's."""


DIRECT: Final = Route()


class HttpClient:
    """Belongs to one event loop; connections are kept open for a while."""

    def __init__(
        self, hosts: Hosts | None, places: Places | None = None, *, system_proxies: bool = False
    ) -> None:
        """`hosts`: that may be reached; None: any. `places`: limits the requests at a time; None: the caller
        does. `system_proxies`: use HTTP_PROXY, HTTPS_PROXY and NO_PROXY where a route names no proxy.
        """
        self._hosts = hosts
        self._places = places
        self._system_proxies = system_proxies
        self._contexts: LRUCache[tuple[Tls, bool], ssl.SSLContext] = LRUCache(_CONTEXTS)
        self._session: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes = b"",
        route: Route = DIRECT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; the answer is read within the block, by `read_all`, `read_start` or in chunks.

        Raises RequestError, also for what goes wrong while the block reads the answer; Stalled (URLInvalid,
        HostDenied, InvalidProxy, InvalidSecret); Failed (NameResolutionFailed).
        """
        target = _target(url)
        proxy = route.proxy or self._system_proxy(target)
        await self._judge(target, route.proxy, proxy)
        context = await self._context(route)
        async with contextlib.AsyncExitStack() as stack:
            if self._places is not None:
                await stack.enter_async_context(self._places.place(route.namespace))
            with _translate_errors(target.host or "", route.seconds):
                answer = await stack.enter_async_context(
                    self._open_session().request(
                        method,
                        target,
                        headers={"User-Agent": _AGENT, "Accept-Encoding": "identity", **(headers or {})},
                        data=data or None,
                        ssl=context or True,
                        proxy=proxy or None,
                        allow_redirects=False,
                        timeout=aiohttp.ClientTimeout(route.seconds),
                    )
                )
                yield answer

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            proxies = proxy_hosts() if self._system_proxies else frozenset()
            self._session = judged_session(self._hosts, proxies)
        return self._session

    async def _context(self, route: Route) -> ssl.SSLContext | None:
        """Return the context for a Secret's certificates, None without any. Raises Stalled."""
        if not any(route.tls):
            return None
        alone = route.only_authority and bool(route.tls.authority)
        key = (route.tls, alone)
        context = self._contexts.get(key)
        if context is None:
            made = asyncio.to_thread(context_of, route.tls, only_authority=alone)
            context = self._contexts[key] = await made
        return context

    async def _judge(self, url: URL, users_proxy: str, proxy: str) -> None:
        """Judge what the resolver is not asked for: the scheme, IP addresses, names that a proxy looks up."""
        if self._hosts is None:
            return
        self._hosts.require_scheme(url.scheme)
        if proxy:
            self._hosts.require_name(url.host or "")
        if users_proxy:
            address = urlsplit(users_proxy)
            await self._hosts.require_literal(address.hostname or "", address.port or 80)
        elif not proxy:
            await self._hosts.require_literal(url.host or "", url.port or 0)

    def _system_proxy(self, url: URL) -> str:
        """Return the environment's proxy for a URL; empty: none. Raises Stalled (InvalidProxy)."""
        proxy = system_proxy(url.scheme, url.host or "") if self._system_proxies else ""
        if proxy and not proxy.startswith(("http://", "https://")):
            message = f"the proxy that the environment names for {url.scheme} is no http proxy"
            raise Stalled("InvalidProxy", message)
        return proxy


async def read_all(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the whole content. Raises RequestError (TOO_LONG) for more than `most` bytes."""
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > most:
            raise RequestError(f"{answer.url.host}: the answer has more than {most} bytes", Cause.TOO_LONG)
    return bytes(content)


async def read_start(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the first `most` bytes of the content, or all of a shorter one; the rest is not read."""
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) >= most:
            break
    return bytes(content[:most])


def _target(url: str | URL) -> URL:
    """Return an http or https URL with a host and without a user. Raises Stalled (URLInvalid)."""
    try:
        target = URL(url)
        usable = target.scheme in {"http", "https"} and bool(target.host) and target.port != 0
    except ValueError:
        raise Stalled("URLInvalid", "the address is not a URL") from None
    if not usable or target.user is not None or target.password is not None:
        raise Stalled("URLInvalid", "the address must be https://HOST/… without a username and a password")
    return target


@contextlib.contextmanager
def _translate_errors(host: str, seconds: float | None) -> Iterator[None]:
    """Raise aiohttp's exceptions as RequestError."""
    try:
        yield
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        cause, problem = _explain(error, seconds)
        raise RequestError(one_line(f"{host}: {problem}", _SHOWN), cause) from error


def _explain(error: Exception, seconds: float | None) -> tuple[Cause, str]:
    """Return the cause and the words for it: our own, or the operating system's, never the server's."""
    cause, words = Cause.CONNECTION, "the answer is not HTTP"
    match error:
        case aiohttp.ClientHttpProxyError(status=status):
            cause = Cause.PROXY_LOGIN if status == 407 else Cause.PROXY
            words = f"the proxy answers {status}"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            cause, words = Cause.CERTIFICATE, _certificate_problem(error)
        case TimeoutError():
            cause, words = (
                Cause.TIMEOUT,
                "no answer" if seconds is None else f"no answer within {seconds:g} s",
            )
        case aiohttp.ClientProxyConnectionError():
            cause, words = Cause.PROXY, f"the proxy cannot be reached: {_system_words(error.os_error)}"
        case aiohttp.ClientConnectorError():
            words = _system_words(error.os_error)
        case aiohttp.ClientPayloadError():
            words = "the connection ended before the end of the answer"
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            words = "the connection ended without an answer"
    return cause, words


def _system_words(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return error.strerror or "the connection failed"


def _certificate_problem(error: Exception) -> str:
    certificate = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(certificate, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {certificate.verify_message}"
    reason = str(getattr(certificate, "reason", None) or "the server speaks no TLS")
    return f"TLS failed: {reason.lower().replace('_', ' ')}"
