"""A source that a test drives, and a store beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from evaluator.store.store import Store
from evaluator.sync.follower import Followers
from evaluator.sync.lastgood import StateFolder
from evaluator.sync.source import Delivery
from tests.clock import Clock
from tests.waiting import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from pathlib import Path

    from evaluator.sync.source import SourceEvent


def document(*keys: str, value: Any = True, **more: Any) -> bytes:
    flags = {key: {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"} for key in keys}
    return json.dumps({"flags": flags, **more}).encode()


def delivery(content: bytes, file: str = "flags.json", **context: Any) -> Delivery:
    return Delivery(((file, content),), context)


class FakeSource:
    """Delivers what is put with `say`; what is put with `fall` is raised."""

    def __init__(self, name: str = "fake") -> None:
        self.name = self.identity = name
        self.calls = 0
        self._queue: asyncio.Queue[Callable[[], SourceEvent]] = asyncio.Queue()

    @property
    def idle(self) -> bool:
        """Whether all was delivered."""
        return self._queue.empty()

    def say(self, found: SourceEvent | bytes) -> None:
        said = delivery(found) if isinstance(found, bytes) else found
        self._queue.put_nowait(lambda: said)

    def fall(self, error: Exception) -> None:
        def fail() -> SourceEvent:
            raise error

        self._queue.put_nowait(fail)

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        self.calls += 1
        while True:
            yield (await self._queue.get())()


def value(store: Store, key: str, variant: str = "on") -> Any:
    """What the variant of a flag is worth in what is served; None where there is no such flag."""
    flag = store.snapshot.flag_set.flags.get(key) if store.snapshot else None
    return None if flag is None else flag.variants[variant]


@contextlib.asynccontextmanager
async def run_followers(
    sources: Sequence[Any], *, state_dir: Path | None = None, clock: Callable[[], float] | None = None
) -> AsyncIterator[tuple[Store, Followers]]:
    store = Store(sources=[source.name for source in sources])
    clock = clock or Clock(1_000.0)
    folder = None if state_dir is None else StateFolder(state_dir, None, clock)
    followers = Followers(sources, store, clock=clock, folder=folder, random=lambda: 1.0)
    await followers.restore()
    async with run_beside(followers.run()):
        yield store, followers


def files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))
