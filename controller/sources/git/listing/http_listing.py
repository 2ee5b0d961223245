"""References over HTTP, listed in this process: one request, and a fraction of the CPU time of git's program.

Only what answers as a Git server should is taken from here. For everything else git is asked, which knows
redirects, proxies and client certificates, and whose words for a failure are the known ones.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import aiohttp

from controller.api.parsing.git_url import Transport
from controller.runtime.network.judged_resolver import JudgedResolver
from controller.sources.git.listing.names import HEADS, TAGS
from controller.sources.git.listing.reference import References, commits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.git.programs.program import GitProgram

_MAX_BYTES: Final = 1024 * 1024
"""Of an answer. Larger remotes are asked by git, which has the server leave out what is not followed."""
_LONG: Final = 64 * 1024
"""Bytes; more than these are parsed in a thread."""
_SERVICE: Final = "git-upload-pack"
_TYPE: Final = f"application/x-{_SERVICE}-advertisement"
_AGENT: Final = "git/2 (flagstaff)"
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy"})


class HttpListing:
    """Asks remotes over connections that are kept for a while. Belongs to one event loop."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        """`hosts`: where remotes may be; None: anywhere."""
        self._hosts = hosts
        self._session: aiohttp.ClientSession | None = None
        self._large: set[str] = set()
        """URLs of remotes whose answer was too long."""
        self._direct = not any(name.lower() in _PROXIES for name in os.environ)

    async def references(self, program: GitProgram, *, narrowed: bool) -> References | None:
        """The remote's references, if `narrowed` its branches and tags; None: ask git. Raises Setback."""
        if not self._direct or not _is_plain(program) or program.location.url in self._large:
            return None
        async with program.deadline.running():
            try:
                content = await self._get(program)
            except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError):
                return None
        if content is None:
            return None
        try:
            if len(content) < _LONG:
                return parse_advertisement(content, narrowed=narrowed)
            return await asyncio.to_thread(parse_advertisement, content, narrowed=narrowed)
        except ValueError:
            return None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _get(self, program: GitProgram) -> bytes | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=None
                if self._hosts is None
                else aiohttp.TCPConnector(resolver=JudgedResolver(self._hosts)),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(None),
                auto_decompress=True,
            )
        if self._hosts is not None:
            await self._hosts.require_literal(*program.location.server)
        credentials = program.credentials
        headers = {"User-Agent": _AGENT}
        if credentials is not None and credentials.bearer:
            headers["Authorization"] = f"Bearer {credentials.bearer}"
        elif credentials is not None and credentials.username:
            login = f"{credentials.username}:{credentials.password}"
            headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        url = f"{program.location.url.rstrip('/')}/info/refs?service={_SERVICE}"
        authority = credentials.tls.authority if credentials is not None else ""
        async with self._session.get(
            url, headers=headers, allow_redirects=False, ssl=_context(authority)
        ) as answer:
            if answer.status != 200 or answer.content_type != _TYPE:
                return None
            content = bytearray()
            async for chunk in answer.content.iter_any():
                content += chunk
                if len(content) > _MAX_BYTES:
                    self._large.add(program.location.url)
                    answer.close()
                    return None
            return bytes(content)


def parse_advertisement(content: bytes, *, narrowed: bool) -> References:
    """What `info/refs` answers (gitprotocol-http, protocol 0). Raises ValueError."""
    listed: list[tuple[str, str]] = []
    head = None
    lines = _lines(content)
    if next(lines, b"") != f"# service={_SERVICE}\n".encode() or next(lines, None) is not None:
        raise ValueError("the response is not that of a Git server")
    for number, line in enumerate(each for each in lines if each is not None):
        said, _, capabilities = line.rstrip(b"\n").partition(b"\0")
        value, _, name = said.decode("utf-8", "replace").partition(" ")
        if number == 0:
            head = _head(capabilities.decode("utf-8", "replace"))
        # An empty repository has `capabilities^{}` in place of a reference.
        if name != "capabilities^{}" and (not narrowed or name.startswith((HEADS, TAGS))):
            listed.append((value, name))
    return References(commits_of(listed), head)


def _lines(content: bytes) -> Iterator[bytes | None]:
    """The packet lines; None for one that separates. Raises ValueError for what is cut."""
    at = 0
    while at < len(content):
        size = int(content[at : at + 4], 16)
        if size in {1, 2, 3} or at + max(size, 4) > len(content):
            raise ValueError("a packet line is truncated")
        yield content[at + 4 : at + size] if size else None
        at += max(size, 4)
    if not content.endswith(b"0000"):
        raise ValueError("the response is truncated")


def _head(capabilities: str) -> str | None:
    found = (
        each.removeprefix("symref=HEAD:") for each in capabilities.split() if each.startswith("symref=HEAD:")
    )
    return next(found, None)


def _is_plain(program: GitProgram) -> bool:
    """Whether it takes neither a proxy, nor a certificate of ours, nor a query."""
    credentials = program.credentials
    special = credentials is not None and (credentials.proxy or credentials.tls.certificate)
    return (
        program.location.transport in {Transport.HTTP, Transport.HTTPS}
        and not special
        and "?" not in program.location.url
    )


@lru_cache(maxsize=64)
def _context(authority: str) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cadata=authority) if authority else True
