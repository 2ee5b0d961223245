"""How far a revision has come, what keeps the newest from everybody, and what may be done about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagoverride, flagrollout
from controller.api.kinds import FLAG_SOURCE, status_of
from controller.api.records import FLUX_SOURCES
from controller.api.status import READY, REMOTE_FLAGS
from controller.delivery.actions import (
    Abort,
    AcceptRevision,
    Action,
    Approve,
    EndOverride,
    FixFlag,
    Promote,
    PromoteAbandoned,
    ResumeCandidate,
    ResumeObject,
    Retry,
    Sort,
    Unpause,
    Wait,
    Who,
)
from controller.delivery.digests import names_revision
from controller.delivery.flag_state import held_text
from controller.delivery.set_state import CandidateLayer, Layer, Reach, SetState, Verdict
from controller.delivery.state_words import (
    NAMED,
    candidate_text,
    end_text,
    laggard_texts,
    layers_text,
    names_text,
    override_text,
    served_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.flagset_status import HistoryEntry
    from controller.api.meta import ObjectKey, Resource


_STOPPED: Final = frozenset({"Failed", "Abandoned"})
"""Phases of candidates that only a person has rolled out again."""


@dataclass(frozen=True, slots=True)
class ReachTarget:
    """What is asked about."""

    revision: str
    """`main@sha1:…`, or a commit, or the beginning of one."""
    percent: float = 100.0
    """How many of the evaluators count as all."""
    allow_none: bool = False
    """Whether it is enough that there is no evaluator."""
    everybody: bool = False
    """Whether every user must get all of its flags."""
    rollout: str = ""
    """With `everybody`: the FlagRollout whose flags alone count; empty: all flags."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a revision has come."""

    level: Reach
    message: str
    """The same for people, in one line."""
    done: bool = False
    """Whether that is as far as was asked for."""
    blocked: bool = False
    """Whether it comes no further until a person changes something."""
    laggards: tuple[str, ...] = ()
    """The evaluators that do not serve it, as far as proxies name them."""


def reach(state: SetState, target: ReachTarget) -> Reached:
    """Return how far a revision has come."""
    entry = _entry(state, target.revision)
    if not state.exists:
        known = _before_delivery(state, target, entry)
        missing = f"{state.object_text} does not exist yet"
        return known if known.blocked else replace(known, message=missing)
    if not state.processed:
        level = Reach.APPLIED if entry is not None and not entry.held else Reach.UNKNOWN
        return Reached(level, f"the controller has not processed {state.object_text} yet")
    partly = bool(entry.held) if entry is not None else state.writer is None and state.newest.blocked
    # Also a commit that changed no flag made what is in the object.
    same = entry is not None and state.digests.has(entry.digest)
    if not state.digests.agree or partly or not (same or names_revision(target.revision, state.revision)):
        return _before_delivery(state, target, entry)
    return _after_delivery(state, target)


def _entry(state: SetState, wanted: str) -> HistoryEntry | None:
    """The newest entry of a revision among those that were applied."""
    return next((entry for entry in state.history if names_revision(wanted, entry.revision)), None)


def _before_delivery(state: SetState, target: ReachTarget, entry: HistoryEntry | None) -> Reached:
    """The object does not have the revision, or not whole."""
    wanted, newest, revision = target.revision, state.newest, state.revision or "no revision"
    writer = state.writer
    attempted = newest.revision
    if writer is not None and writer in state.suspended:
        message = f"{writer.kind} {writer.name} is suspended, with {revision} applied"
        level = Reach.FETCHED if names_revision(wanted, attempted) else Reach.UNKNOWN
        return Reached(level, message, blocked=True)
    partly = entry is not None and bool(entry.held)
    if names_revision(wanted, attempted) and (entry is None or partly):
        lacking = "applied whole" if entry or newest.verdict is Verdict.PARTLY else "applied"
        # The message of a refusal begins with the revision, and says what became of it.
        message = newest.message if newest.message.startswith(attempted) else f"{attempted} is not {lacking}"
        if newest.message and message != newest.message:
            message = f"{message}: {newest.message}"
        return Reached(Reach.FETCHED, message, blocked=newest.blocked)
    if partly:
        message = f"{wanted} was applied only in part, and {attempted} has replaced it"
        return Reached(Reach.FETCHED, message)
    level = Reach.UNKNOWN if entry is None else Reach.APPLIED
    if names_revision(wanted, revision) or names_revision(wanted, state.applied):
        content = "the content that the FlagSet built from"
        return Reached(level, f"{state.object_text} does not have {content} {wanted}")
    if entry is not None:
        return Reached(level, f"{wanted} was applied, and {state.applied} has replaced it")
    unready = writer is not None and newest.message and newest.verdict is not Verdict.APPLIED
    why = f"; the FlagSet is not ready: {newest.message}" if unready else ""
    return Reached(level, f"{state.object_text} has {revision}, not {wanted}{why}")


def _after_delivery(state: SetState, target: ReachTarget) -> Reached:
    served, withheld = state.served, state.withheld
    counted = served_text(served, state.revision or state.digests.effective)
    message = "; ".join(filter(None, (counted, layers_text(withheld))))
    total = served.total or 0
    enough = served.count * 100 >= target.percent * total if total else target.allow_none
    level = Reach.DELIVERED
    if enough and total:
        whole = not withheld and served.count == total
        level = Reach.SERVED_BY_ALL if whole else Reach.SERVED_IN_PART
    counted_layers = [layer for layer in withheld if _counts(layer, target)]
    stopped = any(isinstance(layer, CandidateLayer) and layer.phase in _STOPPED for layer in counted_layers)
    return Reached(level, message, enough and not counted_layers, stopped, laggard_texts(served))


def _counts(layer: Layer, target: ReachTarget) -> bool:
    """Whether a layer that withholds flags keeps the target from being reached."""
    named = isinstance(layer, CandidateLayer) and layer.rollout.name == target.rollout
    return target.everybody and (named or not target.rollout)


_GUARDS: Final = {"PruneGuard", "HistoryRewritten"}
_OLDER: Final = "OlderVersion"
_ROLLED_BACK: Final = "RolledBack"
_OTHERS: Final = frozenset(
    {FLAG_SOURCE.kind, *(type_.kind for type_ in FLUX_SOURCES), flagoverride.KIND, flagrollout.KIND}
)
_BAD: Final = frozenset({Verdict.PARTLY, Verdict.REFUSED})
APPROVABLE: Final = frozenset({"WaitingForApproval", "WaitingForPromotion"})
"""Reasons of candidates that an approval ends."""
_TIME: Final = frozenset({"Frozen", "OutsideWindow", "WaitingForDate"})
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
        message = "; ".join(held_text(flag, newest.problems) for flag in state.held[:NAMED])
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
