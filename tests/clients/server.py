"""An evaluator on a loop of its own, beside clients that block."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from evaluator.settings import Settings
from evaluator.store.store import Store
from evaluator.wiring import Ports, Serving, serve
from tests.stores import swap
from tests.worlds.evaluator import flag

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evaluator.flags.model import Flag, FlagSet

T = TypeVar("T")


def banner(default: str) -> Flag:
    """A flag whose variants are greetings."""
    return flag("banner", {"plain": "Welcome", "party": "Hooray"}, default)


class Server:
    """Serves what it is given, on free ports that it keeps over a restart."""

    def __init__(self, flags: FlagSet) -> None:
        self._flags = flags
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.store = Store()
        self._serving = self._start(
            Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0)
        )

    @property
    def ports(self) -> Ports:
        return self._serving.ports

    def swap(self, flags: FlagSet) -> None:
        self._flags = flags

        async def swap_flags() -> None:
            swap(self.store, flags, now=1_700_000_000)

        self._wait(swap_flags())

    def stop(self) -> None:
        self._wait(self._serving.stop())

    def start_again(self) -> None:
        ports = self.ports
        self.store = Store()
        self._serving = self._start(
            Settings(
                host="127.0.0.1",
                port=ports.grpc,
                management_port=ports.management,
                ofrep_port=ports.ofrep,
                sync_port=ports.sync,
            )
        )

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _start(self, settings: Settings) -> Serving:
        self.swap(self._flags)
        return self._wait(serve(self.store, settings))

    def _wait(self, coroutine: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)


def until(found: Callable[[], T], *, seconds: float = 20.0) -> T:
    """What `found` returns once that is true; the last of it when time is up, for the caller's assertion to
    show.
    """
    deadline = time.monotonic() + seconds
    while not (last := found()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return last
