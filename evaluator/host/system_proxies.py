"""The proxy that the environment names for a request: HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def system_proxy(scheme: str, host: str) -> str:
    """Return the URL of the proxy for requests by `scheme` to `host`, which may have a port; empty: none."""
    proxy = getproxies().get(scheme, "")
    return "" if not proxy or proxy_bypass(host) else proxy


def proxy_hosts() -> frozenset[str]:
    """The hosts of all proxies that the environment names."""
    return frozenset(urlsplit(proxy).hostname or "" for proxy in getproxies().values())
