"""Which workloads are restarted next for a newer evaluator, from pods, workloads and PodDisruptionBudgets.
Pure.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.evaluatorupgrade import CanaryStatus, EvaluatorUpgradeStatus, HaltStatus, RestartStatus
from controller.api.kinds import DAEMON_SET, DEPLOYMENT, STATEFUL_SET
from controller.api.meta import RESUME, Resource
from controller.api.status import FALSE, READY, TRUE
from controller.delivery.standing_orders import PREFIX, workload_of_pod
from controller.pods import installation
from controller.pods.evaluator_container import Injected, read_record
from controller.runtime.plain_text import json_object
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


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
    injected = read_record(annotations.get(installation.INJECTED))
    if injected is None or meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    asks = {
        name: text
        for name, text in annotations.items()
        if name.startswith((installation.PREFIX, "openfeature.dev/")) and name not in installation.WRITTEN
    }
    labels = meta.get("labels") or {}
    ready = _conditions(status).get(READY, {})
    since = parse_time(ready.get("lastTransitionTime")) if ready.get("status") == TRUE else None
    record = json_object(annotations.get(installation.INJECTED, "")) or {}
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
        restarted_for=str(written.get(installation.RESTARTED_FOR, "")),
        restarted_at=parse_time(written.get(installation.RESTARTED_AT)),
    )


def budget_of(body: Mapping[str, Any]) -> Budget:
    """Return a PodDisruptionBudget; it allows nothing until its controller has observed its generation."""
    meta, status = body["metadata"], body.get("status") or {}
    seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    allowed = int(status.get("disruptionsAllowed", 0)) if seen else 0
    return Budget(meta["name"], (body.get("spec") or {}).get("selector"), allowed)


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
    if installation.INJECTED in written:
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


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """A workload with its injected pods."""

    workload: Workload
    pods: int
    outdated: int
    target: str
    """Digest of what injection would give to all of its pods now."""
    budgets: tuple[Budget, ...] = ()
    """The PodDisruptionBudgets that select one of its pods."""
    left: str = ""
    """Why it is not to be restarted; empty: it may be."""
    trouble: str = ""
    """A pod that is not ready, and why."""
    progressed_at: datetime | None = None
    """Time at which the last of its current pods became ready."""

    @property
    def name(self) -> str:
        """`Kind/name`."""
        return self.workload.name

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.workload.settled and not self.outdated

    @property
    def was_restarted(self) -> bool:
        """Whether it was restarted for its current target."""
        return self.workload.restarted_for == self.target and self.workload.restarted_at is not None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The pace of restarts, of the user's spec."""

    max_concurrent: int = 1
    pause: timedelta = timedelta()
    deadline: timedelta = timedelta(minutes=10)
    """Most time from a restart, or from one ready pod, to the next ready pod."""
    soak: timedelta | None = None
    """Time for which the canary is observed; None: there is no canary."""
    canary: str = ""
    """`Kind/name`; empty: the one with the fewest pods."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The reason for which restarts are halted."""

    workload: str
    message: str


@dataclass(frozen=True, slots=True)
class UpgradeProgress:
    """The progress that the status keeps between two reconciles."""

    restarting: Mapping[str, datetime] = field(default_factory=dict)
    """Time of each running restart."""
    canary: str = ""
    canary_ready_at: datetime | None = None
    canary_passed: bool = False
    """Whether it stayed ready for its time. Later changes to it, such as by an autoscaler, stop nothing."""
    pause_since: datetime | None = None
    """Time of the last finished restart, or of the last new reason to restart."""
    targets: str = ""
    """Digest of the pod templates that pending restarts will produce; empty: there is none."""
    resumed_at: datetime | None = None
    halt: Halt | None = None

    def was_resumed_after(self, time: datetime) -> bool:
        """Whether a person resumed it since."""
        return self.resumed_at is not None and self.resumed_at > time


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """The next actions."""

    progress: UpgradeProgress
    restart: tuple[WorkloadState, ...] = ()
    finished: tuple[str, ...] = ()
    """The workloads that were restarting and are rolled out now."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Outdated workloads that are restarted later, with the reason for waiting."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Outdated workloads that are not restarted, with the reason."""

    def after(self, restarted: Iterable[WorkloadState]) -> UpgradeProgress:
        """Return the progress if only these of `restart` could be restarted."""
        failed = {state.name for state in self.restart} - {state.name for state in restarted}
        restarting = {name: at for name, at in self.progress.restarting.items() if name not in failed}
        return replace(self.progress, restarting=restarting)


