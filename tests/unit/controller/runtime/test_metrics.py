"""What the controller says of who serves what, by a scrape."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache
from controller.runtime.metrics import ControllerMetrics
from controller.runtime.process import Role
from controller.runtime.queue import KeyedQueue
from controller.runtime.shards import Shard
from controller.runtime.watch_health import WatchHealth

KIND = "FeatureFlagConfiguration"


def scrape(status: dict[str, Any], kind: str = KIND, *, leading: bool = True) -> dict[str, float]:
    """Evaluators of the one object, by state."""
    objects = Cache()
    objects.learn(Resource(ObjectKey(kind, "shop", "flags"), "u", 1, "1", status=status))
    health = WatchHealth(lambda: 0.0)
    metrics = ControllerMetrics(
        objects,
        {},
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        health,
        Role(leading),
        CollectorRegistry(auto_describe=False),
    )
    return {
        sample.labels["state"]: sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if sample.name == "flagstaff_evaluators"
    }


def test_evaluators_are_counted_by_state() -> None:
    status = {"served": "411/412", "total": 412, "delivered": 3}
    assert scrape(status) == {"served": 411, "lagging": 1, "delivered": 3}


def test_where_no_stock_provider_follows_there_is_none() -> None:
    assert scrape({"served": "0/2", "total": 2}) == {"served": 0, "lagging": 2, "delivered": 0}


def test_a_standby_says_nothing_so_that_sums_are_right() -> None:
    assert scrape({"served": "2/2", "total": 2}, leading=False) == {}


@pytest.mark.parametrize(
    "status",
    [{}, {"served": "2/2"}, {"served": "all", "total": 2}, {"total": 2}, {"served": "2/2", "total": "2"}],
    ids=str,
)  # fmt: skip
def test_a_status_without_counts_has_no_series(status: dict[str, Any]) -> None:
    assert scrape(status, "FlagSet") == {}


def test_remote_flags_are_stale_since_their_provider_confirmed_them_last() -> None:
    objects = Cache()
    for name, entry in (("ill", {"staleSince": "2025-12-31T23:59:00Z"}), ("well", {})):
        providers = [{"name": "there", "type": "http", **entry}]
        objects.learn(Resource(ObjectKey(KIND, "shop", name), name, 1, "1", status={"providers": providers}))
    health, queue = WatchHealth(lambda: 0.0), KeyedQueue[ObjectKey](lambda: 0.0, lambda: 0.0)
    metrics = ControllerMetrics(
        objects,
        {KIND: queue},
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        health,
        Role(True),
        CollectorRegistry(auto_describe=False),
    )
    seconds = {
        (sample.labels["name"], sample.labels["provider"]): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if sample.name == "flagstaff_remote_flags_stale_seconds"
    }
    assert seconds == {("ill", "there"): 60.0, ("well", "there"): 0.0}


def test_objects_of_another_shard_are_measured_there() -> None:
    objects = Cache()
    for name in ("ours", "theirs"):
        key, status = ObjectKey(KIND, "shop", name), {"served": "2/2", "total": 2}
        objects.learn(Resource(key, name, 1, "1", status=status, labels={"shard": name}))
    role = Role(True, lease="mine", shard=Shard.of("shard=ours", ()))
    queue, registry = KeyedQueue[ObjectKey](lambda: 0.0, lambda: 0.0), CollectorRegistry(auto_describe=False)
    ControllerMetrics(
        objects,
        {KIND: queue},
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        WatchHealth(lambda: 0.0),
        role,
        registry,
    )
    found = generate_latest(registry).decode()
    for metric in ("flagstaff_evaluators", "flagstaff_suspended"):
        lines = [line for line in found.splitlines() if line.startswith(f"{metric}{{")]
        assert lines
        assert all('name="ours"' in line for line in lines)
    assert 'flagstaff_leader{lease="mine"} 1.0' in found


def test_overrides_in_force_have_a_series_each() -> None:
    objects = Cache()
    spec = {"flagSetRef": {"name": "checkout"}, "flag": "pay", "reason": "INC-1", "disabled": True,
            "expiresAt": "2026-01-02T00:00:00Z"}  # fmt: skip
    odd = {"flagSetRef": "checkout", "flag": 7}
    states = {
        "active": (spec, "Active"),
        "ended": (spec, "Expired"),
        "new": (spec, None),
        "odd": (odd, "Active"),
    }
    for name, (given, state) in states.items():
        key = ObjectKey("FlagOverride", "shop", name)
        objects.learn(Resource(key, name, 1, "1", given, {} if state is None else {"state": state}))
    health = WatchHealth(lambda: 0.0)
    metrics = ControllerMetrics(
        objects,
        {},
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        health,
        Role(True),
        CollectorRegistry(auto_describe=False),
    )
    samples = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if sample.name == "flagstaff_override_active"
    ]
    labels = {"namespace": "shop", "name": "active", "flag_set": "checkout", "flag": "pay"}
    assert samples == [(labels, 1.0)]


def test_a_rollout_has_its_state_and_each_candidate_its_share_and_the_values_of_its_metrics() -> None:
    metrics = [
        {"name": "errors", "verdict": "Pass", "value": 0.004},
        {"name": "quiet", "verdict": "Inconclusive"},
    ]
    statuses: dict[str, dict[str, Any]] = {
        "idle": {"phase": "Idle"},
        "going": {
            "phase": "Progressing",
            "candidates": [
                {"digest": f"sha256:{'a' * 64}", "phase": "Progressing", "share": 10, "metrics": metrics},
                {"digest": f"sha256:{'b' * 64}", "phase": "Queued"},
            ],
        },
        "held": {
            "phase": "Paused",
            "candidates": [{"digest": f"sha256:{'c' * 64}", "phase": "Paused", "share": 1}],
        },
        "failed": {"phase": "Failed"},
        "new": {},
        "odd": {"phase": "Sideways"},
    }
    objects = Cache()
    for name, status in statuses.items():
        key = ObjectKey("FlagRollout", "shop", name)
        objects.learn(Resource(key, name, 1, "1", status=status))
    health = WatchHealth(lambda: 0.0)
    collected = ControllerMetrics(
        objects,
        {},
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        health,
        Role(True),
        CollectorRegistry(auto_describe=False),
    )
    collected.count_check("Error")
    samples = {
        (sample.name.removeprefix("flagstaff_rollout_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(collected.registry).decode())
        for sample in family.samples
        if sample.name.startswith("flagstaff_rollout_") and not sample.name.endswith("_created")
    }
    assert samples == {
        ("status", "idle", "shop"): 1.0,
        ("status", "going", "shop"): 0.0,
        ("status", "held", "shop"): 3.0,
        ("status", "failed", "shop"): 2.0,
        ("share", "a" * 12, "going", "shop"): 10.0,
        ("share", "b" * 12, "going", "shop"): 0.0,
        ("share", "c" * 12, "held", "shop"): 1.0,
        ("metric_value", "a" * 12, "errors", "going", "shop"): 0.004,
        ("checks_total", "Pass"): 0.0,
        ("checks_total", "Fail"): 0.0,
        ("checks_total", "Inconclusive"): 0.0,
        ("checks_total", "Error"): 1.0,
    }
