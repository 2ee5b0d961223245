"""A document at a URL, polled with its ETag, with a deadline, a size limit and credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from evaluator.flags.document import Syntax, format_of
from evaluator.host.backoff import retry_after
from evaluator.host.system_proxies import system_proxy
from evaluator.sync.credentials import authorization, read_secret, without_credentials
from evaluator.sync.schedule import CAP, Schedule
from evaluator.sync.source import (
    MAX_BYTES,
    SIGNATURE_BYTES,
    SUFFIX,
    UNCHANGED,
    Delivery,
    PolledSource,
    SourceEvent,
    SourceFault,
)
from evaluator.wire.flag_server import ABSENT, REFUSING, UNENDED, request_headers, syntax_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.sync.config import OAuth, SourceConfig


_CHUNK: Final = 256 * 1024
_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response; the only possible status of 3xx is 304."""

    status: int
    headers: Mapping[str, str]
    """Header names are in any case."""
    body: bytes
    ends: bool
    """Whether the peer declared the body's length; if not, a truncated body looks complete."""


class Client:
    """Client of one source. Each request runs in a daemon thread, since DNS lookups cannot be aborted."""

    def __init__(self, config: SourceConfig) -> None:
        """Raises SourceFault for certificates that cannot be loaded. Blocks."""
        self._timeout = config.timeout
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._pool = _pool(config, self._add_socket)

    async def request(
        self, url: str, headers: Mapping[str, str], limit: int, form: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Return the response, of at most `limit` bytes once decompressed; a `form` is posted. Raises
        SourceFault: Unreachable, Timeout, TooLarge, Redirected.
        """
        answer: Future[HttpResponse] = Future()
        answer.set_running_or_notify_cancel()

        def work() -> None:
            try:
                answer.set_result(self._exchange(url, headers, limit, form))
            except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
                answer.set_exception(error)

        threading.Thread(target=work, name="flagstaff-http", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise SourceFault("Timeout", f"no answer within {self._timeout:g} s") from None
        finally:
            if not answer.done():
                self._cut()

    def close(self) -> None:
        """Abort a request that is under way."""
        self._closed = True
        self._cut()
        self._pool.clear()

    def _add_socket(self, connection: Any) -> None:
        """Store the socket of a new connection; called in a request's thread."""
        self._sockets.add(connection)
        if self._closed:
            self._cut()

    def _cut(self) -> None:
        """Shut the connection down: a thread that waits for the peer cannot be cancelled otherwise."""
        for open_socket in tuple(self._sockets):
            with contextlib.suppress(OSError):
                # Not SSLSocket's own, which would free the session while the reading thread uses it.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def _exchange(
        self, url: str, headers: Mapping[str, str], limit: int, form: Mapping[str, str] | None
    ) -> HttpResponse:
        try:
            response = self._pool.request(
                "GET" if form is None else "POST",
                url,
                headers=headers,
                body=None if form is None else urlencode(form).encode(),
                preload_content=False,
                retries=_retries(headers),
                timeout=self._timeout,
            )
            try:
                return _read(response, url, limit, time.monotonic() + self._timeout)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise SourceFault("Unreachable", _cause(error)) from None


def _read(response: urllib3.BaseHTTPResponse, url: str, limit: int, until: float) -> HttpResponse:
    history = response.retries.history if response.retries is not None else ()
    if url.startswith("https:") and any(
        (step.redirect_location or "").startswith("http:") for step in history
    ):
        raise SourceFault("Redirected", "it redirects from https to http, which is not followed")
    body = bytearray()
    length = response.headers.get("Content-Length", "")
    while not (length.isdigit() and int(length) > limit):
        # Not read(): it would block until all requested bytes have come, however slowly.
        chunk = response.read1(_CHUNK, decode_content=True)
        body += chunk
        if not chunk or len(body) > limit:
            break
        if time.monotonic() > until:
            raise SourceFault("Timeout", "the answer did not end in time")
    else:
        raise SourceFault("TooLarge", f"{length} bytes are more than {limit}")
    if len(body) > limit:
        raise SourceFault("TooLarge", f"it is more than {limit} bytes")
    ends = length.isdigit() or getattr(response, "chunked", False)
    return HttpResponse(response.status, response.headers, bytes(body), ends)


