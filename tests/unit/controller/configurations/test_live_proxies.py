"""Which proxies live, by their Leases."""

from __future__ import annotations

from controller.configurations.live_proxies import DURATION, LiveProxies

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
