"""An EvaluatorUpgrade over time, in a namespace of workloads that do as a cluster's controllers do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import ObjectKey, Resource
from controller.pods.pod_injection import inject, record_now
from controller.pods.upgrade_reconciler import EvaluatorUpgradeReconciler
from controller.runtime.setbacks import Failed
from tests.statuses import find
from tests.worlds.pods import OPTIONS, Objects
from tests.worlds.stages import ready, take_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.kind import ResourceType
    from controller.runtime.result import Settled

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ASKS: Final = {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "checkout"}
NEWER: Final = replace(OPTIONS, image="example/evaluator:2")
READY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@dataclass
class InjectedWorkloads:
    """The namespace `shop`: Deployments of one pod each, injected with the options of the start."""

    names: tuple[str, ...] = ("a", "b")
    budgets: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    """Pods of nobody."""
    rolling: str = ""
    """The Deployment that is rolled out by others while we look."""
    failing: str = ""
    """The Deployment that cannot be patched."""

    def __post_init__(self) -> None:
        self.options = OPTIONS
        self.known = Objects()
        self.now = NOW
        self.status: Mapping[str, Any] = {}
        self.annotations: dict[str, str] = {}
        self.generation = 1
        self.made = 0
        self.restarted: list[str] = []
        self.listed: list[str] = []
        self.workloads = {name: self._workload(name) for name in self.names}
        self.pods = {name: [self.pod(name)] for name in self.names}

    def _workload(self, name: str) -> dict[str, Any]:
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        template = {
            "metadata": {"labels": {"app": name}, "annotations": dict(ASKS)},
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        }
        return {
            "metadata": {"name": name, "generation": 1, "resourceVersion": "1"},
            "spec": {"template": template},
            "status": {**counts, "observedGeneration": 1},
        }

    def pod(self, owner: str, **meta: Any) -> dict[str, Any]:
        """As the webhook admits it now."""
        record = record_now(ASKS, "shop", self.options, self.known)
        number = self.made
        self.made += 1
        owners = [{"kind": "ReplicaSet", "name": f"{owner}-5d4f", "controller": True}]
        return {
            "metadata": {
                "name": f"{owner}-{number}",
                "labels": {"app": owner, "pod-template-hash": "5d4f"},
                "annotations": {**ASKS, "flagstaff.dev/injected": json.dumps(record)},
                "ownerReferences": owners,
                **meta,
            },
            "status": READY,
        }

    def undo(self, name: str) -> None:
        """What `kubectl rollout undo` does before a pod is replaced, or an operator that owns it."""
        workload = self.workloads[name]
        annotations = workload["spec"]["template"]["metadata"]["annotations"]
        for each in ("flagstaff.dev/restarted-at", "flagstaff.dev/restarted-for"):
            annotations.pop(each, None)
        workload["metadata"]["generation"] += 1
        workload["status"]["observedGeneration"] = workload["metadata"]["generation"]

    def roll_out(self, name: str, status: Any = READY) -> None:
        """What the Deployment's controller and the kubelet do; `status` is the new pod's."""
        workload, made = self.workloads[name], {**self.pod(name), "status": status}
        ready = status is READY
        workload["status"] = {
            **workload["status"],
            "observedGeneration": workload["metadata"]["generation"],
            "readyReplicas": int(ready),
        }
        self.pods[name] = [made] if ready else [*self.pods[name], made]

    async def look(self, after: float = 0, **spec: Any) -> Settled:
        """Reconcile some seconds later, and keep the status."""
        self.now += timedelta(seconds=after)
        key = ObjectKey("EvaluatorUpgrade", "shop", "all")
        resource = Resource(
            key, "uid", self.generation, "1", {"pause": "1ms", **spec}, self.status, self.annotations
        )
        reconciler = EvaluatorUpgradeReconciler(self, self.known, self.options)
        settled = (await take_turn(reconciler, resource, self.now)).settled
        self.status = settled.status
        return settled

    async def each(self, type_: ResourceType, namespace: str) -> AsyncIterator[dict[str, Any]]:
        assert namespace == "shop"
        self.listed.append(type_.kind)
        pods = [*self.others, *(pod for pods in self.pods.values() for pod in pods)]
        found = {"Pod": pods, "Deployment": [*self.workloads.values()], "PodDisruptionBudget": self.budgets}
        for body in found.get(type_.kind, []):
            yield body
        if type_.kind == "Deployment" and self.rolling:
            self.roll_out(self.rolling)

    async def annotate_template(
        self, type_: ResourceType, key: ObjectKey, version: str, annotations: Mapping[str, str]
    ) -> None:
        assert (type_.kind, key.namespace) == ("Deployment", "shop")
        if key.name == self.failing:
            raise Failed("AccessDenied", "forbidden")
        workload = self.workloads[key.name]
        meta = workload["metadata"]
        assert version == meta["resourceVersion"]
        workload["spec"]["template"]["metadata"]["annotations"].update(annotations)
        meta["generation"] += 1
        meta["resourceVersion"] = str(int(version) + 1)
        self.restarted.append(key.name)


def skew(settled: Settled) -> tuple[int, int, int]:
    status = settled.status
    return status["pods"], status["current"], status["outdated"]


def restarting_workloads(settled: Settled) -> list[str]:
    return [each["workload"] for each in settled.status["restarting"]]


async def test_nothing_is_restarted_where_all_pods_are_current() -> None:
    world = InjectedWorkloads()
    settled = await world.look()
    assert skew(settled) == (2, 2, 0)
    assert ready(settled) == ("True", "Succeeded", "2 of 2 pods are current")
    assert (world.restarted, settled.events, settled.requeue_after) == ([], (), 60)


async def test_after_a_change_of_the_image_workloads_are_restarted_one_after_the_other() -> None:
    world = InjectedWorkloads()
    await world.look()
    world.options = NEWER
    # Whatever else changes at that moment has the time of a pause.
    first = await world.look(pause="10s")
    assert (skew(first), world.restarted) == ((2, 0, 2), [])
    assert ready(first)[1] == "Progressing"
    second = await world.look(10, pause="10s")
    assert world.restarted == ["a"]
    assert second.status["restarting"] == [{"workload": "Deployment/a", "at": "2026-01-02T03:04:15Z"}]
    assert [(each.reason, each.message) for each in second.events] == [
        ("Restarted", "Deployment/a restarted: 1 of its 1 pods have an older evaluator")
    ]
    assert "waiting: Deployment/b (others roll out)" in ready(second)[2]
    await world.look(5, pause="10s")
    world.roll_out("a")
    third = await world.look(5, pause="10s")
    assert [each.reason for each in third.events] == ["Upgraded"]
    await world.look(10, pause="10s")
    assert world.restarted == ["a", "b"]
    world.roll_out("b")
    last = await world.look(5, pause="10s")
    assert (skew(last), ready(last)[2]) == ((2, 2, 0), "2 of 2 pods are current")
    assert "restarting" not in last.status


async def test_a_controller_that_starts_anew_restarts_nothing_and_knows_what_rolls_out() -> None:
    world = InjectedWorkloads()
    await world.look()
    world.options = NEWER
    await world.look()
    await world.look(1)
    assert world.restarted == ["a"]
    # Its status was lost, too.
    world.status = {}
    settled = await world.look(1)
    assert (world.restarted, restarting_workloads(settled)) == (["a"], ["Deployment/a"])


async def test_a_pod_that_does_not_get_ready_halts_it_until_a_person_lets_it_go_on() -> None:
    world = InjectedWorkloads()
    world.options = NEWER
    await world.look()
    await world.look(1)
    waiting = {"name": "flagstaff-evaluator", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    world.roll_out("a", {"initContainerStatuses": [waiting]})
    halted = await world.look(600)
    assert ready(halted) == (
        "False", "Halted", "Deployment/a was restarted without success: Pod/a-2: container "
        "flagstaff-evaluator: ImagePullBackOff; put it right, then change the annotation "
        "flagstaff.dev/resume or the spec",
    )  # fmt: skip
    assert find(halted.status, "Stalled") is not None
    assert [(each.reason, each.severity) for each in halted.events] == [("Halted", "Warning")]
    world.roll_out("a")
    still = await world.look(5)
    assert (ready(still)[1], world.restarted) == ("Halted", ["a"])
    world.annotations = {"flagstaff.dev/resume": "now"}
    await world.look(5)
    assert world.restarted == ["a", "b"]


async def test_a_restart_that_is_undone_halts_it_and_is_done_again_once_for_each_resume() -> None:
    world = InjectedWorkloads(names=("a",))
    world.options = NEWER
    for number in range(20):
        await world.look(5)
        world.undo("a")
        if number == 10:
            world.annotations = {"flagstaff.dev/resume": "now"}
    assert world.restarted == ["a", "a"]
    settled = await world.look(5)
    assert "Deployment/a was restarted without success: its restart was undone" in ready(settled)[2]


async def test_another_spec_lets_it_go_on() -> None:
    world = InjectedWorkloads()
    world.options = NEWER
    await world.look()
    await world.look(1)
    assert ready(await world.look(600))[1] == "Halted"
    world.generation = 2
    world.roll_out("a")
    await world.look(5)
    await world.look(5)
    assert world.restarted == ["a", "b"]


async def test_pods_that_nothing_restarts_are_counted_and_named() -> None:
    world = InjectedWorkloads(names=("a",))
    job = [{"kind": "Job", "name": "migrate", "controller": True}]
    world.others = [world.pod("x", ownerReferences=job), world.pod("y", name="bare", ownerReferences=[])]
    world.options = NEWER
    world.roll_out("a")
    settled = await world.look()
    assert skew(settled) == (3, 1, 2)
    assert ready(settled) == (
        "True", "Succeeded", "1 of 3 pods are current; left alone: Job/migrate (1 outdated, which nothing "
        "restarts), Pod/bare (1 outdated, which nothing restarts)",
    )  # fmt: skip


async def test_a_pause_is_made_though_some_outdated_pod_is_never_restarted() -> None:
    world = InjectedWorkloads()
    job = [{"kind": "Job", "name": "migrate", "controller": True}]
    world.others = [world.pod("x", ownerReferences=job)]
    world.options = NEWER
    world.roll_out("a")
    world.roll_out("b")
    assert skew(await world.look(pause="10m")) == (3, 2, 1)
    world.options = replace(OPTIONS, image="example/evaluator:3")
    await world.look(7200, pause="10m")
    await world.look(599, pause="10m")
    assert world.restarted == []
    await world.look(1, pause="10m")
    assert world.restarted == ["a"]


async def test_only_pods_that_are_selected_count() -> None:
    world = InjectedWorkloads()
    world.options = NEWER
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "b"}}}
    assert skew(await world.look(**spec)) == (1, 0, 1)
    await world.look(1, **spec)
    assert world.restarted == ["b"]


async def test_a_budget_is_waited_for() -> None:
    budget = {
        "metadata": {"name": "web", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
    }
    world = InjectedWorkloads(budgets=[budget])
    world.options = NEWER
    await world.look()
    settled = await world.look(1)
    assert world.restarted == ["b"]
    assert "Deployment/a (PodDisruptionBudget web allows 0 disruptions)" in ready(settled)[2]


async def test_a_workload_whose_pods_would_be_refused_keeps_those_that_it_has() -> None:
    class Lost(Objects):
        def flag_set(self, *_: Any, **__: Any) -> Any:
            return Objects().refer("shop", ["FlagSet"], "shop", "checkout")

    world = InjectedWorkloads(names=("a",))
    world.options, world.known = NEWER, Lost()
    await world.look()
    settled = await world.look(1)
    assert (world.restarted, skew(settled)) == ([], (1, 0, 0))
    assert "left alone: Deployment/a (its pods would be refused: " in ready(settled)[2]


async def test_a_template_that_would_be_refused_is_left_alone() -> None:
    world = InjectedWorkloads(names=("a",))
    world.options = NEWER
    template = world.workloads["a"]["spec"]["template"]
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 8013}]
    await world.look()
    settled = await world.look(1)
    assert (world.restarted, skew(settled)) == ([], (1, 0, 1))
    assert "uses port 8013" in ready(settled)[2]


async def test_a_template_that_was_injected_offline_is_left_alone_and_halts_nothing() -> None:
    world = InjectedWorkloads()
    template = world.workloads["a"]["spec"]["template"]
    changes = inject(template, "shop", OPTIONS, world.known)
    assert changes is not None
    template.update(changes.after)
    world.options = NEWER
    await world.look()
    await world.look(1)
    assert world.restarted == ["b"]
    world.roll_out("b")
    settled = await world.look(600)
    assert ready(settled) == (
        "True", "Succeeded", "1 of 2 pods are current; left alone: Deployment/a (its template holds the "
        "evaluator; inject it again)",
    )  # fmt: skip


async def test_one_that_would_be_refused_is_asked_for_the_next_in_its_place() -> None:
    world = InjectedWorkloads(names=tuple("abcdefgh"))
    world.options = NEWER
    for name in "abcdef":
        template = world.workloads[name]["spec"]["template"]
        template["spec"]["containers"][0]["ports"] = [{"containerPort": 8013}]
    await world.look(maxConcurrent=2)
    settled = await world.look(1, maxConcurrent=2)
    assert world.restarted == ["g", "h"]
    assert "and 1 more" in ready(settled)[2]


async def test_a_look_at_many_workloads_leaves_the_event_loop_to_others() -> None:
    class Counting(Objects):
        asked = 0

        def flag_set(self, *given: Any, **more: Any) -> Any:
            self.asked += 1
            return super().flag_set(*given, **more)

    async def count() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    world = InjectedWorkloads(names=tuple(f"w{number:03}" for number in range(500)))
    world.known = known = Counting()
    world.options = NEWER
    await world.look()
    turns: list[None] = []
    world.listed, known.asked = [], 0
    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    await world.look(1)
    counting.cancel()
    assert world.restarted == ["w000"]
    assert len(turns) >= 30
    # Workloads before pods: what has changed since is not restarted.
    assert world.listed == ["PodDisruptionBudget", "Deployment", "StatefulSet", "DaemonSet", "Pod"]
    # For the pods, which ask for the same, and for the one that is restarted.
    assert known.asked == 2


async def test_what_others_rolled_out_meanwhile_is_not_restarted() -> None:
    world = InjectedWorkloads(rolling="a")
    world.options = NEWER
    await world.look()
    settled = await world.look(1)
    assert (world.restarted, skew(settled)) == (["b"], (2, 1, 1))


async def test_what_was_restarted_before_a_write_failed_is_kept() -> None:
    world = InjectedWorkloads(failing="b")
    world.options = NEWER
    await world.look(maxConcurrent=2)
    settled = await world.look(1, maxConcurrent=2)
    assert (world.restarted, settled.retry) == (["a"], True)
    assert ready(settled)[1] == "AccessDenied"
    assert restarting_workloads(settled) == ["Deployment/a"]
    assert "Restarted" in [each.reason for each in settled.events]


async def test_the_canary_is_kept_in_the_status() -> None:
    world = InjectedWorkloads()
    world.options = NEWER
    spec: dict[str, Any] = {"canary": {"soak": "5m", "workloadRef": {"kind": "Deployment", "name": "b"}}}
    await world.look(**spec)
    await world.look(1, **spec)
    assert world.restarted == ["b"]
    world.roll_out("b")
    settled = await world.look(60, **spec)
    assert settled.status["canary"] == {"workload": "Deployment/b", "readyAt": "2026-01-02T03:05:06Z"}
    await world.look(299, **spec)
    assert world.restarted == ["b"]
    settled = await world.look(1, **spec)
    assert world.restarted == ["b", "a"]
    assert settled.status["canary"]["passed"] is True
    settled = await world.look(5, **spec)
    assert settled.status["canary"]["passed"] is True


async def test_a_spec_that_cannot_be_read_stalls() -> None:
    status, reason, message = ready(await InjectedWorkloads().look(pause="soon"))
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.pause" in message
