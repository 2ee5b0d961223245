"""What a FlagRollout would do with a change of flags: steps, earliest times, and users. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.api.flagoverride import moment_of
from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus
from controller.delivery.changed_flags import Movement, answers, movement
from controller.delivery.rollouts import change_text, generation_of
from controller.delivery.state_words import names_text
from controller.rollouts.gates import name_of, next_opening, reason_to_skip
from controller.rollouts.observation import is_paused
from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import candidate_digest, capture, changed_flags, matches, misfits
from evaluator.flags.diff import diff
from evaluator.flags.model import FlagSet, Json, State
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import Exposure, Rollout
from evaluator.host.times import timestamp
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.api.flagrollout import FlagRolloutSpec, Step
    from controller.api.meta import Resource


def notes_of(
    resource: Resource, spec: FlagRolloutSpec, candidate: CandidateStatus, skips: str
) -> Iterator[str]:
    """Yield why a candidate may not begin now, and what it does to others. `skips`: why it needs no steps."""
    status = FlagRolloutStatus.of(resource)
    if spec.suspend:
        yield "spec.suspend is true: what is served stays as it is"
    for entry in status.stopped:
        if candidate.flags.get(entry.flag) == entry.definition:
            yield f'"{entry.flag}" was stopped at {entry.at}: it waits for flagstaff rollout retry'
    for running in status.candidates:
        taken = sorted(candidate.flags.keys() & running.flags.keys())
        if any(running.flags[key] != candidate.flags[key] for key in taken):
            yield f"{names_text(taken)} leaves {name_of(running)}, and begins anew; its other flags go on"
    if skips == "skipAnalysis":
        yield "spec.skipAnalysis is true: everybody gets the change at once, without the steps"
    elif skips:
        yield (
            "these definitions were in force before, within spec.rollbackWindow: everybody gets them at "
            "once, without the steps"
        )
    if is_paused(spec, resource.annotations, candidate):
        yield "the FlagRollout is paused: nothing begins before it is resumed"


def disabled_notes(before: FlagSet, changed: Iterable[str]) -> Iterator[str]:
    """Yield what users outside of a step get of flags that are disabled now."""
    for key in changed:
        if before.flags[key].state is State.DISABLED:
            yield f'"{key}" is disabled now, so users outside a step get the code default'


RECORD: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True)
AtOnce = Literal["Added", "Removed", "Disabled", "NotSelected", "SameAnswers"]
"""Why a change takes no steps."""
_SALT: Final = "plan"
"""Of the cohorts here; the rollout itself draws others of the same size."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step, or the promotion after the last one."""

    __pydantic_config__ = RECORD

    number: str
    """`2/4`, or `promotion`."""
    users: str
    """Who gets the candidate: `10%`, `audience`, `everybody`."""
    lasts: float
    """Seconds before the next one at least."""
    approval: bool
    """Whether somebody must approve before the next one."""
    moved: float
    """Percent of the users who get another variant of any flag than before the change."""
    earliest: str | None = None
    """When it begins at the earliest, RFC 3339; absent where the windows never open."""
    samples: int | None = None
    """How many samples its checks need."""
    date: str | None = None
    """Before when it does not begin, as the FlagRollout has it."""


@dataclass(frozen=True, slots=True)
class PlannedFlag:
    """One flag that is rolled out."""

    __pydantic_config__ = RECORD

    key: str
    """The flag's key."""
    moved: float
    """Percent of the users who get another variant, once everybody has the change."""
    needed: float
    """Percent of the users who must, for the shares that the variants have then."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """What a FlagRollout would do with a change."""

    __pydantic_config__ = RECORD

    rollout: str
    """The FlagRollout's name."""
    before: str
    """What is served now: a revision, or another name."""
    after: str
    """What would be committed."""
    users: int
    """How many users the percentages are of."""
    steps: tuple[PlannedStep, ...]
    """In their order, the promotion last, or alone where everybody gets the change at once; none where
    nothing is rolled out.
    """
    flags: tuple[PlannedFlag, ...]
    """Those that are rolled out, together."""
    at_once: dict[str, AtOnce]
    """Why flags change for everybody at once, by key."""
    misfits: dict[str, str]
    """Why flags cannot be rolled out, by key. One of them holds all back."""
    candidate: str | None = None
    """The digest of the definitions that are rolled out; absent: none is."""
    notes: tuple[str, ...] = ()
    """Advice, and why the steps may not begin now."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Two versions of a flag set, each with its name."""

    before: tuple[str, FlagSet]
    after: tuple[str, FlagSet]