def plan(
    states: Sequence[WorkloadState], policy: RestartPolicy, before: UpgradeProgress, now: datetime
) -> UpgradeStep:
    """Return the next step; its workloads count as restarting from now on."""
    by_name = {state.name: state for state in states}
    going = {state.name: state for state in states if _is_restarting(state, policy, before, now)}
    finished = tuple(
        sorted(name for name in before.restarting if name in by_name and by_name[name].is_complete)
    )
    progress = replace(
        before,
        restarting={
            name: at for name, state in going.items() if (at := state.workload.restarted_at) is not None
        },
        targets=_targets(states, going),
    )
    if finished or progress.targets not in ("", before.targets):
        # Whatever else is about to change, such as other replicas of ours, has the time of a pause.
        progress = replace(progress, pause_since=now)
    left, pending = _divide(states, going)
    if progress.halt is None:
        progress = replace(progress, halt=_find_undone(by_name, before) or _halt(going, policy, before, now))
    if progress.halt is not None:
        return UpgradeStep(progress, (), finished, dict.fromkeys(pending, "until it continues"), left)
    if not pending and not going:
        # The next time there may be another canary.
        return UpgradeStep(_without_canary(progress), (), finished, {}, left)
    waiting, able = _find_restartable(pending, going)
    progress, free, why = _after_canary(progress, policy, by_name, able, now)
    if free and progress.pause_since is not None and now - progress.pause_since < policy.pause:
        free, why = {}, "the pause between two restarts"
    chosen = tuple(_choose(free, going, policy))
    names = {state.name: now for state in chosen}
    held = {name: why or "others roll out" for name in pending if name not in names}
    progress = replace(progress, restarting={**progress.restarting, **names})
    return UpgradeStep(progress, chosen, finished, held | waiting, left)


def _is_restarting(
    state: WorkloadState, policy: RestartPolicy, before: UpgradeProgress, now: datetime
) -> bool:
    """Return whether a restart of ours is in progress. Failures long after a restart do not count."""
    at = state.workload.restarted_at
    if state.is_complete or at is None:
        return False
    if before.canary_passed and state.name == before.canary and not state.outdated:
        return False
    recent = now - at < policy.deadline
    known = recent or state.name in before.restarting
    if state.workload.left:
        # Its owner excluded it: it halts nothing.
        return recent and not state.workload.settled
    if not state.workload.settled:
        return known
    # The mark may be of long ago, and its pods others by now. A person may want it to be tried once more.
    return state.was_restarted and known and not before.was_resumed_after(at)


def _targets(states: Iterable[WorkloadState], going: Mapping[str, WorkloadState]) -> str:
    # Of one that would be refused, too: that is known only after the pause.
    pending = {state.target for state in states if state.outdated and not state.workload.left}
    targets = pending | {state.workload.restarted_for for state in going.values()}
    return hashlib.sha256("\n".join(sorted(targets)).encode()).hexdigest()[:16] if targets else ""


def _divide(
    states: Sequence[WorkloadState], going: Mapping[str, WorkloadState]
) -> tuple[dict[str, str], dict[str, WorkloadState]]:
    """(outdated workloads that are left alone, with why; those that are still to be restarted)."""
    left, pending = {}, {}
    for state in sorted(states, key=lambda state: state.name):
        if not state.outdated or state.name in going:
            continue
        if state.left:
            left[state.name] = state.left
        else:
            pending[state.name] = state
    return left, pending


def _find_undone(states: Mapping[str, WorkloadState], before: UpgradeProgress) -> Halt | None:
    """Halt at a workload whose restart mark another party removed: restarts could repeat for ever."""
    for name, at in sorted(before.restarting.items()):
        state = states.get(name)
        if state is None or not state.outdated or state.workload.left:
            continue
        mark = state.workload.restarted_at
        if (mark is None or mark < at) and not before.was_resumed_after(at):
            return Halt(name, "its restart was undone")
    return None


def _halt(
    going: Mapping[str, WorkloadState], policy: RestartPolicy, before: UpgradeProgress, now: datetime
) -> Halt | None:
    for name, state in sorted(going.items()):
        times = (state.workload.restarted_at, state.progressed_at, before.resumed_at)
        if now - max(time for time in times if time is not None) >= policy.deadline:
            why = state.trouble or (
                "its pods are outdated" if state.workload.settled else "it is not rolled out"
            )
            return Halt(name, why)
    return None


def _find_restartable(
    pending: Mapping[str, WorkloadState], going: Mapping[str, WorkloadState]
) -> tuple[dict[str, str], dict[str, WorkloadState]]:
    """(those that cannot be restarted now, with why; the others)."""
    waiting, free = {}, {}
    for name, state in pending.items():
        short = next((one for one in state.budgets if not _allows(one, state, going.values())), None)
        if not state.workload.settled:
            waiting[name] = "it is not rolled out" + (f": {state.trouble}" if state.trouble else "")
        elif short is not None:
            waiting[name] = f"PodDisruptionBudget {short.name} allows {short.allowed} disruptions"
        else:
            free[name] = state
    return waiting, free


