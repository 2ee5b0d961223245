"""EvaluatorUpgrade: counts pods with an older evaluator, and restarts their workloads one after the other."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from controller.api.evaluatorupgrade import EvaluatorUpgradeSpec, EvaluatorUpgradeStatus
from controller.api.kinds import DISRUPTION_BUDGET, POD, RESTARTED
from controller.api.meta import RESUME, ObjectKey, Resource
from controller.pods import installation
from controller.pods.evaluator_container import Injected, read_injected
from controller.pods.installation import Known, Options, PodRefused
from controller.pods.pod_injection import inject, record_now
from controller.pods.restart_plan import (
    Budgets,
    Pod,
    RestartPolicy,
    UpgradeProgress,
    UpgradeStep,
    Workload,
    WorkloadState,
    budget_of,
    fields_of,
    list_reasons,
    plan,
    pod_of,
    progress_of,
    workload_of,
)
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from datetime import datetime

    from controller.api.kind import ResourceType


_TYPES: Final = {type_.kind: type_ for type_ in RESTARTED}


class Restarts(Protocol):
    """Port to the cluster. Every method raises a Setback."""

    def each(self, type_: ResourceType, namespace: str) -> AsyncIterator[dict[str, Any]]:
        """List all objects of a kind in a namespace."""

    async def annotate_template(
        self, type_: ResourceType, key: ObjectKey, version: str, annotations: Mapping[str, str]
    ) -> None:
        """Annotate the pods' template of a workload that is still at this resourceVersion."""


@dataclass(frozen=True, slots=True)
class _Pods:
    """The selected pods, and what injection would give each now."""

    all: tuple[Pod, ...]
    due: Mapping[str, Injected | str]
    """Injection by the pod's name; a text is the reason for refusing it."""

    @property
    def outdated_pods(self) -> list[Pod]:
        """Pods that would get something else; unknown for those that would be refused."""
        return [pod for pod in self.all if self.is_outdated(pod)]

    def is_outdated(self, pod: Pod) -> bool:
        """Whether the pod would get something else."""
        wanted = self.due[pod.name]
        return isinstance(wanted, Injected) and wanted != pod.injected


_Found: TypeAlias = "tuple[list[Workload], Budgets]"


