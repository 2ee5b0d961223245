"""A flag that a revision deletes stays while evaluators are asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.authoring.request_queries import FlagRequests
from tests.worlds.flagsets import BROKEN, World, document, flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.flagset import DeletionGuard

GUARD = {
    "requestedWithin": "168h",
    "provider": {"type": "prometheus", "address": "https://prometheus.example.com"},
}
ASKED = FlagRequests(
    1203.6, [("shop/web-1", 1000.2), ("shop/web-2", 203.4)], datetime(2026, 1, 2, 3, tzinfo=UTC)
)


@dataclass
class Metrics:
    """A Prometheus that is asked about flags."""

    found: Mapping[str, FlagRequests] | str = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def ask(
        self, namespace: str, guard: DeletionGuard, keys: Sequence[str], now: datetime
    ) -> Mapping[str, FlagRequests] | str:
        assert (namespace, guard.requested_within, now.tzinfo) == ("shop", 604_800, UTC)
        self.asked.append(tuple(keys))
        return self.found


@dataclass
class Guarded(World):
    """A FlagSet with a deletion guard."""

    metrics: Metrics = field(default_factory=Metrics)

    def restart(self) -> None:
        World.restart(self)
        self.reconciler = replace(self.reconciler, requests=self.metrics)


async def guarded(**spec: Any) -> Guarded:
    world = Guarded()
    world.commit("r1", document(a=flag(), b=flag(), c=flag()))
    world.flag_set(deletionGuard=GUARD, **spec)
    await world.look()
    return world


async def test_a_flag_that_is_asked_for_stays_and_others_change() -> None:
    world = await guarded()
    world.metrics.found = {"a": ASKED}
    world.commit("r2", document(b=flag("on")))
    seen = await world.look()
    assert world.defaults() == {"a": "off", "b": "on"}
    assert world.metrics.asked == [("a", "c")]
    assert seen.ready[:2] == ("False", "PartiallyApplied")
    assert seen.status["held"] == [{"name": "a", "revision": "main@sha1:r1"}]
    (problem,) = seen.status["problems"]
    assert (problem["severity"], problem["flag"]) == ("error", "a")
    assert problem["message"] == (
        'the deletion of "a" waits: 1,204 requests in 168h, by shop/web-1 (1,000), shop/web-2 (203). It is '
        "deleted after 168h without any, not before 2026-01-09T03:00:00Z. To delete it now: kubectl -n shop "
        "annotate flagset checkout --overwrite flagstaff.dev/accept-revision=main@sha1:r2"
    )
    assert problem["message"] in seen.message
    assert [said.partition(":")[0] for said in seen.said] == ["PartiallyApplied", "Applied"]


async def test_flags_that_nobody_asks_for_are_deleted() -> None:
    world = await guarded()
    world.commit("r2", document(b=flag()))
    assert (await world.look()).ready[:2] == ("True", "Succeeded")
    assert (world.defaults(), world.metrics.asked) == ({"b": "off"}, [("a", "c")])


async def test_without_an_answer_each_deleted_flag_stays() -> None:
    world = await guarded()
    world.metrics.found = "prometheus.example.com answers 503"
    world.commit("r2", document(b=flag()))
    seen = await world.look()
    assert world.defaults() == {"a": "off", "b": "off", "c": "off"}
    assert seen.status["problems"][0]["message"].startswith(
        'the deletion of "a" waits: whether anybody asked for it in 168h is not known: '
        "prometheus.example.com answers 503. It is asked again each minute. To delete it now: kubectl"
    )
    assert seen.settled.requeue_after == 60
    world.metrics.found = {}
    seen = await world.look(after=60)
    assert (seen.ready[1], world.defaults()) == ("Succeeded", {"b": "off"})


async def test_those_who_ask_are_asked_for_again_after_the_interval() -> None:
    world = await guarded(interval="10m")
    world.metrics.found = {"a": ASKED, "c": ASKED}
    world.commit("r2", document(b=flag()))
    await world.look()
    world.metrics.asked.clear()
    assert (await world.look(after=599)).writes == []
    assert world.metrics.asked == []
    world.metrics.found = {"a": ASKED._replace(total=5.0), "c": ASKED}
    seen = await world.look(after=1)
    assert (seen.writes, seen.said, seen.status_written) == ([], [], False)
    assert world.metrics.asked == [("a", "c")]
    world.metrics.found = {"a": ASKED}
    await world.look(after=600)
    assert world.defaults() == {"a": "off", "b": "off"}


@pytest.mark.parametrize("found", [{"a": ASKED}, "no answer within 30 s"])
async def test_a_person_has_a_flag_deleted_that_is_asked_for(found: Mapping[str, FlagRequests] | str) -> None:
    world = await guarded()
    world.metrics.found = found
    world.commit("r2", document(b=flag()))
    await world.look()
    world.annotate("flagstaff.dev/accept-revision", "main@sha1:r2")
    assert (await world.look()).ready[1] == "Succeeded"
    assert world.defaults() == {"b": "off"}


async def test_an_atomic_set_is_refused_whole() -> None:
    world = await guarded(failurePolicy="Atomic")
    world.metrics.found = {"a": ASKED}
    world.commit("r2", document(b=flag("on")))
    seen = await world.look()
    assert seen.ready[:2] == ("False", "BuildFailed")
    assert 'the deletion of "a" waits' in seen.message
    assert world.defaults() == {"a": "off", "b": "off", "c": "off"}
    world.metrics.found = {}
    assert (await world.look(after=600)).ready[1] == "Succeeded"
    assert world.defaults() == {"b": "on"}


async def test_a_flag_that_stays_is_known_to_the_next_process_and_comes_back_by_a_commit() -> None:
    world = await guarded()
    world.metrics.found = {"a": ASKED}
    world.commit("r2", document(b=flag(), c=flag()))
    await world.look()
    world.restart()
    seen = await world.look()
    assert (seen.writes, world.defaults()) == ([], {"a": "off", "b": "off", "c": "off"})
    world.commit("r3", document(a=flag("on"), b=flag(), c=flag()))
    assert (await world.look()).ready[1] == "Succeeded"
    assert world.defaults()["a"] == "on"


async def test_a_deletion_beside_a_bad_flag_waits_as_well() -> None:
    world = await guarded()
    world.metrics.found = {"a": ASKED}
    world.commit("r2", document(b=BROKEN, c=flag()))
    seen = await world.look()
    assert [held["name"] for held in seen.status["held"]] == ["a", "b"]


async def test_the_prune_guard_is_asked_first() -> None:
    world = await guarded()
    world.commit("r2", document(d=flag()))
    assert (await world.look()).ready[1] == "PruneGuard"
    assert world.metrics.asked == []


async def test_without_a_guard_nobody_is_asked() -> None:
    world = Guarded()
    world.commit("r1", document(a=flag(), b=flag()))
    world.flag_set()
    await world.look()
    world.commit("r2", document(b=flag()))
    await world.look()
    assert (world.defaults(), world.metrics.asked) == ({"b": "off"}, [])
