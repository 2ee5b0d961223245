"""The Event at a refused pod's owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.meta import ObjectKey
from controller.kube.event_sink import manifest
from controller.pods.refusals import MOST, MOST_OF_ONE, Refusals, refusal
from tests.worlds.stages import Sink

if TYPE_CHECKING:
    from controller.runtime.event import Event

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
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
    refusals = Refusals(sink, lambda: NOW)
    for _ in range(2 * MOST):
        refusals.report(request(OWNER), "why")
    refusals.report(request(OWNER), "another reason")
    assert [each.message for each in sink.events] == ["why", "another reason"]


def test_a_namespace_uses_up_its_own_events_alone() -> None:
    sink, times = Sink(), [NOW]
    refusals = Refusals(sink, lambda: times[-1])
    for number in range(2 * MOST):
        refusals.report(request(OWNER), f"why {number}")
    refusals.report(request(OWNER, namespace="payments"), "why")
    assert [each.object.namespace for each in sink.events] == [*["shop"] * MOST_OF_ONE, "payments"]
    times.append(NOW + timedelta(seconds=60))
    refusals.report(request(OWNER), "why 199")
    assert sink.events[-1].message == "why 199"


def test_there_are_only_so_many_in_a_minute() -> None:
    sink, times = Sink(), [NOW]
    refusals = Refusals(sink, lambda: times[-1])
    for number in range(2 * MOST):
        refusals.report(request(OWNER, namespace=f"team-{number}"), "why")
    assert len(sink.events) == MOST
    times.append(NOW + timedelta(seconds=60))
    refusals.report(request(OWNER, namespace="team-199"), "why")
    assert len(sink.events) == MOST + 1
