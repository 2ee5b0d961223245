"""The way of a refusal from admission to alerts: by Kubernetes' Event of the flag set."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from controller.kube.event_sink import manifest
from controller.pods import installation
from controller.pods.refusals import APART, FlagSetRefusals, ReportedRefusals
from tests.worlds.events import NOW, Desk, alert
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.runtime.event import Event


class Around:
    """Admission, and a controller over a desk whose alert is about all flag sets."""

    def __init__(self) -> None:
        self.desk, self.time = Desk(alert(), thing("FlagSet", "checkout")), 0.0
        self.posted: list[dict[str, Any]] = []
        self.admission = FlagSetRefusals(self.desk.objects, [self], lambda: NOW, lambda: self.time)
        self.controller = ReportedRefusals(
            self.desk.objects, [self.desk.outbox], lambda: NOW, lambda: self.time
        )

    def accept(self, event: Event) -> None:
        self.posted.append(manifest(event))

    def refuse(self, name: str = "checkout") -> list[dict[str, Any]]:
        """What the API server has of a pod that asks for this flag set."""
        meta = {"generateName": "web-", "annotations": {installation.FLAG_SET: name}}
        self.admission.take({"namespace": "shop", "object": {"kind": "Pod", "metadata": meta}}, "no port")
        return self.posted

    def alerts(self) -> list[tuple[str, str]]:
        return [(f"{each.kind}/{each.name}", each.message) for each in self.desk.box.pending.values()]


def test_a_refused_pod_is_alerted_under_its_flag_set() -> None:
    around = Around()
    for body in around.refuse():
        around.controller.informer.learn("Event", body)
    assert around.alerts() == [("FlagSet/checkout", "pod web-… is refused: no port")]


def test_a_pod_is_alerted_under_a_flag_set_that_does_not_exist() -> None:
    around = Around()
    for body in around.refuse("nobody"):
        around.controller.informer.learn("Event", body)
    assert around.alerts() == [("FlagSet/nobody", "pod web-… is refused: no port")]


def test_events_that_anybody_may_create_make_one_alert_a_minute() -> None:
    around = Around()
    (body,) = around.refuse()
    for number in range(50):
        around.controller.informer.learn("Event", {**body, "message": f"forged {number}"})
    assert [message for _, message in around.alerts()] == ["forged 0"]
    around.time += APART + 1
    around.controller.informer.learn("Event", {**body, "message": "forged again"})
    assert len(around.alerts()) == 2


def test_events_from_before_the_start_and_of_other_objects_make_none() -> None:
    around = Around()
    (body,) = around.refuse()
    old = (NOW - timedelta(minutes=5)).isoformat()
    pod = {**body["involvedObject"], "kind": "Pod"}
    for change in ({"lastTimestamp": old}, {"lastTimestamp": None}, {"involvedObject": pod}):
        around.controller.informer.learn("Event", {**body, **change})
    assert around.alerts() == []