def _retries(headers: Mapping[str, str]) -> urllib3.Retry:
    """No retries and no redirects: a redirect must not send the configured headers to another host."""
    return urllib3.Retry(
        total=None, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS,
        remove_headers_on_redirect=frozenset(headers) - {"Accept", "Accept-Encoding", "User-Agent"},
    )  # fmt: skip


def _pool(config: SourceConfig, opened: Callable[[Any], None]) -> urllib3.PoolManager:
    try:
        context = ssl.create_default_context(cafile=config.cert_path or None)
        if config.client_cert_path:
            context.load_cert_chain(config.client_cert_path, config.client_key_path)
    except (OSError, ssl.SSLError) as error:
        raise SourceFault("Credentials", f"certificates cannot be loaded: {_cause(error)}") from None
    parts = urlsplit(config.uri)
    pool: urllib3.PoolManager
    proxy = system_proxy(parts.scheme, parts.netloc.rpartition("@")[2])
    if proxy:
        where = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user = unquote(where.netloc.rpartition("@")[0])
        headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
        address = f"{where.scheme}://{where.netloc.rpartition('@')[2]}"
        pool = urllib3.ProxyManager(address, proxy_headers=headers, maxsize=1, ssl_context=context)
    else:
        pool = urllib3.PoolManager(maxsize=1, ssl_context=context)
    pool.pool_classes_by_scheme = {
        "http": _tracking_pool(HTTPConnectionPool, opened),
        "https": _tracking_pool(HTTPSConnectionPool, opened),
    }
    return pool


def _tracking_pool(pool: type[HTTPConnectionPool], opened: Callable[[Any], None]) -> type[HTTPConnectionPool]:
    """Return a subclass of the pool that calls `opened` with the socket of each new connection."""

    class Connection(pool.ConnectionCls):  # type: ignore[name-defined, misc]
        def connect(self) -> None:
            super().connect()
            opened(self.sock)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


def _cause(error: BaseException) -> str:
    """Return the text of the first error in the chain; never a URL, which may hold a token."""
    reason = getattr(error, "reason", None)
    first = reason if isinstance(reason, BaseException) else error
    while (below := first.__cause__ or first.__context__) is not None:
        first = below
    if isinstance(first, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {first.verify_message}"
    if isinstance(first, OSError) and first.strerror:
        return first.strerror
    return f"the exchange failed ({type(first).__name__})"


_LIMIT: Final = 1024 * 1024
_EARLY: Final = 10.0
"""Seconds before its expiry at which a token is renewed."""
_LONGEST: Final = 10**9
"""Most seconds of a token's life; a number in JSON may be larger than any clock's."""


class Tokens:
    """The token of one source, requested when there is no valid one."""

    def __init__(self, oauth: OAuth, clock: Callable[[], float]) -> None:
        """clock: monotonic seconds."""
        self._oauth = oauth
        self._clock = clock
        self._secret = (oauth.client_id, oauth.client_secret)
        self._read_at: float | None = None
        self._token: str | None = None
        self._until = 0.0

    async def token(self, client: Client) -> str:
        """Return a valid token. Raises SourceFault."""
        if self._oauth.folder:
            await self._reload()
        if self._token is None or self._clock() >= self._until:
            await self._ask(client)
        return self._token or ""

    def forget(self) -> None:
        """Drop the token, after the peer refused it."""
        self._token = None

    async def _reload(self) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < self._oauth.reload_seconds:
            return
        folder = Path(self._oauth.folder)
        names = ("client-id", "client-secret")
        read = [await asyncio.to_thread(read_secret, folder / name) for name in names]
        self._read_at = now
        if (read[0], read[1]) != self._secret:
            self._secret = (read[0], read[1])
            self._token = None

    async def _ask(self, client: Client) -> None:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._secret[0],
            "client_secret": self._secret[1],
        }
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        answer = await client.request(self._oauth.token_url, headers, _LIMIT, form)
        if answer.status != 200:
            raise SourceFault("Unauthorized", f"the token request was refused with status {answer.status}")
        token, seconds = _parse_answer(answer.body)
        self._token = token
        self._until = self._clock() + max(0.0, seconds - _EARLY)


