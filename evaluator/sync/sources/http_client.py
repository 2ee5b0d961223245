"""HTTP requests with a deadline and a size limit, which can be aborted at any time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from evaluator.sync.source import SourceFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.sync.config import SourceConfig

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
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
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
