"""The FeatureFlagConfigurations of marked workloads: written, kept, and removed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from controller.api.kinds import FLAG_CARRIERS
from controller.api.meta import ObjectKey
from controller.pods.installation import APPLIED, DIRECT_SET, FLAGS
from controller.pods.marked_workloads import MANAGER, MarkedWorkloads
from controller.pods.set_writer import RETRY_SECONDS, DirectSets
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Failed, Passing
from tests.clock import Clock
from tests.waiting import run_until
from tests.worlds.flags import flags
from tests.worlds.objects import NAMESPACE, workload
from tests.worlds.stages import RecordingCluster, Sink

KIND = "FeatureFlagConfiguration"
CHECKOUT = f"{KIND}/checkout"
BY_ALICE = json.dumps({"by": "alice", "at": "2026-01-01T00:00:00Z", "added": []})


def carrying(text: str, kind: str = "Deployment", *, uid: str = "w-1", **metadata: Any) -> dict[str, Any]:
    """A workload that admission has marked."""
    marks = {FLAGS: text, APPLIED: BY_ALICE}
    given = {"namespace": NAMESPACE, "uid": uid, "generation": 3, "labels": {DIRECT_SET: "true"}, **metadata}
    return workload(kind, marks, **given)


WITHOUT = workload(namespace=NAMESPACE, uid="w-1", generation=3, labels={})
"""It carries flags no longer, and has no mark."""


@dataclass
class MarkedCluster:
    """Workloads, and the objects that are made of them."""

    sink: Sink = field(default_factory=Sink)
    authors: bool = True

    def __post_init__(self) -> None:
        self.cluster = RecordingCluster()
        self.clock = Clock()
        self.bodies: dict[ObjectKey, dict[str, Any]] = {}
        queue: KeyedQueue[ObjectKey] = KeyedQueue(self.clock, lambda: 0.0)
        self.workloads = MarkedWorkloads([""], queue.put, authors=self.authors)
        self.sets = DirectSets(
            self.cluster.objects,
            self,
            lambda _: self.cluster,
            lambda _: None,
            [self.sink],
            lambda: datetime(2026, 1, 2, tzinfo=UTC),
            queue,
            self.workloads,
        )
        self.cluster.objects.react(self.sets.on_change)

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert api_version == ("batch/v1" if kind.endswith("Job") else "apps/v1")
        return self.bodies.get(ObjectKey(kind, namespace, name))

    def apply(self, body: dict[str, Any]) -> None:
        """What a user applies, as the watch of marked workloads reports it."""
        kind, name = body["kind"], body["metadata"]["name"]
        self.bodies[ObjectKey(kind, NAMESPACE, name)] = body
        if DIRECT_SET in body["metadata"]["labels"]:
            self.workloads.informer.learn(kind, {name: part for name, part in body.items() if name != "kind"})
        else:
            self.workloads.informer.forget(ObjectKey(kind, NAMESPACE, name))

    def delete(self, kind: str = "Deployment", name: str = "checkout") -> None:
        self.bodies.pop(ObjectKey(kind, NAMESPACE, name), None)
        self.workloads.informer.forget(ObjectKey(kind, NAMESPACE, name))

    def list_all(self) -> None:
        for type_ in FLAG_CARRIERS:
            self.workloads.informer.end_listing(type_.kind, "")

    async def settle(self, seconds: float = 0.0) -> list[str]:
        """The writes, once all that is due then was worked on."""
        self.clock.now += seconds
        self.list_all()
        await run_until(self.sets.run(), lambda: not self.sets.queue.busy)
        return self.cluster.take_writes()

    @property
    def defaults(self) -> dict[str, str]:
        served = self.cluster.the(KIND, "checkout").spec["flagSpec"]["flags"]
        return {key: flag["defaultVariant"] for key, flag in served.items()}


async def test_flags_are_written_with_owner_and_provenance() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    assert await world.settle() == [f"apply {CHECKOUT}"]
    made = world.cluster.the(KIND, "checkout")
    assert (world.cluster.managers, world.defaults) == ({MANAGER}, {"banner": "on"})
    (owner,) = made.owners
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "checkout",
        "uid": "w-1",
        "blockOwnerDeletion": False,
    }
    metadata = made.spec["flagSpec"]["metadata"]
    assert metadata["flagstaff.dev/revision"].startswith("Deployment/checkout@sha256:")
    assert metadata["flagstaff.dev/author"] == made.annotations["flagstaff.dev/author"] == "alice"
    assert made.annotations["flagstaff.dev/observed-at"] == "2026-01-01T00:00:00Z"
    assert made.annotations["flagstaff.dev/workload-generation"] == "3"
    assert world.sink.take() == [
        ("FlagsWritten", f"{KIND} checkout has 1 flag of the annotation, applied by alice")
    ]


async def test_without_authors_no_user_is_named() -> None:
    world = MarkedCluster(authors=False)
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    made = world.cluster.the(KIND, "checkout")
    assert "alice" not in f"{made}{world.sink.take()}"
    assert made.annotations["flagstaff.dev/committed-at"] == "2026-01-01T00:00:00Z"


async def test_what_is_as_it_should_be_is_not_written_again() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.apply(carrying(flags(banner="on"), generation=4))
    assert await world.settle() == []
    assert await world.settle(RETRY_SECONDS) == []


async def test_changed_annotation_changes_the_object() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.apply(carrying(flags(banner="off"), generation=4))
    assert await world.settle() == [f"apply {CHECKOUT}"]
    assert world.defaults == {"banner": "off"}
    assert world.cluster.the(KIND, "checkout").annotations["flagstaff.dev/workload-generation"] == "4"


async def test_change_by_hand_is_corrected() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.cluster.edit(KIND, "checkout", flagSpec=json.loads(flags(banner="off")))
    assert await world.settle() == [f"apply {CHECKOUT}"]
    assert world.defaults == {"banner": "on"}
    world.cluster.remove(KIND, "checkout")
    assert await world.settle() == [f"apply {CHECKOUT}"]


async def test_removed_annotation_removes_the_object() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.sink.take()
    world.apply(WITHOUT)
    assert await world.settle() == [f"delete {CHECKOUT}"]
    assert [reason for reason, _ in world.sink.take()] == ["FlagsRemoved"]


async def test_annotation_that_is_removed_while_no_controller_runs_removes_the_object() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    made = world.cluster.the(KIND, "checkout")
    later = MarkedCluster()
    later.cluster.objects.learn(made)
    later.bodies[ObjectKey("Deployment", NAMESPACE, "checkout")] = WITHOUT
    assert await later.settle() == [f"delete {CHECKOUT}"]


async def test_object_of_a_deleted_workload_is_left_to_kubernetes() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.delete()
    assert await world.settle() == []


async def test_object_of_an_earlier_workload_of_the_name_is_taken_over() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.delete()
    world.apply(carrying(flags(banner="on"), uid="w-2"))
    assert await world.settle() == [f"apply {CHECKOUT}"]
    assert [owner["uid"] for owner in world.cluster.the(KIND, "checkout").owners] == ["w-2"]


async def test_workload_that_is_being_deleted_is_given_nothing() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on"), deletionTimestamp="2026-01-01T00:00:00Z"))
    assert await world.settle() == []


async def test_name_of_another_object_is_reported_once_and_taken_when_it_is_free() -> None:
    world = MarkedCluster()
    world.cluster.put({"kind": KIND, "metadata": {"name": "checkout"}, "spec": {"flagSpec": {"flags": {}}}})
    world.apply(carrying(flags(banner="on")))
    assert await world.settle() == []
    ((reason, message),) = world.sink.take()
    assert reason == "FlagsNotWritten"
    assert "which another FeatureFlagConfiguration has already; rename one of the two" in message
    assert (await world.settle(RETRY_SECONDS), world.sink.take()) == ([], [])
    world.cluster.remove(KIND, "checkout")
    assert await world.settle() == [f"apply {CHECKOUT}"]


async def test_second_workload_of_a_name_is_reported_and_changes_nothing() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.sink.take()
    world.apply(carrying(flags(banner="off"), "StatefulSet", uid="w-2"))
    assert await world.settle() == []
    assert world.defaults == {"banner": "on"}
    ((_, message),) = world.sink.take()
    assert "which Deployment checkout with flags of its own has already" in message


async def test_bad_flags_that_got_past_admission_leave_the_last_good_ones() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.sink.take()
    world.apply(carrying('{"flags": {"banner": {}}}'))
    assert await world.settle() == []
    assert world.defaults == {"banner": "on"}
    ((reason, message),) = world.sink.take()
    assert reason == "FlagsNotWritten"
    assert message.startswith("annotation openfeature.dev/flags: line 1: $.flags.banner")


async def test_workload_that_is_marked_by_hand_without_flags_is_reported() -> None:
    world = MarkedCluster()
    body = carrying(flags(banner="on"))
    del body["metadata"]["annotations"]
    world.apply(body)
    assert await world.settle() == []
    assert world.sink.take() == [("FlagsNotWritten", "it carries no flags; remove the label")]


async def test_marked_job_of_a_cron_job_whose_record_nobody_reviewed_is_written_nothing() -> None:
    world = MarkedCluster()
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u"}
    world.apply(carrying(flags(banner="on"), "Job", ownerReferences=[owner]))
    assert await world.settle() == []
    assert world.sink.take() == [("FlagsNotWritten", "its CronJob carries the flags; remove the label")]


async def test_refused_deletion_is_reported_on_the_workload_and_tried_again() -> None:
    world = MarkedCluster()
    world.apply(carrying(flags(banner="on")))
    await world.settle()
    world.sink.take()
    world.cluster.failing[f"delete {CHECKOUT}"] = Failed("AccessDenied", "evaluators serve it")
    world.apply(WITHOUT)
    assert await world.settle() == []
    assert world.sink.take() == [("FlagsNotRemoved", "evaluators serve it")]
    world.cluster.failing.clear()
    assert await world.settle(RETRY_SECONDS) == [f"delete {CHECKOUT}"]


async def test_conflict_is_tried_again_and_not_reported() -> None:
    world = MarkedCluster()
    world.cluster.failing[f"apply {CHECKOUT}"] = Passing("ChangedMeanwhile", "changed")
    world.apply(carrying(flags(banner="on")))
    assert (await world.settle(), world.sink.take()) == ([], [])
    world.cluster.failing.clear()
    assert await world.settle(RETRY_SECONDS) == [f"apply {CHECKOUT}"]


def test_only_changes_of_the_flags_wake() -> None:
    woken: list[ObjectKey] = []
    workloads = MarkedWorkloads(["shop", "pay"], woken.append)
    workloads.informer.learn("Deployment", carrying(flags(banner="on"), resourceVersion="1"))
    workloads.informer.learn("Deployment", carrying(flags(banner="on"), resourceVersion="2", generation=9))
    assert len(woken) == 1
    workloads.informer.learn("Deployment", carrying(flags(banner="off")))
    workloads.informer.forget(ObjectKey("Deployment", NAMESPACE, "checkout"))
    workloads.informer.forget(ObjectKey("Deployment", NAMESPACE, "checkout"))
    assert len(woken) == 3


def test_workloads_are_known_once_each_kind_was_listed_in_each_namespace() -> None:
    workloads = MarkedWorkloads(["shop", "pay"], lambda _: None)
    for type_ in FLAG_CARRIERS:
        assert not workloads.has_listed
        workloads.informer.end_listing(type_.kind, "shop")
        workloads.informer.end_listing(type_.kind, "pay")
    assert workloads.has_listed
