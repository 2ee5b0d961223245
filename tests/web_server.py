"""A web application of a test's own on loopback."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def web_server(
    *routes: web.RouteDef, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port at which these are answered."""
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
