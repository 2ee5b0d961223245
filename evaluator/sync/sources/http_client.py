"""HTTP requests with a deadline, a bound on what is read, and an end at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from evaluator.sync.source import SourceFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.sync.config import SourceConfig

_CHUNK: Final = 256 * 1024
_REDIRECTS: Final = 5
_current = threading.local()


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whole; a status of 3xx is only ever 304."""

    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes
    ends: bool
    """Whether the peer declared where the body ends; if not, one that was cut off looks like any other."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    url: str
    headers: Mapping[str, str]
    limit: int
    """Bytes of the answer, decompressed."""
    form: Mapping[str, str] | None = None
    """Posted, where there is one."""


class _Plain(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _current.client.opened(self.sock)


class _Encrypted(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _current.client.opened(self.sock)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _EncryptedPool(HTTPSConnectionPool):
    ConnectionCls = _Encrypted


class Client:
    """One source's requests, one after another, each in a daemon thread: a DNS lookup cannot be cut short."""

    def __init__(self, config: SourceConfig) -> None:
        """Raises SourceFault for certificates that cannot be loaded. Blocks."""
        self._timeout = config.timeout
        self._pool = _pool(config)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False

    async def request(self, request: Request) -> Response:
        """The answer. Raises SourceFault: Unreachable, Timeout, TooLarge, Redirected."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        threading.Thread(
            target=self._answer, args=(loop, answer, request), name="flagstaff-http", daemon=True
        ).start()
        try:
            async with asyncio.timeout(self._timeout):
                return await answer
        except TimeoutError:
            raise SourceFault("Timeout", f"no answer within {self._timeout:g} s") from None
        finally:
            if answer.cancelled():
                self._cut()

    def close(self) -> None:
        """End whatever is under way."""
        self._closed = True
        self._cut()
        self._pool.clear()

    def opened(self, connection: Any) -> None:
        """A connection's socket, as it is made; it may be too late for it."""
        self._sockets.add(connection)
        if self._closed:
            self._cut()

    def _cut(self) -> None:
        """A thread that waits for a peer to speak cannot be cancelled; without its connection it ends."""
        for each in tuple(self._sockets):
            with contextlib.suppress(OSError):
                # Not SSLSocket's own, which would take the session from under the thread that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def _answer(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Response], request: Request
    ) -> None:
        try:
            found: Response | Exception = self._exchange(request)
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
            found = error
        with contextlib.suppress(RuntimeError):
            # The loop may be closed by now.
            loop.call_soon_threadsafe(_settle, answer, found)

    def _exchange(self, request: Request) -> Response:
        _current.client = self
        try:
            response = self._pool.request(
                "GET" if request.form is None else "POST",
                request.url,
                headers=request.headers,
                body=None if request.form is None else urlencode(request.form).encode(),
                preload_content=False,
                retries=_retries(request.headers),
                timeout=self._timeout,
            )
            try:
                return _read(request, response, time.monotonic() + self._timeout)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise SourceFault("Unreachable", _cause(error)) from None


def _settle(answer: asyncio.Future[Response], found: Response | Exception) -> None:
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def _read(request: Request, response: urllib3.BaseHTTPResponse, until: float) -> Response:
    history = response.retries.history if response.retries is not None else ()
    if request.url.startswith("https:") and any(
        (step.redirect_location or "").startswith("http:") for step in history
    ):
        raise SourceFault("Redirected", "it redirects from https to http, which is not followed")
    body = bytearray()
    length = response.headers.get("Content-Length", "")
    while not (length.isdigit() and int(length) > request.limit):
        # Not read(): it would wait for as much as was asked for, however slowly that comes.
        chunk = response.read1(_CHUNK, decode_content=True)
        body += chunk
        if not chunk or len(body) > request.limit:
            break
        if time.monotonic() > until:
            raise SourceFault("Timeout", "the answer did not end in time")
    else:
        raise SourceFault("TooLarge", f"{length} bytes are more than {request.limit}")
    if len(body) > request.limit:
        raise SourceFault("TooLarge", f"it is more than {request.limit} bytes")
    ends = length.isdigit() or getattr(response, "chunked", False)
    return Response(response.status, response.headers, bytes(body), ends)


def _retries(headers: Mapping[str, str]) -> urllib3.Retry:
    """None but redirects, which do not send the configured headers to any other host."""
    return urllib3.Retry(
        total=None, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS,
        remove_headers_on_redirect=frozenset(headers) - {"Accept", "Accept-Encoding", "User-Agent"},
    )  # fmt: skip


def _pool(config: SourceConfig) -> urllib3.PoolManager:
    try:
        context = ssl.create_default_context(cafile=config.cert_path or None)
        if config.client_cert_path:
            context.load_cert_chain(config.client_cert_path, config.client_key_path)
    except (OSError, ssl.SSLError) as error:
        raise SourceFault("Credentials", f"certificates cannot be loaded: {_cause(error)}") from None
    parts = urlsplit(config.uri)
    pool: urllib3.PoolManager
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        where = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user = unquote(where.netloc.rpartition("@")[0])
        headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
        address = f"{where.scheme}://{where.netloc.rpartition('@')[2]}"
        pool = urllib3.ProxyManager(address, proxy_headers=headers, maxsize=1, ssl_context=context)
    else:
        pool = urllib3.PoolManager(maxsize=1, ssl_context=context)
    pool.pool_classes_by_scheme = {"http": _PlainPool, "https": _EncryptedPool}
    return pool


def _cause(error: BaseException) -> str:
    """Why, in the words of whatever failed first; never an URL, which may hold a token."""
    reason = getattr(error, "reason", None)
    first = reason if isinstance(reason, BaseException) else error
    while (below := first.__cause__ or first.__context__) is not None:
        first = below
    if isinstance(first, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {first.verify_message}"
    if isinstance(first, OSError) and first.strerror:
        return first.strerror
    return f"the exchange failed ({type(first).__name__})"
