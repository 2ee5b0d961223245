"""Connections to Git servers over HTTP, kept for a while and shared by all that is asked in this process.

Only what answers as a Git server should is taken from here. For everything else git is asked, which knows
redirects, proxies and client certificates, and whose words for a failure are the known ones.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import aiohttp

from controller.api.parsing.git_url import Transport
from controller.runtime.network.judged_resolver import judged_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.git.programs.program import GitProgram

SERVICE: Final = "git-upload-pack"
LISTING: Final = f"info/refs?service={SERVICE}"
FAILURES: Final = (aiohttp.ClientError, ssl.SSLError, OSError, ValueError)
"""What a request or the reading of its answer raises; git is asked then."""
_TYPES: Final = {
    LISTING: f"application/x-{SERVICE}-advertisement",
    SERVICE: f"application/x-{SERVICE}-result",
}
_AGENT: Final = "git/2 (flagstaff)"
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy"})


class Connections:
    """Belongs to one event loop."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        """`hosts`: where remotes may be; None: anywhere."""
        self._hosts = hosts
        self._session: aiohttp.ClientSession | None = None
        self._direct = not any(name.lower() in _PROXIES for name in os.environ)

    def reach(self, program: GitProgram) -> bool:
        """Whether its remote takes neither a proxy, nor a certificate of ours, nor a query."""
        credentials = program.credentials
        special = credentials is not None and (credentials.proxy or credentials.tls.certificate)
        return (
            self._direct
            and program.location.transport in {Transport.HTTP, Transport.HTTPS}
            and not special
            and "?" not in program.location.url
        )

    @contextlib.asynccontextmanager
    async def answer(
        self, program: GitProgram, what: str, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.StreamReader | None]:
        """The content of the answer to LISTING, or to SERVICE with a `body`; None: it is no Git server's.

        Raises Setback, and FAILURES.
        """
        if self._session is None:
            self._session = judged_session(self._hosts)
        if self._hosts is not None:
            await self._hosts.require_literal(*program.location.server)
        credentials = program.credentials
        async with self._session.request(
            "GET" if body is None else "POST",
            f"{program.location.url.rstrip('/')}/{what}",
            data=body,
            headers=_headers(program, body),
            allow_redirects=False,
            ssl=_context(credentials.tls.authority if credentials is not None else ""),
        ) as answer:
            plain = answer.status == 200 and answer.content_type == _TYPES[what]
            yield answer.content if plain else None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _headers(program: GitProgram, body: bytes | None) -> dict[str, str]:
    headers = {"User-Agent": _AGENT}
    if body is not None:
        headers["Content-Type"] = f"application/x-{SERVICE}-request"
    credentials = program.credentials
    if credentials is not None and credentials.bearer:
        headers["Authorization"] = f"Bearer {credentials.bearer}"
    elif credentials is not None and credentials.username:
        login = f"{credentials.username}:{credentials.password}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    return headers


@lru_cache(maxsize=64)
def _context(authority: str) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cadata=authority) if authority else True
