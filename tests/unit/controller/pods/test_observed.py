"""What is read of pods, workloads and PodDisruptionBudgets as the API server has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.pods.evaluator_container import Injected
from controller.pods.restart_plan import Budget, Budgets, Pod, budget_of, pod_of, workload_of

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORD = '{"image":"evaluator:1","configuration":"c"}'
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(*owner: str, status: Any = READY, labels: Any = None, **meta: Any) -> Pod | None:
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    written = {"name": "p", "labels": labels or {}, "annotations": {"flagstaff.dev/injected": RECORD}}
    return pod_of({"metadata": {**written, "ownerReferences": owners, **meta}, "status": status})


def read_pod(*owner: str, **more: Any) -> Pod:
    read = pod(*owner, **more)
    assert read is not None
    return read


def test_a_pod_is_its_record_and_what_it_asks_for() -> None:
    annotations = {
        "flagstaff.dev/injected": RECORD, "flagstaff.dev/restarted-at": "x",
        "flagstaff.dev/restarted-for": "y", "flagstaff.dev/flags-changed": "x",
        "flagstaff.dev/flag-files": "checkout", "flagstaff.dev/flagset": "checkout",
        "openfeature.dev/enabled": "true", "other": "z",
    }  # fmt: skip
    read = read_pod(annotations=annotations)
    assert read.injected == Injected("evaluator:1", "c")
    assert read.asks == {"flagstaff.dev/flagset": "checkout", "openfeature.dev/enabled": "true"}
    assert (read.trouble, read.ready_at) == ("", None)
    since = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    assert read_pod(status={"conditions": [since]}).ready_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read_pod(status={"conditions": [{**since, "status": "False"}]}).ready_at is None


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        ((), "Pod/p"),
        (("StatefulSet", "db"), "StatefulSet/db"),
        (("Job", "migrate"), "Job/migrate"),
        (("ReplicaSet", "web-5d4f"), "Deployment/web"),
        # Of somebody who names ReplicaSets otherwise.
        (("ReplicaSet", "web"), "ReplicaSet/web"),
    ],
)
def test_a_pod_belongs_to_what_made_it(given: tuple[str, ...], owner: str) -> None:
    assert read_pod(*given, labels={"pod-template-hash": "5d4f"}).owner == owner


@pytest.mark.parametrize(
    "more",
    [{"status": {"phase": "Succeeded"}}, {"deletionTimestamp": "2026-01-02T03:04:05Z"}, {"annotations": {}}],
)
def test_pods_that_were_not_injected_or_end_do_not_count(more: dict[str, Any]) -> None:
    assert pod(**more) is None


def wait_status(reason: str) -> dict[str, Any]:
    return {"name": "flagstaff-evaluator", "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, "not ready"),
        ({"initContainerStatuses": [wait_status("PullFailed")]}, "container flagstaff-evaluator: PullFailed"),
        (
            {
                "containerStatuses": [wait_status("PodInitializing")],
                "conditions": [{"type": "PodScheduled", "status": "False",
                                "message": "0/3 nodes are available"}],
            },
            "0/3 nodes are available",
        ),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status"}]},
         "containers with unready status"),
    ],
)  # fmt: skip
def test_the_reason_why_a_pod_is_not_ready_is_shown(status: dict[str, Any], why: str) -> None:
    assert read_pod(status=status).trouble == why


DEPLOYED = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
SET: dict[str, Any] = {
    **dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), 2),
    "currentRevision": "r1", "updateRevision": "r1",
}  # fmt: skip
DAEMONS = dict.fromkeys(
    ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"), 2
)
GOOD: dict[str, dict[str, Any]] = {"Deployment": DEPLOYED, "StatefulSet": SET, "DaemonSet": DAEMONS}


def workload(
    kind: str, status: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> Any:
    seen = {"observedGeneration": 3, **status}
    meta = {"name": "web", "generation": 3, "resourceVersion": "9", "annotations": annotations or {}}
    return workload_of(kind, {"metadata": meta, "spec": {"replicas": 2, **spec}, "status": seen})


@pytest.mark.parametrize("kind", list(GOOD))
def test_a_workload_is_settled_once_all_pods_are_of_its_newest_template_and_ready(kind: str) -> None:
    assert workload(kind, GOOD[kind]).settled
    assert not workload(kind, {**GOOD[kind], "observedGeneration": 2}).settled
    for name in GOOD[kind]:
        assert not workload(kind, {**GOOD[kind], name: 1}).settled, name


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("Deployment", {}, ""),
        ("Deployment", {"paused": True}, "paused"),
        ("StatefulSet", {"updateStrategy": {"type": "RollingUpdate"}}, ""),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "OnDelete"),
        ("StatefulSet", {"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "partition"),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, "OnDelete"),
    ],
)
def test_what_its_owner_keeps_from_rolling_out_is_left_alone(kind: str, spec: Any, why: str) -> None:
    read = workload(kind, GOOD[kind], **spec)
    assert why in read.left
    assert bool(read.left) == bool(why)


def test_its_owner_pauses_it_by_an_annotation() -> None:
    assert workload("Deployment", DEPLOYED, {"flagstaff.dev/upgrade": "paused"}).left
    assert not workload("Deployment", DEPLOYED, {"flagstaff.dev/upgrade": ""}).left


def test_one_whose_template_holds_the_evaluator_is_left_alone() -> None:
    template = {"metadata": {"annotations": {"flagstaff.dev/injected": RECORD}}}
    assert "inject it again" in workload("Deployment", DEPLOYED, template=template).left


def test_a_deployment_that_recreates_its_pods_takes_all_of_them_down() -> None:
    assert workload("Deployment", DEPLOYED).at_once == 1
    assert workload("Deployment", DEPLOYED, strategy={"type": "Recreate"}).at_once == 2


def test_the_last_restart_stands_in_its_template() -> None:
    written = {"flagstaff.dev/restarted-at": "2026-01-02T03:04:05Z", "flagstaff.dev/restarted-for": "abc"}
    read = workload("Deployment", DEPLOYED, template={"metadata": {"annotations": written}})
    assert (read.restarted_for, read.restarted_at) == ("abc", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    written["flagstaff.dev/restarted-at"] = "2026-01-02T03:04:05"
    read = workload("Deployment", DEPLOYED, template={"metadata": {"annotations": written}})
    assert read.restarted_at is None, "a time without a zone is none"
    assert workload("Deployment", DEPLOYED, template={"metadata": {}}).restarted_at is None


def test_a_budget_allows_what_its_controller_says_of_it_as_it_is() -> None:
    body: dict[str, Any] = {"metadata": {"name": "b", "generation": 2}, "spec": {"selector": {}}}
    assert budget_of(body).allowed == 0
    assert budget_of({**body, "status": {"observedGeneration": 1, "disruptionsAllowed": 1}}).allowed == 0
    assert budget_of({**body, "status": {"observedGeneration": 2, "disruptionsAllowed": 1}}).allowed == 1


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))
SELECTORS = st.none() | st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.just([{"key": "a", "operator": "Exists"}])}
)


@given(st.lists(SELECTORS), LABELS)
def test_budgets_that_select_a_pod_are_those_of_all_that_do(
    selectors: list[Any], labels: dict[str, str]
) -> None:
    budgets = [Budget(str(number), selector, 0) for number, selector in enumerate(selectors)]
    found = sorted(each.name for each in Budgets(budgets).budgets_for(labels))
    assert found == sorted(each.name for each in budgets if each.selects(labels))


def test_of_many_budgets_only_those_with_a_label_of_the_pod_are_asked() -> None:
    class Asked(Budget):
        def selects(self, labels: Mapping[str, str]) -> bool:
            asked.append(self.name)
            return super().selects(labels)

    asked: list[str] = []
    labels = [{"shop": "all", "app": str(number)} for number in range(100)]
    budgets = Budgets([Asked(each["app"], {"matchLabels": each}, 0) for each in labels])
    assert [each.name for each in budgets.budgets_for({"app": "7", "shop": "all"})] == ["7"]
    assert asked == ["7"]


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_budget_selects_as_kubernetes_does(selector: Any, *, selects: bool) -> None:
    assert Budget("b", selector, 0).selects({"app": "web"}) == selects
