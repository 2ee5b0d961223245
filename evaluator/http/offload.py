"""Makes slow answers in a thread, one at a time, while the event loop answers other requests."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Response, Streamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import ByteStream, Headers

MOST_WAITING: Final = 8
"""Most answers that are being made or wait for the thread; further requests get 503."""

log = logging.getLogger(__name__)


class Offload:
    """A thread that several handlers share."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offload")
        self._waiting = 0

    def answer(self, headers: Headers, make: Callable[[], bytes]) -> Response | Streamed:
        """Return a response of 200 whose body `make` returns in the thread, or 503 if too many wait."""
        if self._waiting >= MOST_WAITING:
            return Response(503, b"", (("retry-after", "1"),))
        return Streamed(200, headers, partial(self._start, make))

    def close(self) -> None:
        """Cancel the answers that wait; one that is being made continues."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, make: Callable[[], bytes], stream: ByteStream) -> None:
        def end(future: asyncio.Future[bytes]) -> None:
            self._waiting -= 1
            if future.cancelled():
                stream.break_off()
            elif (error := future.exception()) is not None:
                log.error("an answer failed", exc_info=error)
                stream.break_off()
            else:
                stream.finish(future.result())

        self._waiting += 1
        asyncio.get_running_loop().run_in_executor(self._thread, make).add_done_callback(end)
