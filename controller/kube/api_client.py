"""The official client, whose token is read again once the API server refuses it.

The official client reads a kubeconfig once. The tokens in it have an end: those of cloud providers' exec
plugins after minutes, and those that another program writes to a file once they are replaced.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from kubernetes.aio import client, config
from yaml import YAMLError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_TOKEN: Final = "BearerToken"  # noqa: S105 - the client's name of it
_HEADER: Final = "authorization"
_PAUSE: Final = 10.0
"""Seconds between two readings: whoever is refused for good does not start a plugin with each request."""


class ApiClient(client.ApiClient):
    """Repeats a request that was refused with 401, once, if a newer token is there."""

    def __init__(
        self, configuration: client.Configuration, load: Callable[[client.Configuration], Awaitable[None]]
    ) -> None:
        """`load` reads the credentials into a configuration; raises ConfigException or OSError."""
        super().__init__(configuration)
        self._load = load
        self._loading = asyncio.Lock()
        self._loaded_at = -_PAUSE

    async def call_api(
        self, method: str, url: str, header_params: dict[str, Any] | None = None, *rest: Any, **more: Any
    ) -> Any:
        """The answer, as the official client gives it."""
        headers = dict(header_params or {})
        response = await super().call_api(method, url, headers, *rest, **more)
        if response.status != HTTPStatus.UNAUTHORIZED or not await self._renew(headers.get(_HEADER)):
            return response
        response.response.close()
        token = await self.configuration.get_api_key_with_prefix(_TOKEN)
        return await super().call_api(method, url, {**headers, _HEADER: token}, *rest, **more)

    async def _renew(self, refused: object) -> bool:
        """Whether the configuration has another token than the one that was `refused`."""
        loop = asyncio.get_running_loop()
        async with self._loading:
            if loop.time() - self._loaded_at >= _PAUSE and self.configuration.api_key.get(_TOKEN) == refused:
                self._loaded_at = loop.time()
                try:
                    await self._load(self.configuration)
                except (config.ConfigException, OSError, YAMLError) as error:
                    log.warning("the credentials for the API server cannot be read again: %s", error)
        return self.configuration.api_key.get(_TOKEN) not in {refused, None}
