"""What the status of a FlagOverride says, and what the objects say that it concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagset import LABEL
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import Claims
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.stage import FLAG_OVERRIDES
from controller.runtime.reconciling.settle import settle
from tests.unit.controller.stage_world import RecordingCluster

if TYPE_CHECKING:
    from controller.runtime.reconciling.settle import Settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "flagSetRef": {"name": "checkout"},
    "flag": "pay",
    "variant": "off",
    "reason": "INC-1: payments fail",
    "expiresAt": "2026-01-01T02:00:00Z",
}


@dataclass
class World:
    cluster: RecordingCluster = field(
        default_factory=lambda: RecordingCluster([FLAG_OVERRIDES, CONFIGURATIONS])
    )
    now: datetime = NOW

    def flags(self, name: str = "checkout", labels: dict[str, str] | None = None, **more: Any) -> None:
        flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "on", **more}
        document = {"flags": {"pay": flag}}
        self.cluster.put({
            "apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlagConfiguration",
            "metadata": {"name": name, "labels": labels or {}}, "spec": {"flagSpec": document},
        })  # fmt: skip

    def override(self, name: str = "pay-off", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> None:
        wanted = {key: value for key, value in {**SPEC, **spec}.items() if value is not None}
        self.cluster.put({
            "apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagOverride",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": wanted,
        })  # fmt: skip

    async def settle(self, name: str = "pay-off") -> Settled:
        resource = self.cluster.the("FlagOverride", name)
        result = await FlagOverrideReconciler(self.cluster.objects).reconcile(resource, self.now)
        return settle(resource, result, self.now)

    async def configuration(self) -> Settled:
        resource = self.cluster.the("FeatureFlagConfiguration", "checkout")
        result = await ConfigurationReconciler(self.cluster.objects, Claims()).reconcile(resource, self.now)
        settled = settle(resource, result, self.now)
        self.cluster.set_status(resource, settled.status)
        return settled


def ready(settled: Settled) -> tuple[str, str]:
    condition = next(one for one in settled.status["conditions"] if one["type"] == "Ready")
    return condition["status"], condition["reason"]


async def test_an_override_in_force_says_what_it_hides_and_waits_for_its_end() -> None:
    world = World()
    world.flags(targeting={"if": [True, "on"]})
    world.override()
    settled = await world.settle()
    assert ready(settled) == ("True", "Active")
    assert settled.status["state"] == "Active"
    assert settled.status["hides"] == 'default variant "on", with a rule'
    assert settled.requeue_after == 7200


async def test_an_override_that_has_ended_is_ready_and_waits_for_nothing() -> None:
    world = World(now=NOW + timedelta(hours=2))
    world.flags()
    world.override()
    settled = await world.settle()
    assert (ready(settled), settled.status["state"]) == (("True", "Expired"), "Expired")
    assert settled.requeue_after is None


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"flagSetRef": {"name": "other"}}, "UnknownFlagSet"),
        ({"flag": "payy"}, "UnknownFlag"),
        ({"variant": "of"}, "UnknownVariant"),
        ({"audience": {"ends_wiht": [{"var": "email"}, "@a"]}}, "InvalidAudience"),
        ({"variant": None}, "InvalidSpec"),
        ({"expiresAt": "soon"}, "InvalidSpec"),
    ],
)
async def test_an_override_that_cannot_be_in_force_says_why(spec: dict[str, Any], reason: str) -> None:
    world = World()
    world.flags()
    world.override(**spec)
    settled = await world.settle()
    assert ready(settled) == ("False", reason)
    assert settled.status["state"] == reason


async def test_an_audience_of_a_disabled_flag_is_refused() -> None:
    world = World()
    world.flags(state="DISABLED")
    world.override(audience={"==": [{"var": "country"}, "NL"]})
    assert ready(await world.settle()) == ("False", "AudienceOfDisabledFlag")


async def test_the_younger_of_two_overrides_is_in_conflict_until_the_older_one_ends() -> None:
    world = World()
    world.flags(labels={LABEL: "shop-flags"})
    world.override("b-older", "2025-12-31T23:00:00Z", expiresAt="2026-01-01T01:00:00Z")
    world.override("a-younger", flagSetRef={"name": "shop-flags"})
    assert ready(await world.settle("b-older")) == ("True", "Active")
    younger = await world.settle("a-younger")
    assert ready(younger) == ("False", "Conflict")
    assert younger.requeue_after == 3600
    world.now += timedelta(hours=1)
    assert ready(await world.settle("a-younger")) == ("True", "Active")


async def test_an_override_that_does_not_fit_is_no_rival() -> None:
    world = World()
    world.flags()
    world.override("older", "2025-12-31T23:00:00Z", variant="of")
    world.override()
    assert ready(await world.settle()) == ("True", "Active")


async def test_the_object_tells_of_the_override_with_a_condition_and_events_until_it_ends() -> None:
    world = World()
    world.flags()
    world.override()
    started = await world.configuration()
    overridden = next(one for one in started.status["conditions"] if one["type"] == "OverrideActive")
    assert overridden["message"] == (
        'flag "pay" is "off" until 2026-01-01T02:00:00Z by FlagOverride pay-off: INC-1: payments fail'
    )
    assert [event.reason for event in started.events] == ["OverrideActive"]
    assert started.requeue_after == 7200
    assert not (await world.configuration()).events
    world.now += timedelta(hours=2)
    ended = await world.configuration()
    assert [event.reason for event in ended.events] == ["OverrideEnded"]
    assert all(one["type"] != "OverrideActive" for one in ended.status["conditions"])
    assert ended.status["digest"] != started.status["digest"]
