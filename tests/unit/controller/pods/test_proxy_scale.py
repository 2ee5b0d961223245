"""The proxy on demand: when it starts, when it ends, and whose word counts between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.pods.marked_pods import MarkedPods
from controller.pods.proxy_scale import IDLE, ProxyScale
from controller.runtime.cache import Cache

POD: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "a"}}


@dataclass
class ScaledProxy:
    """A Deployment and a clock."""

    there: int | None = 0
    time: float = 0.0
    scaled: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = Cache()
        self.pods = MarkedPods([""])
        self.scaler = ProxyScale(self, self.objects, self.pods, "flagstaff-system", 2, lambda: self.time)

    async def replicas(self, namespace: str, name: str) -> int | None:
        assert (namespace, name) == ("flagstaff-system", "flagstaff-proxy")
        return self.there

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        del namespace, name
        self.there = replicas
        self.scaled.append(replicas)

    async def look(self, seconds: float = 0.0) -> list[int]:
        """All that was asked for so far."""
        self.time += seconds
        await self.scaler.adjust()
        return self.scaled

    def receipt(self, **status: Any) -> None:
        key = ObjectKey("FlagReceipt", "shop", "checkout.p.1")
        self.objects.put(Resource(key, "u", 1, str(self.time), {"configuration": "checkout"}, status))


async def test_it_starts_with_the_first_pod_and_ends_a_while_after_the_last() -> None:
    world = ScaledProxy()
    assert await world.look() == []
    world.pods.informer.learn("Pod", POD)
    assert await world.look() == [2]
    assert await world.look(IDLE) == [2]
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    assert await world.look(IDLE - 1) == [2]
    assert await world.look(1) == [2, 0]
    assert await world.look(IDLE) == [2, 0]


async def test_a_pod_that_comes_in_time_keeps_it() -> None:
    world = ScaledProxy(there=2)
    assert await world.look(IDLE - 1) == []
    world.pods.informer.learn("Pod", POD)
    assert world.pods.came.is_set()
    await world.look(1)
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    assert await world.look(IDLE - 1) == []


async def test_how_many_there_are_is_left_to_others() -> None:
    world = ScaledProxy(there=5)
    world.pods.informer.learn("Pod", POD)
    assert await world.look() == []


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        ({"groups": [{"count": 1}]}, False),
        ({"groups": [], "delivered": 1}, False),
        ({"groups": [{"count": 0}], "silent": 1}, True),
        ({"groups": "?"}, True),
        ({}, True),
    ],
)
async def test_subscribers_that_nobody_injected_keep_it(status: dict[str, Any], ends: bool) -> None:
    world = ScaledProxy(there=2)
    world.receipt(**status)
    assert await world.look(IDLE) == ([0] if ends else [])


async def test_without_a_deployment_nothing_is_done() -> None:
    world = ScaledProxy(there=None)
    world.pods.informer.learn("Pod", POD)
    assert await world.look() == []
