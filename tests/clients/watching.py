"""Somebody who asks all the time, by a stock client, and remembers what was answered in turn."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import CacheType, ResolverType

from tests.clients.server import until

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = -1


class Watcher:
    """Asks for the flag `banner` every few milliseconds."""

    def __init__(self, port: int) -> None:
        self.seen: list[int] = []
        """What was answered, in turn, without repeats; NOTHING where there was an error."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        provider = FlagdProvider(
            host="127.0.0.1",
            port=port,
            resolver_type=ResolverType.RPC,
            cache=CacheType.DISABLED,
            # An answer that a busy machine delays is no wrong one.
            deadline_ms=10_000,
        )
        api.set_provider_and_wait(provider, "watcher")
        self._client = api.get_client("watcher")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.005):
            found = self._client.get_integer_value("banner", NOTHING)
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)

    def sees(self, number: int) -> bool:
        """Whether this is answered now, or soon."""
        return until(lambda: self.seen[-1:] == [number], seconds=40)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        api.clear_providers()


@contextlib.contextmanager
def open_watcher(port: int) -> Iterator[Watcher]:
    watcher = Watcher(port)
    try:
        yield watcher
    finally:
        watcher.close()


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 2)
