"""Makes slow answers in threads, in turn for each client, while the event loop answers other requests."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.host.threads import FairThreads, work_for
from evaluator.http.messages import ByteStream, Headers, Request, Response, Streamed, host_of

if TYPE_CHECKING:
    from collections.abc import Callable


MOST_WAITING: Final = 16
"""Most answers that wait for a thread, half of them of one client; further requests get 503."""
SECONDS: Final = 30.0
"""Seconds for which a client waits; what bounds the work itself is how much is shown."""

log = logging.getLogger(__name__)


class Offload:
    """Threads that several handlers share: one client has one, and whoever has none finds another."""

    def __init__(self) -> None:
        self._threads = FairThreads(1, resource="answers", most_waiting=MOST_WAITING)

    def answer(self, request: Request, headers: Headers, make: Callable[[], bytes]) -> Response | Streamed:
        """Return a response of 200 whose body `make` returns in a thread, or 503 if too many wait. What waits
        is not begun once its client is gone.
        """
        client = host_of(request.peer)
        if self._threads.is_full(client):
            return Response(503, b"", (("retry-after", "1"),))
        return Streamed(200, headers, partial(self._start, client, make), seconds=SECONDS)

    def close(self) -> None:
        """Begin no more answers; one that is being made continues."""
        self._threads.shutdown(wait=False)

    def _start(self, client: str, make: Callable[[], bytes], stream: ByteStream) -> None:
        with work_for(client):
            making = asyncio.get_running_loop().run_in_executor(self._threads, make)
        send_result(stream, making)


def send_result(stream: ByteStream, making: asyncio.Future[bytes]) -> None:
    """Finish the stream with the bytes that are being made; cancel that once the client is gone."""

    def cancel() -> None:
        making.cancel()

    stream.on_closed = cancel
    making.add_done_callback(partial(_end, stream))


def _end(stream: ByteStream, making: asyncio.Future[bytes]) -> None:
    if making.cancelled():
        stream.break_off()
    elif (error := making.exception()) is not None:
        log.error("an answer failed", exc_info=error)
        stream.break_off()
    else:
        stream.finish(making.result())