@dataclass(frozen=True, slots=True)
class EvaluatorUpgradeReconciler:
    """Restarts outdated workloads. Stateless: annotations of the workloads record the restarts."""

    cluster: Restarts
    known: Known
    options: Options

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Count, plan one step, and do it."""
        spec = spec_of(EvaluatorUpgradeSpec, resource)
        namespace, progress = resource.namespace, progress_of(resource, now)
        labels = {} if spec.selector is None else spec.selector.match_labels
        observed: _Found | None = None
        if EvaluatorUpgradeStatus.of(resource).outdated or progress.restarting or progress.halt is not None:
            observed = await self._read_workloads(namespace)
        # After workloads: one that changes from here on is not restarted for what its pods were.
        pods = await self._pods(namespace, labels)
        if pods.outdated_pods and observed is None:
            observed, pods = await self._read_workloads(namespace), await self._pods(namespace, labels)
        states = [] if observed is None else await self._states(observed, pods, labels, progress)
        step = await self._plan_step(namespace, states, _policy(spec), progress, now)
        step = replace(step, left={**_list_unowned(pods.outdated_pods), **step.left, **_list_refused(pods)})
        counts = EvaluatorUpgradeStatus(
            pods=len(pods.all),
            current=sum(pod.injected == pods.due[pod.name] for pod in pods.all),
            outdated=len(pods.outdated_pods),
        )
        restarted: list[WorkloadState] = []
        try:
            for state in step.restart:
                await self._restart(namespace, state, now)
                restarted.append(state)
        except Setback as setback:
            status = counts | fields_of(resource, step.after(restarted))
            return Result.of(setback, status=status, events=_events(step, restarted))
        return _result(resource, step, counts)

    def forget(self, key: ObjectKey) -> None:
        """Do nothing: there is no state."""

    async def _pods(self, namespace: str, labels: Mapping[str, str]) -> _Pods:
        selected: list[Pod] = []
        async for body in self.cluster.each(POD, namespace):
            pod = pod_of(body)
            if pod is not None and labels.items() <= pod.labels.items():
                selected.append(pod)
                await _turn(len(selected))
        # Pods of one template ask for the same: it is computed once.
        answers: dict[tuple[str, tuple[tuple[str, str], ...]], Injected | str] = {}
        wanted = {}
        for number, pod in enumerate(selected):
            await _turn(number)
            asks = pod.orders, tuple(sorted(pod.asks.items()))
            if asks not in answers:
                answers[asks] = self._record_now(pod, namespace)
            wanted[pod.name] = answers[asks]
        return _Pods(tuple(selected), wanted)

    def _record_now(self, pod: Pod, namespace: str) -> Injected | str:
        try:
            record = record_now(pod.asks, namespace, self.options, self.known, pod.orders)
        except PodRefused as refusal:
            return str(refusal)
        # It was injected, and its annotations ask no more: that change leaves the running pod as it is.
        return pod.injected if record is None else read_injected(record)

    async def _read_workloads(self, namespace: str) -> _Found:
        budgets = [budget_of(body) async for body in self.cluster.each(DISRUPTION_BUDGET, namespace)]
        workloads = [
            workload_of(type_.kind, body)
            for type_ in RESTARTED
            async for body in self.cluster.each(type_, namespace)
        ]
        return workloads, Budgets(budgets)

    async def _states(
        self, observed: _Found, pods: _Pods, labels: Mapping[str, str], progress: UpgradeProgress
    ) -> list[WorkloadState]:
        owned: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods.all:
            owned[pod.owner].append(pod)
        (workloads, budgets), states = observed, []
        for number, workload in enumerate(workloads):
            await _turn(number)
            template = (workload.template.get("metadata") or {}).get("labels") or {}
            # One that was restarted may have no pod at the moment.
            if (
                workload.name in owned
                or workload.name in progress.restarting
                or (workload.restarted_at is not None and labels.items() <= template.items())
            ):
                states.append(_state(workload, owned.get(workload.name, ()), pods, budgets))
        return states

    async def _plan_step(
        self,
        namespace: str,
        states: Sequence[WorkloadState],
        policy: RestartPolicy,
        progress: UpgradeProgress,
        now: datetime,
    ) -> UpgradeStep:
        """The next step, without workloads whose pods would be refused.

        The check is slow: only workloads about to be restarted are checked, and after a refusal the next
        ones, twice as many each time.
        """
        beyond = 0
        while True:
            step = plan(states, policy, progress, now)
            waiting = [state for state in states if state.name in step.waiting] if step.restart else []
            refused = {}
            for number, candidate in enumerate((*step.restart, *waiting[:beyond])):
                await _turn(number)
                if why := self._refusal(candidate.workload, namespace):
                    refused[candidate.name] = why
            if not refused.keys() & {state.name for state in step.restart}:
                return step
            states = [replace(state, left=refused.get(state.name, state.left)) for state in states]
            beyond = 2 * beyond + 1

    def _refusal(self, workload: Workload, namespace: str) -> str:
        """Return why pods of its template would be refused now; empty: they would not be."""
        try:
            inject(workload.template, namespace, self.options, self.known)
        except PodRefused as refusal:
            return f"its pods would be refused: {refusal}"
        return ""

    async def _restart(self, namespace: str, state: WorkloadState, now: datetime) -> None:
        kind, _, name = state.name.partition("/")
        annotations = {installation.RESTARTED_AT: timestamp(now), installation.RESTARTED_FOR: state.target}
        key = ObjectKey(kind, namespace, name)
        await self.cluster.annotate_template(_TYPES[kind], key, state.workload.version, annotations)


async def _turn(number: int) -> None:
    """Yield to the event loop after each fifty pods or workloads."""
    if number % 50 == 0:
        await asyncio.sleep(0)


def _state(workload: Workload, own: Sequence[Pod], pods: _Pods, budgets: Budgets) -> WorkloadState:
    outdated = [pod for pod in own if pods.is_outdated(pod)]
    current = [pod for pod in own if not pods.is_outdated(pod)]
    wanted = sorted({str(pods.due[pod.name]) for pod in own})
    selecting = {budget.name: budget for pod in own for budget in budgets.budgets_for(pod.labels)}
    return WorkloadState(
        workload,
        len(own),
        len(outdated),
        hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:16],
        tuple(selecting.values()),
        workload.left,
        # Those that came after the restart say what is wrong with it.
        next((f"Pod/{pod.name}: {pod.trouble}" for pod in (*current, *outdated) if pod.trouble), ""),
        max((pod.ready_at for pod in current if pod.ready_at is not None), default=None),
    )


def _policy(spec: EvaluatorUpgradeSpec) -> RestartPolicy:
    canary = spec.canary
    named = None if canary is None else canary.workload_ref
    return RestartPolicy(
        spec.max_concurrent,
        timedelta(seconds=spec.pause),
        timedelta(seconds=spec.ready_deadline),
        None if canary is None else timedelta(seconds=canary.soak),
        "" if named is None else f"{named.kind}/{named.name}",
    )


def _list_unowned(outdated: Iterable[Pod]) -> dict[str, str]:
    """Return outdated pods without a restartable owner."""
    owners = Counter(pod.owner for pod in outdated if pod.owner.partition("/")[0] not in _TYPES)
    return {name: f"{count} outdated, which nothing restarts" for name, count in owners.items()}


def _list_refused(pods: _Pods) -> dict[str, str]:
    refusals = ((pod.owner, pods.due[pod.name]) for pod in pods.all)
    return {owner: f"its pods would be refused: {why}" for owner, why in refusals if isinstance(why, str)}


def _events(step: UpgradeStep, restarted: Iterable[WorkloadState]) -> tuple[Occurrence, ...]:
    since = str(step.progress.pause_since)
    finished = (
        Occurrence("Upgraded", f"{name} is rolled out with its new evaluator", version=since)
        for name in step.finished
    )
    begun = (
        Occurrence(
            "Restarted",
            f"{state.name} restarted: {state.outdated} of its {state.pods} pods have an older evaluator",
            version=f"{state.workload.version} {state.target}",
        )
        for state in restarted
    )
    return (*finished, *begun)


def _result(resource: Resource, step: UpgradeStep, counts: EvaluatorUpgradeStatus) -> Result:
    """Return the result as conditions and a message."""
    progress = step.progress
    message = f"{counts.current} of {counts.pods} pods are current"
    left = list_reasons("left alone", step.left)
    outcome: Done | Setback
    if progress.halt is not None:
        halt = progress.halt
        how = f"put it right, then change the annotation {RESUME} or the spec"
        outcome = Stalled("Halted", f"{halt.workload} was restarted without success: {halt.message}; {how}")
    elif progress.restarting or step.waiting:
        going = f"; restarting {', '.join(sorted(progress.restarting))}" if progress.restarting else ""
        outcome = Waiting("Progressing", message + going + list_reasons("waiting", step.waiting) + left)
    else:
        outcome = Done(message + left)
    return Result(
        outcome,
        status=counts | fields_of(resource, progress),
        events=_events(step, step.restart),
        requeue_after=60.0 if isinstance(outcome, Done) else 5.0,
    )
