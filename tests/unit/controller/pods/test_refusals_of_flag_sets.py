"""Messages about refused pods, sent to alerts on the flag set that the pods ask for."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.meta import ObjectKey
from controller.pods import installation
from controller.pods.refusals import APART, FlagSetRefusals
from tests.worlds.events import NOW, Desk, alert
from tests.worlds.objects import thing


class Around:
    """Over a desk whose alert is about all flag sets."""

    def __init__(self) -> None:
        self.desk, self.time = Desk(alert(), thing("FlagSet", "checkout")), 0.0
        self.refusals = FlagSetRefusals(self.desk.objects, [self.desk.outbox], lambda: NOW, lambda: self.time)

    def take(
        self, name: object = "checkout", why: str = "port 8013 is in use", **request: Any
    ) -> list[tuple[str, str]]:
        """(object, message) of all that waits after this refusal."""
        meta = {"generateName": "web-7d9f-", "annotations": {installation.FLAG_SET: name}}
        self.refusals.take({"namespace": "shop", "object": {"kind": "Pod", "metadata": meta}, **request}, why)
        return [(f"{each.kind}/{each.name}", each.message) for each in self.desk.box.pending.values()]


def test_a_refused_pod_is_reported_under_its_flag_set() -> None:
    around = Around()
    assert around.take() == [("FlagSet/checkout", "pod web-7d9f-… is refused: port 8013 is in use")]
    (message,) = around.desk.box.pending.values()
    assert (message.severity, message.reason, message.state) == ("warning", "InjectionRefused", None)


def test_a_pod_is_reported_under_a_flag_set_that_does_not_exist() -> None:
    found = Around().take("nobody", "FlagSet nobody not found")
    assert found == [("FlagSet/nobody", "pod web-7d9f-… is refused: FlagSet nobody not found")]


def test_a_pod_that_is_created_again_and_again_is_reported_once() -> None:
    around = Around()
    for number in range(50):
        around.take(why=f"port {number} is in use")
        around.take(f"nobody-{number}")
    assert [each for each, _ in around.take()] == ["FlagSet/checkout", "FlagSet/nobody-0"]
    around.time += APART + 1
    assert len(around.take(why="port 0 is in use")) == 2
    around.time += APART + 1
    assert len(around.take(why="another")) == 3


@pytest.mark.parametrize("name", ["", "A b", "x" * 254, None, ["checkout"]])
def test_an_invalid_flag_set_name_is_not_reported(name: object) -> None:
    assert Around().take(name) == []


def test_a_dry_run_is_not_reported() -> None:
    assert Around().take(dryRun=True) == []


def test_the_kind_is_the_one_that_is_there() -> None:
    around = Around()
    around.desk.objects.learn(thing("FeatureFlag", "only"))
    around.desk.objects.learn(alert("others", "FeatureFlag"))
    assert [each for each, _ in around.take("only")] == ["FeatureFlag/only"]
    assert around.desk.objects.get(ObjectKey("FlagSet", "shop", "only")) is None
