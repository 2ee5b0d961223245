"""Connections to registries, and what they let us in with: shared by all looks. One event loop's."""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from cachetools import TLRUCache

from controller.runtime.setbacks import Stalled
from controller.sources.temporary import TemporaryFolder

if TYPE_CHECKING:
    from yarl import URL

    from controller.sources.oci.credentials import Access

_AGENT: Final = "flagstaff"
_MOST_KEPT: Final = 4096
_USED: Final = 0.8
"""Of a token's life."""


class Connections:
    """Kept open for a while; tokens are kept for most of the time that they are good for."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies = getproxies()
        clock = asyncio.get_running_loop().time
        self._kept: TLRUCache[tuple[object, ...], tuple[str, float]] = TLRUCache(
            _MOST_KEPT, ttu=lambda _, value, now: now + value[1] * _USED, timer=clock
        )

    def kept(self, key: tuple[object, ...]) -> str | None:
        """The value of the header Authorization that let `key` in before."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def keep(self, key: tuple[object, ...], authorization: str, seconds: float) -> None:
        """It lets `key` in for so long."""
        self._kept[key] = (authorization, seconds)

    def drop(self, key: tuple[object, ...]) -> None:
        """It lets `key` in no more."""
        self._kept.pop(key, None)

    def request(
        self, method: str, url: URL, *, headers: dict[str, str], access: Access, **more: Any
    ) -> Any:  # aiohttp's own context manager
        """One request, which follows no redirect. Raises Stalled (InvalidSecret) for certificates that cannot
        be read.
        """
        if self._session is None:
            # Blobs are compressed by whoever made them, and their digest is that of the bytes as they come.
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(None),
                auto_decompress=False,
            )
        context = _context(access) if access.authority or access.certificate else True
        headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity", **headers}
        return self._session.request(
            method,
            url,
            headers=headers,
            ssl=context,
            proxy=self._proxy(url),
            allow_redirects=False,
            **more,
        )

    def _proxy(self, url: URL) -> str | None:
        """The environment's proxy for a URL."""
        if proxy_bypass(url.host or "", self._proxies):
            return None
        return self._proxies.get(url.scheme)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


@lru_cache(maxsize=64)
def _context(access: Access) -> ssl.SSLContext:
    """The system's authorities and that of `access`, and its certificate."""
    try:
        context = ssl.create_default_context()
        if access.authority:
            context.load_verify_locations(cadata=access.authority)
        if access.certificate:
            _load_certificate(context, access)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "they do not fit together"
        raise Stalled(
            "InvalidSecret", f"the certificates of certSecretRef cannot be used: {reason}"
        ) from error
    return context


def _load_certificate(context: ssl.SSLContext, access: Access) -> None:
    # The ssl module takes a client's certificate from files alone.
    folder = TemporaryFolder.make()
    try:
        certificate, key = folder.path / "tls.crt", folder.path / "tls.key"
        certificate.write_text(access.certificate, encoding="utf-8")
        key.write_text(access.certificate_key, encoding="utf-8")
        context.load_cert_chain(certificate, key)
    finally:
        folder.remove()
