"""How far a FlagRollout is, and its candidates over the flags of one object. Pure.

What is served of a candidate is read from the object's own status, and why from the status of the
FlagRollout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.api import flagrollout
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagoverride import moment_of
from controller.api.flagrollout import FlagRolloutSpec, Step
from controller.api.meta import ObjectKey, Resource
from controller.api.parsing import InvalidTextError
from controller.api.rollout_status import (
    CandidateStatus,
    FlagRolloutStatus,
    MetricStatus,
    Outcome,
    PromotedRevision,
    ServedRollout,
    StoppedDefinition,
)
from controller.api.status import READY
from controller.delivery.digests import names_revision
from controller.delivery.overrides import set_name
from controller.delivery.reach import candidate_actions
from controller.delivery.set_state import CandidateLayer, StepDate, Users
from evaluator.host.times import duration_text, timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from controller.delivery.actions import Action


_USERS: Final[dict[str, Users]] = {
    "Held": "nobody",
    "Exposed": "some",
    "Everyone": "everybody",
    "Abandoned": "nobody",
}
"""Who gets the newest definitions, by the phase in the status of the object."""


def candidate_layers(
    target: ObjectKey, entries: Sequence[ServedRollout], rollouts: Iterable[Resource]
) -> Iterator[CandidateLayer]:
    """Yield a layer for each candidate of an object's FlagRollouts, as the object has it. What a FlagRollout
    says of a candidate that the object does not know yet is no layer: nobody is served by it.
    """
    by_name = {rollout.name: rollout for rollout in rollouts}
    for entry in entries:
        if entry.phase == "Idle":
            continue
        layer = layer_of_entry(ObjectKey(flagrollout.KIND, target.namespace, entry.name), entry)
        rollout = by_name.get(entry.name)
        candidate = _candidate_status(rollout, layer.candidate)
        if rollout is not None and candidate is not None:
            known = layer_of(layer.rollout, candidate)
            dates = tuple(_dates(_spec_of(rollout), candidate))
            layer = replace(known, users=layer.users, step=layer.step, share=layer.share, dates=dates)
        yield layer


def _dates(spec: FlagRolloutSpec | None, candidate: CandidateStatus) -> Iterator[StepDate]:
    if spec is not None and candidate.phase not in {"Failed", "RollingBack", "Promoting"}:
        for step in _steps(spec.steps, candidate):
            if step.date is not None and not step.state:
                yield StepDate(step.number, step.users, step.date)


def _spec_of(rollout: Resource) -> FlagRolloutSpec | None:
    """The spec; None: it cannot be read."""
    try:
        return parse_spec(FlagRolloutSpec, rollout)
    except InvalidSpecError:
        return None


def _candidate_status(rollout: Resource | None, digest: str) -> CandidateStatus | None:
    candidates = FlagRolloutStatus.of(rollout).candidates
    return next((candidate for candidate in candidates if candidate.digest == digest), None)


def layer_of_entry(rollout: ObjectKey, entry: ServedRollout) -> CandidateLayer:
    """The layer of a candidate as far as the object with the flags tells of it."""
    users, step = _USERS[entry.phase], entry.step or ""
    share = "" if users != "some" else f"{entry.share}%" if entry.share not in {None, "0"} else "audience"
    phase = entry.phase if entry.phase == "Abandoned" else ""
    flags = tuple(sorted(entry.flags))
    return CandidateLayer(rollout, entry.candidate or "", flags, phase, users, step=step, share=share)


def layer_of(rollout: ObjectKey, candidate: CandidateStatus) -> CandidateLayer:
    """The layer that a FlagRollout means a candidate to be."""
    exposed: Users = "nobody" if candidate.step is None else "some"
    return CandidateLayer(
        rollout,
        candidate.digest,
        tuple(sorted(candidate.flags)),
        candidate.phase,
        "everybody" if candidate.phase == "Promoting" else exposed,
        candidate.revision or "",
        candidate.author or "",
        candidate.step_text or "",
        candidate.share_text or "",
        candidate.gate,
        candidate.verdict or "",
        candidate.reason or "",
        candidate.message or "",
        candidate.held_since or candidate.step_started_at or "",
    )


_RECORD: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True)


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of a candidate."""

    __pydantic_config__ = _RECORD

    number: str
    """`2/4`."""
    users: str
    """Who gets the new definitions: `10%`, `audience`."""
    lasts: str
    """Its least duration; `-` for none."""
    approval: bool
    """Whether somebody must approve before it ends."""
    state: str
    """`done`, `now`, or empty."""
    samples: int | None = None
    """How many samples its checks need."""
    until: str | None = None
    """Of the step that is served: when it ends at the earliest, RFC 3339, apart from windows and checks."""
    date: str | None = None
    """Before when it does not begin, as the FlagRollout has it."""


