"""What belongs to no source any more is removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache
from controller.runtime.process import forever
from controller.runtime.setbacks import Failed
from controller.runtime.shards import Shard
from controller.sources.reconciler import Leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

KEY = ObjectKey("FlagSource", "shop", "flags")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Artifacts:
    """Artifacts on a disk that may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.kept: list[list[ObjectKey]] = []
        self._fails = fails

    def keep(self, keys: Iterable[ObjectKey]) -> None:
        self.kept.append(list(keys))
        if self._fails:
            raise Failed("StorageFailed", "no")


async def nothing(_: datetime) -> None:
    raise AssertionError("swept too early")


async def test_artifacts_of_sources_that_are_there_are_kept() -> None:
    cache, artifacts = Cache(), Artifacts()
    cache.learn(Resource(KEY, "u", 1, "1"))
    cache.learn(Resource(ObjectKey("FlagSet", "shop", "flags"), "v", 1, "1"))
    await Leftovers(cache, artifacts.keep, [nothing], lambda: NOW).remove_artifacts()
    assert artifacts.kept == [[KEY]]


async def test_artifacts_of_sources_that_another_shard_was_given_meanwhile_are_not_kept() -> None:
    cache, artifacts = Cache(), Artifacts()
    cache.learn(Resource(KEY, "u", 1, "1", labels={"shard": "a"}))
    cache.learn(Resource(ObjectKey("FlagSource", "shop", "moved"), "v", 1, "1", labels={"shard": "b"}))
    leftovers = Leftovers(cache, artifacts.keep, [nothing], lambda: NOW, shard=Shard.of("shard=a", ()))
    await leftovers.remove_artifacts()
    assert artifacts.kept == [[KEY]]


async def test_a_disk_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await Leftovers(Cache(), Artifacts(fails=True).keep, [nothing], lambda: NOW).remove_artifacts()
    assert "old artifacts were not removed: no" in caplog.text


async def test_mirrors_are_swept_in_a_while_and_again() -> None:
    swept = asyncio.Semaphore(0)

    async def sweep(now: datetime) -> None:
        assert now == NOW
        swept.release()

    made = Leftovers(Cache(), Artifacts().keep, [sweep], lambda: NOW, sweep_after=0.001)
    sweeping = asyncio.create_task(forever(made.sweep))
    async with asyncio.timeout(60):
        for _ in range(2):
            await swept.acquire()
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
