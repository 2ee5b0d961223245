"""A proxy on loopback for a library that looks up names itself: connects to judged addresses alone."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from controller.runtime.tenancy.hosts import Hosts

_HEAD: Final = 64 * 1024
"""Most bytes of a request's head."""
_CHUNK: Final = 64 * 1024
_REFUSED: Final = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_OWN: Final = {"proxy-authorization", "proxy-connection", "connection"}
"""Headers that are for the proxy, and are not passed on."""


class JudgingProxy:
    """Listens once `url` was called. Belongs to one event loop."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        # Other programs that reach our loopback are refused.
        self._word = secrets.token_urlsafe(32)
        login = b64encode(f"flagstaff:{self._word}".encode()).decode()
        self._login = f"basic {login}".encode()
        self._starting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def url(self) -> str:
        """Start, and return the proxy's URL with the login. Raises OSError."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD)
        return f"http://flagstaff:{self._word}@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close the listener and its connections."""
        if self._server is not None:
            self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request or one tunnel; later requests of the connection go to the same address."""
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
                method, target, _ = first.split(" ")
                addresses, port = await self._judge(method, target, fields)
                if not addresses:
                    writer.write(_REFUSED)
                    await writer.drain()
                    return
                from_upstream, upstream = await _connect(addresses, port)
                try:
                    if method == "CONNECT":
                        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    else:
                        upstream.write(_request(method, target, fields))
                    await _run_until_one_ends(_copy(reader, upstream), _copy(from_upstream, writer))
                finally:
                    upstream.close()
            finally:
                writer.close()

    async def _judge(self, method: str, target: str, fields: list[str]) -> tuple[tuple[str, ...], int]:
        """Return the target's addresses and port; none if it is not allowed. Raises ValueError."""
        given = next((line for line in fields if line.lower().startswith("proxy-authorization:")), "")
        scheme, _, login = given.partition(":")[2].strip().partition(" ")
        if not secrets.compare_digest(f"{scheme.lower()} {login}".encode(), self._login):
            return (), 0
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname or "", parts.port or 80
        try:
            self._hosts.require_scheme(parts.scheme)
            return await self._hosts.addresses(host, port), port
        except Setback:
            return (), 0


def _request(method: str, target: str, fields: list[str]) -> bytes:
    """Rewrite a request for the server itself, which closes the connection after it."""
    parts = urlsplit(target)
    path = target.removeprefix(f"{parts.scheme}://{parts.netloc}") or "/"
    kept = [line for line in fields if line.partition(":")[0].lower() not in _OWN]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


async def _connect(
    addresses: tuple[str, ...], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. Raises OSError."""
    failed = OSError()
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            failed = error
    raise failed


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_CHUNK):
        writer.write(piece)
        await writer.drain()


async def _run_until_one_ends(one: Coroutine[None, None, None], other: Coroutine[None, None, None]) -> None:
    """Run both until one of them ends."""
    tasks = [asyncio.ensure_future(copy) for copy in (one, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