@dataclass(frozen=True, slots=True)
class CandidateState:
    """One candidate."""

    layer: CandidateLayer
    steps: tuple[StepState, ...]
    metrics: tuple[MetricStatus, ...]
    """The newest check of each metric."""
    served: str
    """How many evaluators serve the step, of how many there are; empty: not known."""
    served_since: str
    """When enough of them did, RFC 3339; empty: they do not yet."""
    failed: int
    """Checks of this step that failed."""
    approved: bool
    """Whether its gate is approved already."""
    actions: tuple[Action, ...]
    """What a person may do, the most likely first."""


@dataclass(frozen=True, slots=True)
class RolloutState:
    """A FlagRollout and its candidates."""

    key: ObjectKey
    flag_set: str
    """The name of the FlagSet, FeatureFlagConfiguration or FeatureFlag."""
    phase: str
    """What the candidate is at that needs attention most; Unknown before the first reconcile."""
    message: str
    """What the condition Ready says."""
    suspended: bool
    paused: bool
    """Whether somebody paused all candidates."""
    candidates: tuple[CandidateState, ...]
    queued: int
    furthest: str
    """The step and share of the candidate that is the furthest: `2/4 50%`; empty: there is none."""
    failure_limit: int | None
    """How many failed checks roll back; None for a spec that cannot be read."""
    handled: tuple[str, ...]
    """The requests of people that were acted on or refused."""
    handled_retry: str
    promoted: PromotedRevision | None
    """What everybody else gets."""
    stopped: tuple[StoppedDefinition, ...]
    """Definitions that are not tried again without a person."""
    history: tuple[Outcome, ...]
    """Candidates that ended, the newest first."""

    @property
    def running(self) -> tuple[CandidateState, ...]:
        """The candidates that began and have not ended."""
        return tuple(one for one in self.candidates if one.layer.phase not in {"Queued", "Failed"})


def has_promoted(rollout: Resource | None, revision: str, same: Collection[str] = ()) -> bool:
    """Whether a FlagRollout has recorded that everybody gets a revision, or did. `same`: other revisions with
    the same flags.
    """
    recorded = FlagRolloutStatus.of(rollout).promoted_revisions
    return any(names_revision(revision, one) or one in same for one in recorded)


def rollout_state(rollout: Resource) -> RolloutState:
    """How far a FlagRollout is; without steps for a spec that cannot be read."""
    status, spec = FlagRolloutStatus.of(rollout), _spec_of(rollout)
    steps = () if spec is None else spec.steps
    return RolloutState(
        rollout.key,
        set_name(rollout) or "-",
        status.phase or "Unknown",
        status.condition(READY).message,
        rollout.suspended,
        spec is not None and spec.pause,
        tuple(_candidate_state(rollout, candidate, steps) for candidate in status.candidates),
        status.queued or 0,
        status.furthest or "",
        None if spec is None else spec.analysis.failure_limit,
        status.handled,
        status.handled_retry or "",
        status.promoted,
        status.stopped,
        status.history,
    )


def _candidate_state(
    rollout: Resource, candidate: CandidateStatus, steps: tuple[Step, ...]
) -> CandidateState:
    layer, served = layer_of(rollout.key, candidate), candidate.served
    gate = (candidate.gate, candidate.digest)
    return CandidateState(
        layer,
        tuple(_steps(steps, candidate)),
        candidate.metrics,
        "" if served is None else f"{served.served}/{served.total}",
        candidate.propagated_at or "",
        candidate.checks.failed if candidate.checks else 0,
        any((approval.gate, approval.digest) == gate for approval in candidate.approvals),
        () if rollout.suspended else tuple(candidate_actions(layer)),
    )


def _steps(steps: tuple[Step, ...], candidate: CandidateStatus) -> Iterator[StepState]:
    for index, step in enumerate(steps):
        here = candidate.step == index
        state = "now" if here else "done" if candidate.step is not None and index < candidate.step else ""
        yield StepState(
            f"{index + 1}/{len(steps)}",
            step_users(step),
            "-" if step.min_duration is None else duration_text(step.min_duration),
            step.approval is not None,
            state,
            step.min_samples,
            _until(step, candidate) if here else None,
            step.at,
        )


def step_users(step: Step) -> str:
    """Who gets the candidate in a step: `10%`, `audience`."""
    return "audience" if step.share is None else f"{step.share:g}%"


def _until(step: Step, candidate: CandidateStatus) -> str | None:
    if candidate.propagated_at is None or not step.min_duration:
        return None
    lasted = candidate.exposed_seconds or 0.0
    try:
        left = timedelta(seconds=step.min_duration - lasted)
        return timestamp(moment_of(candidate.propagated_at) + left)
    except (InvalidTextError, OverflowError):
        return None
