"""Connections to registries, and their access tokens, shared by all looks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cachetools import TLRUCache

from controller.runtime.network.client_tls import context_of
from controller.runtime.network.judged_resolver import judged_session
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from yarl import URL

    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.oci.credentials import RegistryAccess

_AGENT: Final = "flagstaff"
_MOST_KEPT: Final = 4096
_USED: Final = 0.8
"""The share of a token's life after which it is not used any more."""


class Connections:
    """Kept open for a while; tokens are kept for most of the time that they are good for."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        """`hosts`: where registries, and what they redirect to, may be; None: anywhere."""
        self._hosts = hosts
        self._session: aiohttp.ClientSession | None = None
        self._proxies = getproxies()
        clock = asyncio.get_running_loop().time
        self._kept: TLRUCache[tuple[object, ...], tuple[str, float]] = TLRUCache(
            _MOST_KEPT, ttu=lambda _, value, now: now + value[1] * _USED, timer=clock
        )

    def kept(self, key: tuple[object, ...]) -> str | None:
        """Return the Authorization header that was accepted for `key`, until it expires."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def keep(self, key: tuple[object, ...], authorization: str, seconds: float) -> None:
        """Keep the Authorization header of `key` for `seconds`."""
        self._kept[key] = (authorization, seconds)

    def drop(self, key: tuple[object, ...]) -> None:
        """Forget the Authorization header of `key`."""
        self._kept.pop(key, None)

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: URL, *, headers: dict[str, str], access: RegistryAccess, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; follow no redirect. Raises Stalled (InvalidSecret, InvalidProxy, HostDenied)."""
        proxy = access.proxy or self._proxy(url)
        if self._hosts is not None:
            self._hosts.require_scheme(url.scheme)
            host, port = url.host or "", url.port or 0
            if proxy is not None:
                self._hosts.require_name(host)
            if access.proxy:
                given = urlsplit(access.proxy)
                host, port = given.hostname or "", given.port or 80
            if access.proxy or proxy is None:
                await self._hosts.require_literal(host, port)
        if self._session is None:
            proxies = frozenset(urlsplit(each).hostname or "" for each in self._proxies.values())
            # Registries that never answer must not delay the others. Blobs are compressed by their authors,
            # and their digest is that of the bytes as they come.
            self._session = judged_session(self._hosts, trusted=proxies, limit=0, decompress=False)
        context = context_of(access.tls) if any(access.tls) else True
        headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity", **headers}
        async with self._session.request(
            method, url, headers=headers, ssl=context, proxy=proxy, allow_redirects=False, **more
        ) as answer:
            yield answer

    def _proxy(self, url: URL) -> str | None:
        if proxy_bypass(url.host or "", self._proxies):
            return None
        proxy = self._proxies.get(url.scheme)
        if proxy is not None and not proxy.startswith(("http://", "https://")):
            message = f"the proxy that the environment names for {url.scheme} is no http proxy"
            raise Stalled("InvalidProxy", message)
        return proxy

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
