"""The HTTP session of kopf's watches, which records whether the API server answers."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import kopf

if TYPE_CHECKING:
    from yarl import URL

    from controller.runtime.objects.watch_health import WatchHealth

log = logging.getLogger(__name__)

_DISCOVERY: Final = "discovery"
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})


def login(health: WatchHealth, **known: Any) -> kopf.AiohttpSession | None:
    """Return a session with the credentials of the pod or the kubeconfig."""
    info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
    if info is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        middlewares=(WatchRecorder(health),),
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


class WatchRecorder:
    """An aiohttp middleware that records the health of each watch. kopf tries again what was refused."""

    def __init__(self, health: WatchHealth) -> None:
        self._health = health

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Return the answer, whatever it is."""
        url = request.url
        try:
            response = await handler(request)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._record_fault(url, f"{url.origin()}: {type(error).__name__}: {error}"[:300])
            raise
        status, kind = response.status, _kind(url)
        if status == HTTPStatus.NOT_FOUND and kind != _DISCOVERY:
            self._health.remove_kind(kind)
        elif status in _REFUSALS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._record_fault(url, f"{url.origin()} answers {status}")
        elif status < HTTPStatus.BAD_REQUEST and self._health.record_answer(kind, url.path):
            log.info("the API server answers again")
        return response

    def _record_fault(self, url: URL, why: str) -> None:
        if self._health.record_failure(_kind(url), url.path, why):
            log.warning("no changes arrive from the API server: %s; retrying", why)


def _kind(url: URL) -> str:
    """Return the plural that a path lists or watches, or `discovery` for a request for kinds."""
    parts = url.path.strip("/").split("/")
    least = 4 if parts[0] == "apis" else 3
    return parts[-1] if len(parts) >= least else _DISCOVERY
