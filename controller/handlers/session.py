"""The HTTP session of kopf's watches.

kopf ends the process on errors that an API server returns while it starts or restarts. This session retries a
refused request until it succeeds, and passes only that answer to kopf.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import kopf

from controller.kube.answers import retry_after

if TYPE_CHECKING:
    from yarl import URL

    from controller.runtime.objects.watch_health import WatchHealth

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 3.0
_LOGIN_PAUSE: Final = 1.0
"""Seconds between two logins with credentials that are refused."""
_REFUSALS: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_DISCOVERY: Final = "discovery"
_GROUPS: Final = "/apis"
"""Path of the first request of each scan for kinds."""
_DEFINITIONS: Final = "customresourcedefinitions"
DISCOVERY_PAUSE: Final = 5.0
"""Seconds from the change of a CustomResourceDefinition to the scan for it: discovery follows the definition
later, and a scan that comes too soon misses the kind until the next change.
"""
_NAMESPACES: Final = "/api/v1/namespaces"


def login(health: WatchHealth, **known: Any) -> kopf.AiohttpSession | None:
    """Return a session with the credentials of the pod or the kubeconfig, which retries refusals."""
    info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
    if info is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        middlewares=(Patience(health),),
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


class Patience:
    """An aiohttp middleware: retries until the API server answers, and records the health of each watch."""

    def __init__(self, health: WatchHealth) -> None:
        self._health = health
        self._definitions_watched = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Return the first answer that is no refusal."""
        url, pause = request.url, _FIRST_PAUSE
        if self._definitions_watched and url.path == _GROUPS:
            await asyncio.sleep(DISCOVERY_PAUSE)
        while True:
            wait = pause
            try:
                response = await handler(request)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._lost(url, f"{url.origin()}: {type(error).__name__}: {error}"[:300])
            else:
                if response.status == HTTPStatus.UNAUTHORIZED:
                    self._lost(url, f"{url.origin()} does not accept our credentials (401)")
                    # kopf logs in again: a token may have been replaced by a newer one.
                    await asyncio.sleep(_LOGIN_PAUSE)
                    return response
                if not _refused(response.status, url):
                    self._answered(url, response.status)
                    return response
                self._lost(url, _refusal(response.status, url))
                wait = max(pause, retry_after(response.headers))
                response.close()
            await asyncio.sleep(wait)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _answered(self, url: URL, status: int) -> None:
        self._definitions_watched |= _kind(url) == _DEFINITIONS
        if status < HTTPStatus.BAD_REQUEST and self._health.answered(_kind(url), url.path):
            log.info("the API server answers again")

    def _lost(self, url: URL, why: str) -> None:
        if self._health.failed(_kind(url), url.path, why):
            log.warning("no changes arrive from the API server: %s; retrying", why)


def _refused(status: int, url: URL) -> bool:
    """Whether to retry."""
    if url.path == _NAMESPACES and status == HTTPStatus.FORBIDDEN:
        # Without the right to list namespaces kopf continues with the named ones.
        return False
    gone = status == HTTPStatus.NOT_FOUND and _kind(url) != _DISCOVERY
    return gone or status in _REFUSALS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _refusal(status: int, url: URL) -> str:
    # A fault of the whole API server gives one text, which is logged once, not once for each kind.
    whole = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
    return f"{url.origin()}{'' if whole else url.path} answers {status}"


def _kind(url: URL) -> str:
    """Return the plural that a path lists or watches, or `discovery` for a request for kinds."""
    parts = url.path.strip("/").split("/")
    least = 4 if parts[0] == "apis" else 3
    return parts[-1] if len(parts) >= least else _DISCOVERY
