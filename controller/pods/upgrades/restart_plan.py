"""Which workloads are restarted next. Marks on them, and the status, say what was restarted before. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.pods.upgrades.observed import Budget, Workload


@dataclass(frozen=True, slots=True)
class State:
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
class Policy:
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
    restart: tuple[State, ...] = ()
    finished: tuple[str, ...] = ()
    """The workloads that were restarting and are rolled out now."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Outdated workloads that are restarted later, with the reason for waiting."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Outdated workloads that are not restarted, with the reason."""

    def after(self, restarted: Iterable[State]) -> UpgradeProgress:
        """Return the progress if only these of `restart` could be restarted."""
        failed = {state.name for state in self.restart} - {state.name for state in restarted}
        restarting = {name: at for name, at in self.progress.restarting.items() if name not in failed}
        return replace(self.progress, restarting=restarting)


def plan(states: Sequence[State], policy: Policy, before: UpgradeProgress, now: datetime) -> UpgradeStep:
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


def _is_restarting(state: State, policy: Policy, before: UpgradeProgress, now: datetime) -> bool:
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


def _targets(states: Iterable[State], going: Mapping[str, State]) -> str:
    # Of one that would be refused, too: that is known only after the pause.
    pending = {state.target for state in states if state.outdated and not state.workload.left}
    targets = pending | {state.workload.restarted_for for state in going.values()}
    return hashlib.sha256("\n".join(sorted(targets)).encode()).hexdigest()[:16] if targets else ""


def _divide(states: Sequence[State], going: Mapping[str, State]) -> tuple[dict[str, str], dict[str, State]]:
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


def _find_undone(states: Mapping[str, State], before: UpgradeProgress) -> Halt | None:
    """Halt at a workload whose restart mark another party removed: restarts could repeat for ever."""
    for name, at in sorted(before.restarting.items()):
        state = states.get(name)
        if state is None or not state.outdated or state.workload.left:
            continue
        mark = state.workload.restarted_at
        if (mark is None or mark < at) and not before.was_resumed_after(at):
            return Halt(name, "its restart was undone")
    return None


def _halt(going: Mapping[str, State], policy: Policy, before: UpgradeProgress, now: datetime) -> Halt | None:
    for name, state in sorted(going.items()):
        times = (state.workload.restarted_at, state.progressed_at, before.resumed_at)
        if now - max(time for time in times if time is not None) >= policy.deadline:
            why = state.trouble or (
                "its pods are outdated" if state.workload.settled else "it is not rolled out"
            )
            return Halt(name, why)
    return None


def _find_restartable(
    pending: Mapping[str, State], going: Mapping[str, State]
) -> tuple[dict[str, str], dict[str, State]]:
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


def _allows(budget: Budget, state: State, others: Iterable[State]) -> bool:
    """Whether the budget has room in addition to the current rollouts."""
    taken = sum(
        other.workload.at_once for other in others if budget.name in {one.name for one in other.budgets}
    )
    return budget.allowed - taken >= state.workload.at_once


def _after_canary(
    progress: UpgradeProgress,
    policy: Policy,
    states: Mapping[str, State],
    free: Mapping[str, State],
    now: datetime,
) -> tuple[UpgradeProgress, Mapping[str, State], str]:
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


def _choose(free: Mapping[str, State], going: Mapping[str, State], policy: Policy) -> Iterator[State]:
    """Return as many as may roll out at a time, by name."""
    taken = dict(going)
    for name, state in free.items():
        if len(taken) >= policy.max_concurrent:
            return
        if all(_allows(budget, state, taken.values()) for budget in state.budgets):
            taken[name] = state
            yield state
