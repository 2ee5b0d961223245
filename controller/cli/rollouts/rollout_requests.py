"""What a person may ask of a FlagRollout: the annotations that each verb sets. Pure.

Each request names a candidate by its digest, so that it never counts for another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.flagrollout import PAUSE, RETRY, names_candidate
from controller.delivery.state.actions import Abort, Approve, Promote, ResumeCandidate, Retry, annotation_of
from controller.delivery.state.state_words import candidate_name, position_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from controller.api.objects.meta import Resource
    from controller.delivery.state.actions import Annotated
    from controller.delivery.state.rollout_state import CandidateState, RolloutState

_STEPS: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
_UNDER_WAY: Final = _STEPS | {"Pending", "Promoting"}
"""Phases in which a person may roll back."""
_PROMOTED_FROM: Final = _STEPS | {"Queued", "Pending", "Failed"}
"""Phases in which a person may promote."""


class RefusedRequest(Exception):
    """The request would have no effect; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """Annotations to be set."""

    candidates: tuple[str, ...] = ()
    """The digests of the candidates that it is about; empty: all."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """None removes one. Empty: it is so already."""


def approve(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Let the present step end, or the candidate be promoted after the last one. Raises RefusedRequest."""
    # Without steps, the promotion is approved before anybody gets the candidate.
    possible = [
        one
        for one in state.candidates
        if one.layer.phase in _STEPS or one.layer.reason == "WaitingForPromotion"
    ]
    chosen = _choose(state, named, _STEPS | {"Pending"}, "approve", possible)
    waiting = [one for one in chosen if not one.approved]
    actions = [Approve(state.key, one.layer.candidate, one.layer.gate) for one in waiting]
    return _request(rollout, chosen, actions, now)


def promote(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Give the candidate to everybody, without the steps that are left. Raises RefusedRequest."""
    chosen = _choose(state, named, _PROMOTED_FROM, "promote")
    return _request(rollout, chosen, [Promote(state.key, one.layer.candidate) for one in chosen], now)


def abort(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Give everybody the promoted definitions again. Raises RefusedRequest."""
    chosen = _choose(state, named, _UNDER_WAY, "roll back")
    return _request(rollout, chosen, [Abort(state.key, one.layer.candidate) for one in chosen], now)


def retry(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Roll candidates out again that were stopped. Raises RefusedRequest."""
    del rollout
    chosen = _choose(state, named, {"Failed"}, "retry")
    values = [_value(Retry(state.key, one.layer.candidate), now) for one in chosen]
    return Request(_digests(chosen), {RETRY: ",".join(values)})


def pause(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Stay at the present step: of the candidates that are named, or of all."""
    del now
    if state.paused or rollout.annotations.get(PAUSE) == "true":
        return Request()
    if not named:
        return Request((), {PAUSE: "true"})
    digests = _digests(_choose(state, named, _UNDER_WAY | {"Queued"}, "pause"))
    return Request(digests, {PAUSE: ",".join(digests)})


def resume(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> Request:
    """Let a paused rollout advance again, and a candidate that an override interrupted. Raises
    RefusedRequest.
    """
    if state.paused:
        raise RefusedRequest("spec.pause is true; set it to false where the FlagRollout is written")
    paused = rollout.annotations.get(PAUSE, "")
    if paused and not named:
        return Request((), {PAUSE: None})
    if named and paused not in {"", "true"}:
        chosen = _choose(state, named, _UNDER_WAY | {"Queued"}, "resume")
        if any(names_candidate(paused, one.layer.candidate) for one in chosen):
            left = [part for part in paused.split(",") if not _names_one(part, chosen)]
            return Request(_digests(chosen), {PAUSE: ",".join(left) or None})
    interrupted = [one for one in state.candidates if one.layer.reason == "OverrideEnded"]
    if not named and not interrupted:
        return Request()
    chosen = _choose(state, named, _UNDER_WAY, "resume", interrupted)
    return _request(rollout, chosen, [ResumeCandidate(state.key, one.layer.candidate) for one in chosen], now)


REQUESTS: Final[Mapping[str, Callable[[Resource, RolloutState, Sequence[str], datetime], Request]]] = {
    "approve": approve,
    "pause": pause,
    "resume": resume,
    "promote": promote,
    "abort": abort,
    "retry": retry,
}
"""By verb."""


def _choose(
    state: RolloutState,
    named: Sequence[str],
    phases: Collection[str],
    verb: str,
    among: Sequence[CandidateState] | None = None,
) -> list[CandidateState]:
    """The candidates that are named, or the only one that the verb may be about."""
    if state.suspended:
        raise RefusedRequest("suspended: set spec.suspend to false, or flagstaff resume it")
    known = [one for one in state.candidates if one.layer.phase in phases]
    if among is not None:
        known = [one for one in known if one in among]
    if not named:
        if len(known) == 1:
            return known
        if known:
            listed = ", ".join(candidate_name(one.layer) for one in known)
            raise RefusedRequest(f"which one? name it with --candidate: {listed}")
        raise RefusedRequest(f"nothing to {verb}: {_positions(state)}")
    chosen = []
    for name in named:
        matching = [one for one in state.candidates if names_candidate(name, one.layer.candidate)]
        if not matching:
            raise RefusedRequest(f"there is no candidate {name}: {_positions(state)}")
        if matching[0] not in known:
            phase = matching[0].layer.phase
            raise RefusedRequest(
                f"nothing to {verb}: candidate {candidate_name(matching[0].layer)} is {phase}"
            )
        chosen.append(matching[0])
    return chosen


def _positions(state: RolloutState) -> str:
    if not state.candidates:
        return (
            f"it is {state.phase}, without a candidate"
            if state.phase != "Unknown"
            else "it is not reconciled yet"
        )
    return "; ".join(f"{candidate_name(one.layer)}: {position_text(one.layer)}" for one in state.candidates)


def _request(
    rollout: Resource, chosen: Sequence[CandidateState], actions: Sequence[Annotated], now: datetime
) -> Request:
    """The request that adds to those of the same annotation that are about other candidates."""
    digests = _digests(chosen)
    if not actions:
        return Request(digests)
    name, _ = annotation_of(actions[0])
    others = [part for part in rollout.annotations.get(name, "").split(",") if part]
    kept = [part for part in others if not _names_one(part, chosen)]
    return Request(digests, {name: ",".join((*kept[-20:], *(_value(action, now) for action in actions)))})


def _value(action: Annotated, now: datetime) -> str:
    """The value of the annotation. Each value is acted on once, and the same may be asked for again."""
    return f"{annotation_of(action)[1]}/{precise_timestamp(now)}"


def _names_one(part: str, chosen: Sequence[CandidateState]) -> bool:
    return any(names_candidate(part, one.layer.candidate) for one in chosen)


def _digests(chosen: Sequence[CandidateState]) -> tuple[str, ...]:
    return tuple(one.layer.candidate for one in chosen)
