"""HTTP clients that connect only to addresses that users may use."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from controller.runtime.tenancy.hosts import resolve

if TYPE_CHECKING:
    from controller.runtime.tenancy.hosts import Hosts


class JudgedResolver(AbstractResolver):
    """Looks names up by way of `Hosts`. aiohttp asks it for no host that is an address: judge these first."""

    def __init__(self, hosts: Hosts, trusted: frozenset[str] = frozenset()) -> None:
        """`trusted`: names that are not judged: those of proxies that the operator set."""
        self._hosts = hosts
        self._trusted = trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the checked addresses. Raises Setback."""
        lookup = resolve if host in self._trusted else self._hosts.addresses
        results = []
        for address in await lookup(host, port):
            version = ipaddress.ip_address(address.partition("%")[0]).version
            kind = socket.AF_INET if version == 4 else socket.AF_INET6
            if family in {socket.AF_UNSPEC, kind}:
                flags = socket.AI_NUMERICHOST
                results.append(
                    ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
                )
        return results

    async def close(self) -> None:
        """Do nothing: there is no state."""


def judged_session(hosts: Hosts | None, trusted: frozenset[str] = frozenset()) -> aiohttp.ClientSession:
    """Open a client without cookies, limits and decompression; see `http_client`, which judges before each
    request what no resolver is asked for. `hosts`: None for anywhere. `trusted`: see `JudgedResolver`.
    """
    resolver = None if hosts is None else JudgedResolver(hosts, trusted)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False, resolver=resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(None),
        auto_decompress=False,
    )