def _parse_answer(body: bytes) -> tuple[str, float]:
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    match answer:
        case {"access_token": str(token), **more} if token.isascii() and token.isprintable():
            seconds = more.get("expires_in")
            if not isinstance(seconds, int):
                return token, 3_600.0
            return token, float(max(0, min(seconds, _LONGEST)))
    raise SourceFault("Unauthorized", "the token response has no access_token")


_REASONS: Final = dict.fromkeys(REFUSING, "Unauthorized") | dict.fromkeys(ABSENT, "NotFound")
_OVERLOADED: Final = frozenset({429, 503})


class HttpSource(PolledSource):
    """Follows one URL."""

    def __init__(
        self, name: str, identity: str, config: SourceConfig, schedule: Schedule, clock: Callable[[], float]
    ) -> None:
        """clock: Unix seconds."""
        super().__init__(name, identity, schedule, clock)
        self._config = config
        self._client: Client | None = None
        self._delivered = False
        self._url = without_credentials(config.uri)
        self._tokens: Tokens | None = None

    async def open(self) -> None:
        """Make a new client after each fault, since certificates may have been replaced."""
        self._client = await asyncio.to_thread(Client, self._config)

    def close(self) -> None:
        """Abort a request that is under way."""
        if self._client is not None:
            self._client.close()

    async def ask(self) -> SourceEvent:
        """See PolledSource."""
        client = self._client
        assert client is not None  # noqa: S101 - `open` comes first
        try:
            answer = await client.request(self._url, await self._headers(client), MAX_BYTES)
        except SourceFault as fault:
            raise SourceFault(fault.reason, f"{self.name}: {fault.message}") from None
        self.asked_to_wait = 0.0
        if answer.status in _OVERLOADED:
            self.asked_to_wait = retry_after(answer.headers.get("Retry-After", ""), self.clock(), CAP)
        if answer.status == 304 and self._delivered:
            return UNCHANGED
        if not 200 <= answer.status < 300:
            if answer.status == 401 and self._tokens is not None:
                self._tokens.forget()
            reason = _REASONS.get(answer.status, "Refused")
            refused = SourceFault(reason, f"{self.name}: answered {answer.status}")
            if not self.asked_to_wait:
                raise refused
            return refused
        file = self._file(answer)
        if not answer.ends and format_of(file) is Syntax.YAML:
            raise SourceFault("Invalid", f"{self.name}: {UNENDED}")
        self.etag, self._delivered = answer.headers.get("ETag"), True
        return Delivery(((file, answer.body),))

    async def ask_signature(self) -> bytes:
        """See PolledSource: at the URL with `.sig` behind its path."""
        assert self._client is not None  # noqa: S101 - `open` comes first
        parts = urlsplit(self._url)
        url = urlunsplit(parts._replace(path=f"{parts.path}{SUFFIX}"))
        headers = await self._headers(self._client)
        try:
            answer = await self._client.request(url, headers, SIGNATURE_BYTES)
        except SourceFault as fault:
            raise SourceFault(fault.reason, f"{self.name}: its signature: {fault.message}") from None
        if answer.status in ABSENT:
            return b""
        if not 200 <= answer.status < 300:
            reason = _REASONS.get(answer.status, "Refused")
            raise SourceFault(reason, f"{self.name}: its signature: answered {answer.status}")
        return answer.body

    async def _headers(self, client: Client) -> dict[str, str]:
        headers = {**request_headers(self.etag or ""), "Accept-Encoding": "gzip", **self._config.headers}
        if self._config.oauth is not None:
            if self._tokens is None:
                self._tokens = Tokens(self._config.oauth, asyncio.get_running_loop().time)
            headers["Authorization"] = f"Bearer {await self._tokens.token(client)}"
        elif (shown := await asyncio.to_thread(authorization, self._config)) is not None:
            headers["Authorization"] = shown
        return headers

    def _file(self, answer: HttpResponse) -> str:
        """Return the file name for messages; its extension gives the format, else the content type does."""
        parts = urlsplit(self._url)
        file = f"{parts.scheme}://{parts.netloc}{parts.path}"
        yaml = syntax_of(parts.path, answer.headers) is Syntax.YAML and format_of(file) is not Syntax.YAML
        return f"{file}#.yaml" if yaml else file
