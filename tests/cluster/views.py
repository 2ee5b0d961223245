"""The API server as one client sees it, whose watches can be held back while all else that it asks is
answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

_WATCH: Final = b"watch=true"
_PIECE: Final = 65_536


class View:
    """Listens on loopback for plain HTTP, so that it can distinguish a watch from other requests, and asks
    the API server over TLS.
    """

    def __init__(self, plane: Plane) -> None:
        self._port = plane.port
        self._trust = plane.trust
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._opened: list[asyncio.StreamWriter] = []
        self._server = self._loop.run_until_complete(asyncio.start_server(self._pass, "127.0.0.1"))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """From here on watches deliver nothing, and stay open."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def release(self) -> None:
        """Let all through that was held back, and what follows."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        """End every connection."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        ours = asyncio.current_task()
        others = [each for each in asyncio.all_tasks() if each is not ours]
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._opened:
            writer.transport.abort()
        closed = (writer.wait_closed() for writer in self._opened)
        await asyncio.gather(*closed, return_exceptions=True)

    async def _pass(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._opened.append(answer)
        far, request = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._trust)
        self._opened.append(request)
        watching = False

        async def up() -> None:
            nonlocal watching
            while piece := await near.read(_PIECE):
                watching = _WATCH in piece.partition(b"\r\n")[0]
                request.write(piece)
                await request.drain()

        async def down() -> None:
            while piece := await far.read(_PIECE):
                if watching:
                    await self._flows.wait()
                answer.write(piece)
                await answer.drain()

        ways = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ways:
                each.cancel()
            request.close()
            answer.close()


@contextlib.contextmanager
def view(plane: Plane) -> Iterator[View]:
    """A view for as long as the block lasts."""
    made = View(plane)
    try:
        yield made
    finally:
        made.close()
