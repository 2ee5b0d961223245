"""What keeps the newest revision of a set from everybody, and what may be done about each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.kinds import status_of
from controller.api.objects.conditions import READY, REMOTE_FLAGS
from controller.api.openfeature import featureflagconfiguration
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
from controller.delivery.state.set_state import Sort, Verdict, Wait, Who
from controller.delivery.state.state_words import NAMED, candidate_text, held_text, names_text, override_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.meta import Resource
    from controller.delivery.state.actions import Action
    from controller.delivery.state.set_state import CandidateLayer, SetState

_GUARDS: Final = {"PruneGuard", "HistoryRewritten"}
_OLDER: Final = "OlderVersion"
_BAD: Final = frozenset({Verdict.PARTLY, Verdict.REFUSED})
_TIME: Final = frozenset({"Frozen", "OutsideWindow"})
"""Reasons of candidates that end by themselves."""
_PEOPLE: Final = frozenset({"WaitingForApproval", "WaitingForPromotion", "Paused", "OverrideEnded"})


def waits(state: SetState, resources: Iterable[Resource]) -> Iterator[Wait]:
    """Yield what the set waits for: first what a commit must correct, then what a person must decide.
    `resources`: its source, FlagSet and object, as far as they are there.
    """
    resources = tuple(resources)
    yield from _problems(state, resources)
    for resource in resources:
        yield from _failures(state, resource)
    yield from (_candidate_wait(state, layer) for layer in state.candidates if layer.users != "everybody")
    for override in state.overrides:
        message = override_text(override)
        end = EndOverride(override.override)
        yield Wait(Sort.OVERRIDE, "OverrideActive", override.override, message, Who.TIME, actions=(end,))
    for key in state.suspended:
        message = "the controller changes nothing about it while it is suspended"
        resume = ResumeObject(key)
        yield Wait(Sort.SUSPENDED, "Suspended", key, message, Who.PERSON, actions=(resume,))


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
    elif reason and not (resource.key == (state.writer or state.key) and state.newest.verdict in _BAD):
        yield Wait(Sort.PROBLEM, reason, resource.key, ready.message, Who.SYSTEM, ready.since)
    remote = status.condition(REMOTE_FLAGS)
    if resource.key.kind == featureflagconfiguration.KIND and remote.reason == _OLDER:
        yield Wait(Sort.GUARD, _OLDER, resource.key, remote.message, Who.PERSON, remote.since)


def _candidate_wait(state: SetState, layer: CandidateLayer) -> Wait:
    who = Who.SYSTEM
    if layer.reason in _TIME:
        who = Who.TIME
    elif layer.reason in _PEOPLE or layer.phase in {"Failed", "Abandoned"}:
        who = Who.PERSON
    return Wait(
        Sort.ROLLOUT,
        layer.reason or layer.phase or "Held",
        layer.rollout,
        candidate_text(layer),
        who,
        layer.since,
        tuple(_candidate_actions(state, layer)),
    )


def _candidate_actions(state: SetState, layer: CandidateLayer) -> Iterator[Action]:
    rollout, digest = layer.rollout, layer.candidate
    if layer.phase == "Abandoned":
        yield PromoteAbandoned(state.key, digest)
        return
    if not digest or not layer.phase or rollout in state.suspended:
        return
    if layer.phase == "Failed":
        yield Retry(rollout, digest)
        return
    if layer.reason in {"WaitingForApproval", "WaitingForPromotion"}:
        yield Approve(rollout, digest, layer.gate)
    if layer.reason == "OverrideEnded":
        yield ResumeCandidate(rollout, digest)
    if layer.reason == "Paused":
        yield Unpause(rollout)
    if layer.phase in {"Pending", "Progressing", "Paused", "WaitingPromotion", "Promoting"}:
        yield Abort(rollout, digest)
    if layer.phase in {"Pending", "Progressing", "Paused", "WaitingPromotion"}:
        yield Promote(rollout, digest)