def _allows(budget: Budget, state: WorkloadState, others: Iterable[WorkloadState]) -> bool:
    """Whether the budget has room in addition to the current rollouts."""
    taken = sum(
        other.workload.at_once for other in others if budget.name in {one.name for one in other.budgets}
    )
    return budget.allowed - taken >= state.workload.at_once


def _after_canary(
    progress: UpgradeProgress,
    policy: RestartPolicy,
    states: Mapping[str, WorkloadState],
    free: Mapping[str, WorkloadState],
    now: datetime,
) -> tuple[UpgradeProgress, Mapping[str, WorkloadState], str]:
    """Return (canary's progress, workloads of `free` to restart, reason for which the others wait)."""
    if policy.soak is None:
        return _without_canary(progress), free, ""
    name = policy.canary or progress.canary
    canary = states.get(name)
    if not policy.canary and (canary is None or (canary.outdated and canary.left)):
        name = min(free, key=lambda candidate: (free[candidate].pods, candidate), default="")
        canary = states.get(name)
    if name != progress.canary:
        progress = replace(_without_canary(progress), canary=name)
    if canary is None:
        return progress, {}, f"the canary {name} has no injected pod" if name else "a canary"
    if progress.canary_passed and not canary.outdated:
        return progress, free, ""
    if not canary.is_complete:
        progress = replace(_without_canary(progress), canary=name)
        return progress, {name: canary} if name in free else {}, f"the canary {name}"
    since = progress.canary_ready_at or now
    progress = replace(progress, canary_ready_at=since)
    if now - since < policy.soak:
        return progress, {}, f"the canary {name} to stay ready"
    return replace(progress, canary_passed=True), free, ""


def _without_canary(progress: UpgradeProgress) -> UpgradeProgress:
    return replace(progress, canary="", canary_ready_at=None, canary_passed=False)


def _choose(
    free: Mapping[str, WorkloadState], going: Mapping[str, WorkloadState], policy: RestartPolicy
) -> Iterator[WorkloadState]:
    """Return as many as may roll out at a time, by name."""
    taken = dict(going)
    for name, state in free.items():
        if len(taken) >= policy.max_concurrent:
            return
        if all(_allows(budget, state, taken.values()) for budget in state.budgets):
            taken[name] = state
            yield state


_NAMED: Final = 5
"""Most workloads of each sort in a message."""


def progress_of(resource: Resource, now: datetime) -> UpgradeProgress:
    """Read the progress. A changed spec or annotation value resumes a halted upgrade."""
    # What cannot be read is begun anew, from the marks on the workloads.
    status = EvaluatorUpgradeStatus.of(resource)
    canary, halted = status.canary or CanaryStatus(), status.halted
    resumed_at, halt = parse_time(status.resumed_at), None
    if halted is not None:
        asked = resource.annotations.get(RESUME, "")
        if halted.generation != resource.generation or asked not in ("", halted.request):
            resumed_at = now
        else:
            halt = Halt(halted.workload, halted.message)
    return UpgradeProgress(
        {entry.workload: at for entry in status.restarting or () if (at := parse_time(entry.at)) is not None},
        canary.workload,
        parse_time(canary.ready_at),
        canary.passed,
        parse_time(status.paused_since),
        status.targets or "",
        resumed_at,
        halt,
    )


def fields_of(resource: Resource, progress: UpgradeProgress) -> EvaluatorUpgradeStatus:
    """Return the fields of the status; None for an absent one."""
    restarting = [
        RestartStatus(workload=name, at=timestamp(at)) for name, at in sorted(progress.restarting.items())
    ]
    canary = CanaryStatus(
        workload=progress.canary, ready_at=_timestamp(progress.canary_ready_at), passed=progress.canary_passed
    )
    halted: HaltStatus | None = None
    if progress.halt is not None:
        halted = HaltStatus(
            workload=progress.halt.workload,
            message=progress.halt.message,
            generation=resource.generation,
            request=resource.annotations.get(RESUME, ""),
        )
    return EvaluatorUpgradeStatus(
        restarting=tuple(restarting) or None,
        canary=canary if progress.canary else None,
        halted=halted,
        paused_since=_timestamp(progress.pause_since),
        targets=progress.targets or None,
        resumed_at=_timestamp(progress.resumed_at),
    )


def list_reasons(heading: str, named: Mapping[str, str]) -> str:
    """`what: Kind/name (why), …`, or nothing."""
    if not named:
        return ""
    shown = [f"{name} ({why})" for name, why in sorted(named.items())]
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"; {heading}: {', '.join(shown[:_NAMED])}{more}"


def _timestamp(time: datetime | None) -> str | None:
    return None if time is None else timestamp(time)
