"""What keeps the newest revision of a set from everybody, and what may be done about each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagoverride
from controller.api.kinds import FLAG_SOURCE, FLUX_SOURCES, status_of
from controller.api.objects.conditions import READY, REMOTE_FLAGS
from controller.api.openfeature import featureflagconfiguration
from controller.api.rollouts import flagrollout
from controller.delivery.state.actions import (
    Abort,
    AcceptRevision,
    Approve,
    EndOverride,
    FixFlag,
    Promote,
    PromoteAbandoned,
    ResumeCandidate,
    ResumeObject,
    Retry,
    Unpause,
)
from controller.delivery.state.set_state import Verdict
from controller.delivery.state.state_words import (
    NAMED,
    candidate_text,
    end_text,
    held_text,
    names_text,
    override_text,
)
from controller.delivery.state.wait_model import Sort, Wait, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.delivery.state.actions import Action
    from controller.delivery.state.set_state import CandidateLayer, SetState

_GUARDS: Final = {"PruneGuard", "HistoryRewritten"}
_OLDER: Final = "OlderVersion"
_ROLLED_BACK: Final = "RolledBack"
_OTHERS: Final = frozenset(
    {FLAG_SOURCE.kind, *(type_.kind for type_ in FLUX_SOURCES), flagoverride.KIND, flagrollout.KIND}
)
_BAD: Final = frozenset({Verdict.PARTLY, Verdict.REFUSED})
APPROVABLE: Final = frozenset({"WaitingForApproval", "WaitingForPromotion"})
"""Reasons of candidates that an approval ends."""
_TIME: Final = frozenset({"Frozen", "OutsideWindow"})
"""Reasons of candidates that end by themselves."""
_PEOPLE: Final = frozenset({"WaitingForApproval", "WaitingForPromotion", "Paused", "OverrideEnded"})


def waits(state: SetState, resources: Iterable[Resource]) -> Iterator[Wait]:
    """Yield what the set waits for: first what a commit must correct, then what a person must decide.
    `resources`: its source, FlagSet, object, FlagRollouts and FlagOverrides, as far as they are there.
    """
    resources = tuple(resources)
    yield from _problems(state, resources)
    for resource in resources:
        yield from _failures(state, resource)
    yield from (_candidate_wait(state, layer) for layer in state.candidates if layer.users != "everybody")
    for override in state.overrides:
        message = "; ".join(filter(None, (override_text(override), end_text(override, state.candidates))))
        end = EndOverride(override.override)
        yield Wait(Sort.OVERRIDE, "OverrideActive", override.override, message, Who.TIME, actions=(end,))
    yield from map(_suspension, state.suspended)


def waits_of_others(objects: Iterable[Resource], states: Iterable[SetState]) -> Iterator[Wait]:
    """Yield what sources, FlagRollouts and FlagOverrides wait for that are about no flag set."""
    known = {key for state in states for key in state.objects}
    others = [one for one in objects if one.key.kind in _OTHERS and one.key not in known]
    for resource in sorted(others, key=lambda resource: resource.key):
        ready = status_of(resource).condition(READY)
        if reason := status_of(resource).failure:
            yield Wait(Sort.PROBLEM, reason, resource.key, ready.message, Who.SYSTEM, ready.since)
        if resource.suspended:
            yield _suspension(resource.key)


def _suspension(key: ObjectKey) -> Wait:
    message = "the controller changes nothing about it while it is suspended"
    return Wait(Sort.SUSPENDED, "Suspended", key, message, Who.PERSON, actions=(ResumeObject(key),))


def _problems(state: SetState, resources: Iterable[Resource]) -> Iterator[Wait]:
    newest, subject = state.newest, state.writer or state.key
    ready = next(
        (status_of(resource).condition(READY) for resource in resources if resource.key == subject), None
    )
    if ready is None:
        return
    if newest.verdict in _BAD:
        fixes = tuple(FixFlag(problem.file or "", problem.line) for problem in newest.problems[:NAMED])
        yield Wait(Sort.PROBLEM, ready.reason, subject, newest.message, Who.COMMIT, ready.since, fixes)
    if state.held:
        message = "; ".join(held_text(flag) for flag in state.held[:NAMED])
        rest = len(state.held) - NAMED
        message += f"; {rest} more" if rest > 0 else ""
        yield Wait(Sort.HELD, "Held", subject, message, Who.COMMIT, ready.since)


def _failures(state: SetState, resource: Resource) -> Iterator[Wait]:
    """What one object waits for, besides bad definitions."""
    status = status_of(resource)
    reason, ready = status.failure, status.condition(READY)
    if reason in _GUARDS:
        # The digest of the revision is all that a command has of it: the rest was written by others.
        digest = state.newest.revision.rpartition("@")[2]
        accept = (AcceptRevision(resource.key, digest),) if resource.key == state.writer and digest else ()
        removals = names_text(state.newest.removals)
        removed = f" It would remove {removals}." if removals else ""
        message = f"{ready.message}{removed}"
        yield Wait(Sort.GUARD, reason, resource.key, message, Who.PERSON, ready.since, accept)
    elif reason and not _is_told(state, resource.key, reason):
        yield Wait(Sort.PROBLEM, reason, resource.key, ready.message, Who.SYSTEM, ready.since)
    remote = status.condition(REMOTE_FLAGS)
    if resource.key.kind == featureflagconfiguration.KIND and remote.reason == _OLDER:
        yield Wait(Sort.GUARD, _OLDER, resource.key, remote.message, Who.PERSON, remote.since)


def _is_told(state: SetState, key: ObjectKey, reason: str) -> bool:
    """Whether the set waits for the same already by its definitions, or by a candidate."""
    if key == (state.writer or state.key):
        return state.newest.verdict in _BAD
    candidates = [layer for layer in state.candidates if layer.rollout == key]
    stopped = reason == _ROLLED_BACK and any(layer.phase == "Failed" for layer in candidates)
    return stopped or any(layer.reason == reason for layer in candidates)


def _candidate_wait(state: SetState, layer: CandidateLayer) -> Wait:
    actions: tuple[Action, ...] = ()
    if layer.phase == "Abandoned":
        actions = (PromoteAbandoned(state.key, layer.candidate),)
    elif layer.rollout not in state.suspended:
        actions = tuple(candidate_actions(layer))
    return Wait(
        Sort.ROLLOUT,
        layer.reason or layer.phase or "Held",
        layer.rollout,
        candidate_text(layer),
        whose_move(layer),
        layer.since,
        actions,
    )


def whose_move(layer: CandidateLayer) -> Who:
    """Who or what lets a candidate go on."""
    if layer.reason in _TIME:
        return Who.TIME
    if layer.reason in _PEOPLE or layer.phase in {"Failed", "Abandoned"}:
        return Who.PERSON
    return Who.SYSTEM


def candidate_actions(layer: CandidateLayer) -> Iterator[Action]:
    """Yield what a person may do about a candidate of a FlagRollout that is not suspended."""
    rollout, digest = layer.rollout, layer.candidate
    if not digest or not layer.phase:
        return
    if layer.phase == "Failed":
        yield Retry(rollout, digest)
        return
    if layer.reason in APPROVABLE:
        yield Approve(rollout, digest, layer.gate)
    if layer.reason == "OverrideEnded":
        yield ResumeCandidate(rollout, digest)
    if layer.reason == "Paused":
        yield Unpause(rollout)
    if layer.phase in {"Pending", "Progressing", "Paused", "WaitingPromotion", "Promoting"}:
        yield Abort(rollout, digest)
    if layer.phase in {"Pending", "Progressing", "Paused", "WaitingPromotion"}:
        yield Promote(rollout, digest)