def plan(
    resource: Resource,
    spec: FlagRolloutSpec,
    change: PlannedChange,
    contexts: Sequence[Mapping[str, Json]],
    now: datetime,
) -> RolloutPlan:
    """Return what the FlagRollout would do with a change that is applied now, for users of these contexts."""
    name = resource.name
    before, after = change.before[1], change.after[1]
    audiences = tuple(step.audience for step in spec.steps if step.audience is not None)
    promoted = capture(before, spec.flags)
    changed = dict(changed_flags(after, promoted, spec.flags))
    candidate = CandidateStatus(digest=candidate_digest(changed), flags=changed, phase="Queued")
    # A file has no status, so what was promoted before is known of a FlagRollout in the cluster alone.
    skips = reason_to_skip(spec, FlagRolloutStatus.of(resource), candidate)
    unfit = {} if skips else misfits(after, promoted, changed, audiences)
    blocked = bool(unfit) or not changed
    simulated = _Simulation(before, after, tuple(changed), contexts, int(now.timestamp()))
    flags = () if blocked else tuple(simulated.flags())
    exposure = Exposure(candidate.digest, changed, salt=_SALT)
    rollout = Rollout(name, spec.flags, promoted, "", (exposure,))
    steps = _promotion_alone(spec, simulated, now) if skips else _steps(spec, rollout, simulated, now)
    advice = _advice(flags, () if skips else audiences, contexts)
    notes = chain(notes_of(resource, spec, candidate, skips), disabled_notes(before, changed), advice)
    drawn = change_text(after, generation_of(before), generation_of(after))
    return RolloutPlan(
        name,
        change.before[0],
        change.after[0],
        len(contexts),
        steps=() if blocked else tuple(steps),
        flags=flags,
        at_once=_at_once(before, after, spec.flags, changed),
        candidate=candidate.digest if changed else None,
        misfits={key: str(reason) for key, reason in sorted(unfit.items())},
        notes=(*(() if blocked else notes), *((f"bucketing changes {drawn}",) if drawn else ())),
    )


class _Simulation:
    """Resolves the candidate's flags for all users: before the change, after it, and in each step."""

    def __init__(
        self,
        before: FlagSet,
        after: FlagSet,
        keys: tuple[str, ...],
        contexts: Sequence[Mapping[str, Json]],
        now: int,
    ) -> None:
        self._after, self._keys, self._contexts, self._now = after, keys, contexts, now
        self._before = self._answers(compile_flag_set(before))

    def _answers(self, flags: CompiledFlagSet) -> dict[str, list[str]]:
        return {key: answers(flags, key, self._contexts, self._now) for key in self._keys}

    def flags(self) -> Iterator[PlannedFlag]:
        """Yield how many users each flag moves once everybody has the change."""
        after = self._answers(compile_flag_set(self._after))
        for key in self._keys:
            change = movement(self._before[key], after[key])
            yield PlannedFlag(key, _percent(change.moved, change), _percent(change.needed, change))

    def percent_moved(self, rollout: Rollout | None) -> float:
        """The percentage of users who get another variant of any flag; None: everybody has the change."""
        served = self._after if rollout is None else effective(self._after, Progress(rollouts=(rollout,)))
        after = self._answers(compile_flag_set(served))
        before = self._before
        tuples = [list(zip(*(side[key] for key in self._keys), strict=True)) for side in (before, after)]
        moved = sum(old != new for old, new in zip(*tuples, strict=True))
        return moved * 100 / len(self._contexts) if self._contexts else 0.0


