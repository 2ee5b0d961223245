"""What a replica does beside its loops goes on, whatever one look comes to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from controller.api.kinds import WATCHED
from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache
from controller.runtime.lasting import forever
from controller.runtime.metrics import Metrics
from controller.runtime.watch_health import WatchHealth
from controller.settings import ControllerSettings
from controller.sources.git.factory import GitFactory
from controller.wiring import replica
from controller.wiring.replica import Controller

if TYPE_CHECKING:
    from pathlib import Path

    from controller.kube.client import Cluster
    from controller.runtime.loop import Loop


@dataclass
class Woken:
    """A loop that is woken."""

    keys: list[ObjectKey] = field(default_factory=list)

    def wake(self, key: ObjectKey) -> None:
        self.keys.append(key)

    def gone(self, _: ObjectKey) -> None:
        """It holds nothing."""


@dataclass
class Failing:
    """An API server's client with a fault of its own."""

    asked: list[str] = field(default_factory=list)

    async def label_pod(self, *_: Any) -> None:
        self.asked.append("label")
        raise KeyError("nobody foresaw this")

    async def present(self, version: str, plural: str, *_: Any) -> tuple[set[str], int]:
        self.asked.append(plural)
        raise KeyError("nobody foresaw this")

    async def everywhere(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    async def until(self, what: str, times: int) -> None:
        async with asyncio.timeout(10):
            while self.asked.count(what) < times:  # noqa: ASYNC110 - what is waited for is state of the code under test
                await asyncio.sleep(0.001)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    monkeypatch.setattr(replica, "_LIST_AGAIN", 0.001)
    monkeypatch.setattr(replica, "SWEEP", 0.001)
    return Failing()


async def test_a_look_that_fails_in_an_unforeseen_way_is_told_and_not_the_last(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    objects = Cache()
    metrics = Metrics(objects, {}, lambda: datetime(2026, 1, 1, tzinfo=UTC), WatchHealth(lambda: 0.0))
    settings = ControllerSettings(leader_election=False, pod="here")
    controller = Controller(settings, cast("Cluster", failing), objects, metrics, WatchHealth(lambda: 0.0))
    await controller._sync()
    looks = (controller._sweep, controller._keep_label)
    tasks = [asyncio.create_task(forever(each)) for each in looks]
    try:
        await failing.until(WATCHED[-1].plural, 2)
        await failing.until("label", 2)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert "comparing flagsources with the cluster failed" in caplog.text
    assert "an unexpected error" in caplog.text


def test_an_object_that_comes_or_goes_wakes_the_one_of_the_other_kind_that_has_its_name() -> None:
    objects = Cache()
    metrics = Metrics(objects, {}, lambda: datetime(2026, 1, 1, tzinfo=UTC), WatchHealth(lambda: 0.0))
    controller = Controller(
        ControllerSettings(), cast("Cluster", Failing()), objects, metrics, WatchHealth(lambda: 0.0)
    )
    flags, both = (
        Woken(),
        [ObjectKey(kind, "shop", "x") for kind in ("FeatureFlag", "FeatureFlagConfiguration")],
    )
    controller.loops = cast("dict[str, Loop]", {both[0].kind: flags})
    objects.learn(Resource(both[0], "f", 1, "1"))
    flags.keys.clear()
    objects.learn(Resource(both[1], "c", 1, "2"))
    objects.learn(Resource(both[1], "c", 1, "3", status={"flags": 1}))
    assert flags.keys == [both[0]]
    objects.forget(both[1])
    assert flags.keys == [both[0]] * 2


async def test_mirrors_are_swept_in_a_while_and_again(
    failing: Failing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replica, "MIRRORS", 0.001)
    objects, swept = Cache(), asyncio.Semaphore(0)
    metrics = Metrics(objects, {}, lambda: datetime(2026, 1, 1, tzinfo=UTC), WatchHealth(lambda: 0.0))
    controller = Controller(
        ControllerSettings(), cast("Cluster", failing), objects, metrics, WatchHealth(lambda: 0.0)
    )

    async def sweep(_: GitFactory, now: datetime) -> None:
        assert now.tzinfo is not None
        swept.release()

    monkeypatch.setattr(GitFactory, "sweep", sweep)
    controller.git = GitFactory(cast("Any", None), tmp_path)
    leading = asyncio.create_task(controller._lead())
    async with asyncio.timeout(10):
        for _ in range(2):
            await swept.acquire()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
