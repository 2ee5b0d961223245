"""Pods, workloads and PodDisruptionBudgets, reduced to what restarts need. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import DAEMON_SET, DEPLOYMENT, STATEFUL_SET
from controller.api.objects.conditions import FALSE, READY, TRUE
from controller.delivery.standing_orders import PREFIX, workload_of_pod
from controller.pods.injection.addition import Injected, read_record
from controller.pods.settings import well_known
from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

UPGRADE: Final = "flagstaff.dev/upgrade"
"""The annotation of a workload, not of its template, by which its owner keeps it from being restarted."""
PAUSED: Final = "paused"
_COUNTS: Final = {
    DEPLOYMENT.kind: ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
    STATEFUL_SET.kind: ("replicas", "readyReplicas", "availableReplicas"),
    DAEMON_SET.kind: ("updatedNumberScheduled", "numberReady", "numberAvailable"),
}
"""Fields of a workload's status that equal its number of pods once it is rolled out."""


@dataclass(frozen=True, slots=True)
class Pod:
    """An injected pod that runs or will run."""

    name: str
    labels: Mapping[str, str]
    asks: Mapping[str, str]
    """The annotations that injection reads."""
    injected: Injected
    orders: str
    """The selector of its standing orders; empty: it follows none."""
    owner: str
    """`Kind/name` of the workload or other owner; of the pod itself without an owner."""
    trouble: str
    """Why it is not ready; empty while it is."""
    ready_at: datetime | None
    """Time since which it is ready."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment, StatefulSet or DaemonSet."""

    name: str
    """`Kind/name`."""
    version: str
    template: Mapping[str, Any]
    settled: bool
    """Whether all of its pods are of the newest template, and ready."""
    left: str
    """Why it is not to be restarted; empty: it may be."""
    at_once: int
    """Pods that a rollout stops before their successors are ready: one, or all of them."""
    restarted_for: str
    """The target of our last restart; empty: none."""
    restarted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    name: str
    selector: Mapping[str, Any] | None
    allowed: int
    """Disruptions that it allows now."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels."""
        if self.selector is None:
            return False
        exact = self.selector.get("matchLabels") or {}
        expressions = self.selector.get("matchExpressions") or ()
        return exact.items() <= labels.items() and all(
            _meets(expression, labels) for expression in expressions
        )


class Budgets:
    """PodDisruptionBudgets, indexed by a label that each selects, since a namespace may have many."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        exact = [(budget, ((budget.selector or {}).get("matchLabels") or {}).items()) for budget in budgets]
        often = Counter(label for _, labels in exact for label in labels)
        self._by_label: dict[tuple[str, str] | None, list[Budget]] = defaultdict(list)
        for budget, labels in exact:
            self._by_label[min(labels, key=often.__getitem__, default=None)].append(budget)

    def budgets_for(self, labels: Mapping[str, str]) -> Iterator[Budget]:
        """Return those that select a pod with these labels."""
        for label in (None, *labels.items()):
            yield from (budget for budget in self._by_label.get(label, ()) if budget.selects(labels))


def pod_of(body: Mapping[str, Any]) -> Pod | None:
    """Return a pod; None if it was not injected, has ended or is ending."""
    meta, status = body["metadata"], body.get("status") or {}
    annotations = meta.get("annotations") or {}
    injected = read_record(annotations.get(well_known.INJECTED))
    if injected is None or meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    asks = {
        name: text
        for name, text in annotations.items()
        if name.startswith((well_known.PREFIX, "openfeature.dev/")) and name not in well_known.WRITTEN
    }
    labels = meta.get("labels") or {}
    ready = _conditions(status).get(READY, {})
    since = moment(ready.get("lastTransitionTime")) if ready.get("status") == TRUE else None
    record = json_object(annotations.get(well_known.INJECTED, "")) or {}
    first = str(record.get("flagSet", "")).partition(",")[0]
    orders = first if first.startswith(PREFIX) else ""
    return Pod(meta["name"], labels, asks, injected, orders, _owner(meta), _trouble(status), since)


def workload_of(kind: str, body: Mapping[str, Any]) -> Workload:
    """Return a workload of one of the restartable kinds."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    template = spec.get("template") or {}
    written = (template.get("metadata") or {}).get("annotations") or {}
    seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    left = "paused by its annotation" if (meta.get("annotations") or {}).get(UPGRADE) == PAUSED else ""
    recreated = kind == DEPLOYMENT.kind and (spec.get("strategy") or {}).get("type") == "Recreate"
    return Workload(
        f"{kind}/{meta['name']}",
        str(meta.get("resourceVersion", "")),
        template,
        settled=seen and _is_settled(kind, spec, status),
        left=left or _why_left(kind, spec, written),
        at_once=int(spec.get("replicas", 1)) if recreated else 1,
        restarted_for=str(written.get(well_known.RESTARTED_FOR, "")),
        restarted_at=moment(written.get(well_known.RESTARTED_AT)),
    )


def budget_of(body: Mapping[str, Any]) -> Budget:
    """Return a PodDisruptionBudget; it allows nothing until its controller has observed its generation."""
    meta, status = body["metadata"], body.get("status") or {}
    seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    allowed = int(status.get("disruptionsAllowed", 0)) if seen else 0
    return Budget(meta["name"], (body.get("spec") or {}).get("selector"), allowed)


def moment(text: object) -> datetime | None:
    """Parse a time of Kubernetes; None for anything else."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    # A time without a zone was not written by us.
    return time if time is None or time.tzinfo else time.replace(tzinfo=UTC)


def _owner(meta: Mapping[str, Any]) -> str:
    kind, name = workload_of_pod(meta)
    return f"{kind}/{name}" if kind else f"Pod/{meta['name']}"


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


def _trouble(status: Mapping[str, Any]) -> str:
    conditions = _conditions(status)
    if conditions.get(READY, {}).get("status") == TRUE:
        return ""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"container {container['name']}: {waiting['reason']}"
    for condition in ("PodScheduled", READY):
        if conditions.get(condition, {}).get("status") == FALSE and conditions[condition].get("message"):
            return str(conditions[condition]["message"])
    return "not ready"


def _is_settled(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    if kind == STATEFUL_SET.kind and status.get("updateRevision") != status.get("currentRevision"):
        return False
    wanted = status.get("desiredNumberScheduled", 0) if kind == DAEMON_SET.kind else spec.get("replicas", 1)
    return {status.get(name, 0) for name in _COUNTS[kind]} == {wanted}


def _why_left(kind: str, spec: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    if well_known.INJECTED in written:
        # By `flagstaff inject`: the webhook leaves it as it is.
        return "its template holds the evaluator; inject it again"
    if spec.get("paused"):
        return "its rollouts are paused"
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return "its update strategy is OnDelete"
    if kind == STATEFUL_SET.kind and (strategy.get("rollingUpdate") or {}).get("partition"):
        return "its update strategy has a partition"
    return ""


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    among = labels.get(key) in values
    return among if operator == "In" else not among
