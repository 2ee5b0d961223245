"""The official client, whose token is read again once the API server refuses it.

The official client reads a kubeconfig once. The tokens in it have an end: those of cloud providers' exec
plugins after minutes, and those that another program writes to a file once they are replaced.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio import client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_TOKEN: Final = "BearerToken"  # noqa: S105 - the client's name of it
_HEADER: Final = "authorization"


@dataclass(frozen=True, slots=True)
class CredentialTiming:
    """How often credentials are read again, in seconds."""

    pause: float = 10.0
    """Least time between two reads of the kubeconfig, so that not each refusal starts an exec plugin."""
    patience: float = 15.0
    """How long a request waits for a plugin, which may ask a person."""


DEFAULT_TIMING: Final = CredentialTiming()


class ApiClient(client.ApiClient):
    """Repeats a request that was refused with 401, once, if a newer token is there."""

    def __init__(
        self,
        configuration: client.Configuration,
        load: Callable[[], Awaitable[client.Configuration]],
        timing: CredentialTiming = DEFAULT_TIMING,
    ) -> None:
        """`load` reads the credentials again."""
        # Otherwise aiohttp reads the proxies' variables and .netrc in two threads for each request.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_of(configuration.host)
        super().__init__(configuration)
        self._load = load
        self._loading: asyncio.Task[None] | None = None
        self._timing = timing
        self._began = -timing.pause

    async def close(self) -> None:
        """Close the connections, and stop waiting for a plugin."""
        if self._loading is not None:
            self._loading.cancel()
        await super().close()  # type: ignore[no-untyped-call]

    async def call_api(
        self, method: str, url: str, header_params: dict[str, Any] | None = None, *rest: Any, **more: Any
    ) -> Any:
        """Return the answer of the official client."""
        headers = dict(header_params or {})
        response = await super().call_api(method, url, headers, *rest, **more)
        if response.status != HTTPStatus.UNAUTHORIZED or not await self._renew(headers.get(_HEADER)):
            return response
        response.response.close()
        token = await self.configuration.get_api_key_with_prefix(_TOKEN)
        return await super().call_api(method, url, {**headers, _HEADER: token}, *rest, **more)

    async def _renew(self, refused: object) -> bool:
        """Whether there is another token than the one that was `refused`."""
        now = asyncio.get_running_loop().time()
        idle = self._loading is None or self._loading.done()
        if self._token == refused and idle and now - self._began >= self._timing.pause:
            self._began = now
            self._loading = asyncio.create_task(self._reload())
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=self._timing.patience)
        return self._token not in {refused, None}

    @property
    def _token(self) -> object:
        return self.configuration.api_key.get(_TOKEN)

    async def _reload(self) -> None:
        try:
            configuration = await self._load()
        except Exception as error:  # noqa: BLE001 - the file may be anything while it is written
            log.warning("the credentials for the API server cannot be read again: %r", error)
            return
        if configuration.host != self.configuration.host:
            # A token is sent only to its own server.
            log.warning(
                "the kubeconfig names another API server by now, %s; restart to use it", configuration.host
            )
            return
        self.configuration.api_key = configuration.api_key
        self.configuration.refresh_api_key_hook = configuration.refresh_api_key_hook


def _proxy_of(server: str) -> str | None:
    """Return the proxy in the environment for requests to the URL `server`, or None."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
