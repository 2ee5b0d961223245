"""Which proxies live, by their Leases, and what goes once one has died."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagreceipt import LEASE_PREFIX
from controller.api.meta import ObjectKey, Resource
from controller.configurations.live_proxies import DURATION, LiveProxies, ProxyFollower
from controller.runtime.cache import Cache, Change
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

RECEIPT = Resource(ObjectKey("FlagReceipt", "shop", "r"), "u", 1, "1", spec={"proxy": "p"})
OTHER = Resource(ObjectKey("FlagReceipt", "shop", "s"), "v", 1, "1", spec={"proxy": "q"})


@dataclass
class Leases:
    """A cluster's Leases, and what is deleted there."""

    renewed: dict[str, str] = field(default_factory=dict)
    fails: bool = False
    asked: int = 0
    deleted: list[tuple[str, str]] = field(default_factory=list)

    async def leases(self, namespace: str, labels: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        self.asked += 1
        if self.fails:
            raise Failed("ApiServerUnavailable", "no")
        return {name: {"spec": {"renewTime": moment}} for name, moment in self.renewed.items()}

    async def delete(
        self, _version: str, kind: str, _namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        self.deleted.append((kind, name))


@dataclass
class FollowedProxies:
    cluster: Leases = field(default_factory=Leases)
    cache: Cache = field(default_factory=Cache)
    time: float = 0.0

    def __post_init__(self) -> None:
        self.proxies = ProxyFollower(
            LiveProxies(), self.cache, self.cluster, "flagstaff-system", lambda: self.time, pause=0.0
        )


@pytest.fixture
def around() -> FollowedProxies:
    return FollowedProxies()


async def test_where_no_proxy_ever_wrote_a_receipt_nothing_is_asked(around: FollowedProxies) -> None:
    await around.proxies.poll()
    assert around.cluster.asked == 0


async def test_receipts_and_lease_of_a_dead_proxy_are_deleted_and_no_others(around: FollowedProxies) -> None:
    for each in (RECEIPT, OTHER):
        around.cache.learn(each)
    for moment in ("t1", "t2"):
        around.cluster.renewed = {f"{LEASE_PREFIX}p": "t1", f"{LEASE_PREFIX}q": moment}
        await around.proxies.poll()
        around.time += DURATION
    assert around.proxies.proxies.alive == ["q"]
    assert around.cluster.deleted == [("FlagReceipt", "r"), ("Lease", f"{LEASE_PREFIX}p")]
    assert around.cache.of_kind("FlagReceipt") == [OTHER]


async def test_leases_that_cannot_be_read_say_nothing_about_anybody(
    around: FollowedProxies, caplog: pytest.LogCaptureFixture
) -> None:
    around.cache.learn(RECEIPT)
    around.cluster.fails = True
    around.time = 10 * DURATION
    await around.proxies.poll()
    assert around.proxies.proxies.alive == ["p"]
    assert around.cluster.deleted == []
    assert "Leases cannot be read" in caplog.text


def test_a_receipt_shows_that_its_proxy_lives(around: FollowedProxies) -> None:
    around.proxies.on_change(Change(None, RECEIPT))
    around.proxies.on_change(Change(OTHER, None))
    assert around.proxies.proxies.alive == ["p"]


LEASE = "flagstaff-proxy-a"


def test_one_that_renews_its_lease_lives() -> None:
    proxies = LiveProxies()
    for second in range(0, 100, 5):
        assert proxies.learn({LEASE: f"t{second}"}, float(second)) == frozenset()
    assert proxies.alive == ["a"]


def test_one_that_does_not_is_dead_and_stays_so() -> None:
    proxies = LiveProxies()
    proxies.learn({LEASE: "t"}, 0.0)
    assert proxies.learn({LEASE: "t"}, DURATION - 1) == frozenset()
    assert proxies.learn({LEASE: "t"}, DURATION) == {"a"}
    assert proxies.alive == []


def test_one_that_gave_its_lease_up_is_dead_at_once() -> None:
    proxies = LiveProxies()
    proxies.learn({LEASE: "t"}, 0.0)
    assert proxies.learn({}, 5.0) == {"a"}


def test_one_that_wrote_something_lives_until_its_lease_has_had_time_to_be_seen() -> None:
    proxies = LiveProxies()
    proxies.track("a", 0.0)
    assert proxies.learn({}, 5.0) == frozenset()
    assert proxies.alive == ["a"]
    proxies.track("a", 10.0)
    assert proxies.learn({}, DURATION) == {"a"}


def test_one_that_was_taken_for_dead_lives_again_once_it_renews() -> None:
    proxies = LiveProxies()
    proxies.learn({LEASE: "t0"}, 0.0)
    proxies.learn({LEASE: "t0"}, DURATION)
    proxies.learn({LEASE: "t1"}, DURATION + 5)
    assert proxies.alive == ["a"]