def _percent(users: int, of: Movement) -> float:
    return users * 100 / of.users if of.users else 0.0


def _steps(
    spec: FlagRolloutSpec, rollout: Rollout, simulated: _Simulation, now: datetime
) -> Iterator[PlannedStep]:
    cohort, starts = Cohort(), next_opening(spec.windows, spec.freeze, now)
    for index, step in enumerate(spec.steps):
        if starts is not None and step.at is not None and starts < (date := moment_of(step.at)):
            starts = next_opening(spec.windows, spec.freeze, date)
        cohort = _widen(cohort, step)
        lasts = max(step.min_duration or 0.0, spec.analysis.interval if spec.analysis.metrics else 0.0)
        yield PlannedStep(
            f"{index + 1}/{len(spec.steps)}",
            "audience" if step.share is None else f"{step.share:g}%",
            lasts,
            step.approval is not None,
            simulated.percent_moved(_expose(rollout, cohort)),
            _timestamp_of(starts),
            step.min_samples,
            step.at,
        )
        starts = starts and _start_after(spec, starts, lasts)
    manual = spec.promotion == "Manual"
    yield PlannedStep(
        "promotion", "everybody", 0.0, manual, simulated.percent_moved(None), _timestamp_of(starts)
    )


def _expose(rollout: Rollout, cohort: Cohort) -> Rollout:
    return replace(rollout, exposures=tuple(replace(one, cohort=cohort) for one in rollout.exposures))


def _promotion_alone(spec: FlagRolloutSpec, simulated: _Simulation, now: datetime) -> Iterator[PlannedStep]:
    """Yield the only step of a change that needs no others; it waits for windows and people like any."""
    by_people = spec.promotion == "Manual" or any(step.approval for step in spec.steps)
    starts = _timestamp_of(next_opening(spec.windows, spec.freeze, now))
    yield PlannedStep("promotion", "everybody", 0.0, by_people, simulated.percent_moved(None), starts)


def _timestamp_of(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


def _start_after(spec: FlagRolloutSpec, starts: datetime, lasts: float) -> datetime | None:
    try:
        ends = starts + timedelta(seconds=lasts)
    except OverflowError:
        return None
    return next_opening(spec.windows, spec.freeze, ends)


def _widen(cohort: Cohort, step: Step) -> Cohort:
    if step.share is None:
        return Cohort(cohort.share, (*cohort.audiences, step.audience))
    return Cohort(round(step.share * 100), cohort.audiences)


def _at_once(
    before: FlagSet, after: FlagSet, patterns: Sequence[str], changed: Collection[str]
) -> dict[str, AtOnce]:
    changes = diff(before, after)
    reasons: dict[str, AtOnce] = {}
    for key in changes.keys:
        if key in changed:
            continue
        if not matches(tuple(patterns), key):
            reasons[key] = "NotSelected"
        elif key in changes.added:
            reasons[key] = "Added"
        elif key in changes.removed:
            reasons[key] = "Removed"
        else:
            disabled = after.flags[key].state is State.DISABLED
            reasons[key] = "Disabled" if disabled else "SameAnswers"
    return reasons


def _advice(
    flags: Sequence[PlannedFlag], audiences: Sequence[Json], contexts: Sequence[Mapping[str, Json]]
) -> Iterator[str]:
    for flag in flags:
        if flag.moved > flag.needed + 1:
            yield (
                f"{flag.key} moves {flag.moved:.2f}% of users where {flag.needed:.2f}% would do: keep its "
                "variants in their order, and put a new one beside the one whose share it takes"
            )
    if audiences and not any(len(context) > 1 for context in contexts):
        yield "these users have a targeting key and nothing else, so no audience has any of them"
