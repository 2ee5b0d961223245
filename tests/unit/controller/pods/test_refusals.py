"""The Event at a refused pod's owner, and the way of a refusal to alerts: by Kubernetes' Event of the flag
set that the pod asks for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.meta import ObjectKey
from controller.kube.event_sink import manifest
from controller.pods import installation
from controller.pods.refusals import (
    APART,
    MOST,
    MOST_OF_ONE,
    FlagSetRefusals,
    Refusals,
    ReportedRefusals,
    refusal,
)
from tests.worlds.events import NOW, Desk, alert
from tests.worlds.objects import thing
from tests.worlds.stages import Sink

if TYPE_CHECKING:
    from controller.runtime.event import Event

OWNER: Final = {
    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-5d", "uid": "rs", "controller": True,
}  # fmt: skip
OTHER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "cm"}


def request(*owners: Any, **more: Any) -> dict[str, Any]:
    pod = {"kind": "Pod", "metadata": {"ownerReferences": [*owners]}}
    return {"uid": "u", "namespace": "shop", "object": pod, **more}


def event_of(*owners: Any, message: str = "why", now: datetime = NOW, **more: Any) -> Event:
    event = refusal(request(*owners, **more), message, now)
    assert event is not None
    return event


def test_the_owner_gets_an_event_with_the_reason() -> None:
    event = event_of(OTHER, OWNER)
    assert event.object == ObjectKey("ReplicaSet", "shop", "checkout-5d")
    body = manifest(event)
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "InjectionRefused", "why")
    about = body["involvedObject"]
    assert (about["apiVersion"], about["kind"], about["uid"]) == ("apps/v1", "ReplicaSet", "rs")


def test_without_a_controller_the_first_owner_gets_the_event() -> None:
    assert event_of(OTHER).object.name == "x"


@pytest.mark.parametrize(
    "given",
    [
        request(),
        request(OWNER, dryRun=True),
        request("x", 7),
        request({**OWNER, "uid": 7}),
        {**request(OWNER), "namespace": None},
        {**request(OWNER), "object": {"kind": "Pod"}},
        {**request(OWNER), "object": {"kind": "Pod", "metadata": {"ownerReferences": 7}}},
    ],
)
def test_a_dry_run_or_a_pod_without_an_owner_gets_no_event(given: dict[str, Any]) -> None:
    assert refusal(given, "why", NOW) is None


def test_an_owner_that_tries_again_gets_one_event_an_hour() -> None:
    assert event_of(OWNER).key == event_of(OWNER, now=NOW + timedelta(minutes=1), uid="another review").key
    keys = {
        event_of(OWNER).key,
        event_of(OWNER, message="else").key,
        event_of(OWNER, now=NOW + timedelta(hours=1)).key,
    }
    assert len(keys) == 3


def test_an_owner_that_tries_again_uses_up_nothing() -> None:
    sink = Sink()
    refusals = Refusals(sink, lambda: NOW, lambda: 0.0)
    for _ in range(2 * MOST):
        refusals.report(request(OWNER), "why")
    refusals.report(request(OWNER), "another reason")
    assert [each.message for each in sink.events] == ["why", "another reason"]


def test_a_namespace_uses_up_its_own_events_alone() -> None:
    sink, times = Sink(), [0.0]
    refusals = Refusals(sink, lambda: NOW, lambda: times[-1])
    for number in range(2 * MOST):
        refusals.report(request(OWNER), f"why {number}")
    refusals.report(request(OWNER, namespace="payments"), "why")
    assert [each.object.namespace for each in sink.events] == [*["shop"] * MOST_OF_ONE, "payments"]
    times.append(60.0)
    refusals.report(request(OWNER), "why 199")
    assert sink.events[-1].message == "why 199"


def test_there_are_only_so_many_in_a_minute() -> None:
    sink, times = Sink(), [0.0]
    refusals = Refusals(sink, lambda: NOW, lambda: times[-1])
    for number in range(2 * MOST):
        refusals.report(request(OWNER, namespace=f"team-{number}"), "why")
    assert len(sink.events) == MOST
    times.append(60.0)
    refusals.report(request(OWNER, namespace="team-199"), "why")
    assert len(sink.events) == MOST + 1


class RefusalDesk(Sink):
    """Admission, and a controller whose alert is about all flag sets; admission's Events become what the API
    server has of them.
    """

    def __init__(self, *, direct: bool = False) -> None:
        super().__init__()
        self.desk, self.time = Desk(alert(), thing("FlagSet", "checkout")), 0.0
        moments = (lambda: NOW, lambda: self.time)
        sink = self.desk.outbox if direct else self
        self.refusals = FlagSetRefusals(self.desk.objects, [sink], *moments)
        self.controller = ReportedRefusals(self.desk.objects, [self.desk.outbox], *moments)

    def take_refusal(
        self, name: object = "checkout", why: str = "port 8013 is in use", **request: Any
    ) -> list[tuple[str, str]]:
        """(object, message) of all that waits after this refusal."""
        meta = {"generateName": "web-7d9f-", "annotations": {installation.FLAG_SET: name}}
        self.refusals.take({"namespace": "shop", "object": {"kind": "Pod", "metadata": meta}, **request}, why)
        return self.alerts()

    def refuse(self, name: str = "checkout") -> list[dict[str, Any]]:
        """What the API server has of a pod that asks for this flag set."""
        self.take_refusal(name)
        return [manifest(event) for event in self.events]

    def alerts(self) -> list[tuple[str, str]]:
        return [(f"{each.kind}/{each.name}", each.message) for each in self.desk.box.pending.values()]


def test_a_refused_pod_is_reported_under_its_flag_set() -> None:
    world = RefusalDesk(direct=True)
    assert world.take_refusal() == [("FlagSet/checkout", "pod web-7d9f-… is refused: port 8013 is in use")]
    (message,) = world.desk.box.pending.values()
    assert (message.severity, message.reason, message.state) == ("warning", "InjectionRefused", None)


def test_a_pod_is_reported_under_a_flag_set_that_does_not_exist() -> None:
    found = RefusalDesk(direct=True).take_refusal("nobody", "FlagSet nobody not found")
    assert found == [("FlagSet/nobody", "pod web-7d9f-… is refused: FlagSet nobody not found")]


def test_a_pod_that_is_created_again_and_again_is_reported_once() -> None:
    world = RefusalDesk(direct=True)
    for number in range(50):
        world.take_refusal(why=f"port {number} is in use")
        world.take_refusal(f"nobody-{number}")
    assert [each for each, _ in world.take_refusal()] == ["FlagSet/checkout", "FlagSet/nobody-0"]
    world.time += APART + 1
    assert len(world.take_refusal(why="port 0 is in use")) == 2
    world.time += APART + 1
    assert len(world.take_refusal(why="another")) == 3


@pytest.mark.parametrize("name", ["", "A b", "x" * 254, None, ["checkout"]])
def test_an_invalid_flag_set_name_is_not_reported(name: object) -> None:
    assert RefusalDesk(direct=True).take_refusal(name) == []


def test_a_dry_run_is_not_reported() -> None:
    assert RefusalDesk(direct=True).take_refusal(dryRun=True) == []


def test_the_kind_is_the_one_that_is_there() -> None:
    world = RefusalDesk(direct=True)
    world.desk.objects.learn(thing("FeatureFlag", "only"))
    world.desk.objects.learn(alert("others", "FeatureFlag"))
    assert [each for each, _ in world.take_refusal("only")] == ["FeatureFlag/only"]
    assert world.desk.objects.get(ObjectKey("FlagSet", "shop", "only")) is None


def test_a_refused_pod_is_alerted_under_its_flag_set() -> None:
    world = RefusalDesk()
    for body in world.refuse():
        world.controller.informer.learn("Event", body)
    assert world.alerts() == [("FlagSet/checkout", "pod web-7d9f-… is refused: port 8013 is in use")]


def test_a_pod_is_alerted_under_a_flag_set_that_does_not_exist() -> None:
    world = RefusalDesk()
    for body in world.refuse("nobody"):
        world.controller.informer.learn("Event", body)
    assert world.alerts() == [("FlagSet/nobody", "pod web-7d9f-… is refused: port 8013 is in use")]


def test_events_that_anybody_may_create_make_one_alert_a_minute() -> None:
    world = RefusalDesk()
    (body,) = world.refuse()
    for number in range(50):
        world.controller.informer.learn("Event", {**body, "message": f"forged {number}"})
    assert [message for _, message in world.alerts()] == ["forged 0"]
    world.time += APART + 1
    world.controller.informer.learn("Event", {**body, "message": "forged again"})
    assert len(world.alerts()) == 2


def test_events_from_before_the_start_and_of_other_objects_make_none() -> None:
    world = RefusalDesk()
    (body,) = world.refuse()
    old = (NOW - timedelta(minutes=5)).isoformat()
    pod = {**body["involvedObject"], "kind": "Pod"}
    for change in ({"lastTimestamp": old}, {"lastTimestamp": None}, {"involvedObject": pod}):
        world.controller.informer.learn("Event", {**body, **change})
    assert world.alerts() == []
