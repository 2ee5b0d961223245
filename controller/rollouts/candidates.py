"""The candidates of a FlagRollout: which flags that differ are rolled out together. Pure.

What differs newly at one observation is what one commit changed, and is one candidate. A flag is in one
candidate at most; a later definition takes it out of its candidate, and leaves the others of that alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.rollout_status import (
    AbsentFlag,
    CandidateStatus,
    FlagRolloutStatus,
    Outcome,
    StoppedDefinition,
)
from controller.delivery.actions import Retry
from controller.rollouts.advance import about_candidate, outcome_of
from controller.rollouts.gates import flags_text, name_of
from controller.rollouts.observation import Commit, Observation
from controller.runtime.event import Occurrence
from evaluator.flags.candidates import candidate_digest
from evaluator.host.times import parse_time, precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from controller.api.flagrollout import FlagRolloutSpec

MOST: Final = 32
"""Most candidates of a status."""
_MOST_STOPPED: Final = 200
"""Most flags of which a status remembers a definition that was stopped, or since when they are absent."""
_HISTORY: Final = 20
_SALT_DIGITS: Final = 8
_LISTED: Final = 10
STOPPED: Final = frozenset({"Failed", "RollingBack"})
"""Phases in which nobody is to get a candidate before somebody retries or promotes it."""


class Grouping(NamedTuple):
    """The candidates of one observation."""

    status: FlagRolloutStatus
    events: tuple[Occurrence, ...] = ()
    new: frozenset[str] = frozenset()
    """The digests of those that were not there before: no decision about them is made yet."""


class _Rest(NamedTuple):
    """What an observation leaves of one candidate."""

    parts: tuple[CandidateStatus, ...]
    superseded: dict[str, str]
    """Its flags that have a later definition."""
    gone: tuple[str, ...]
    """Its flags that are no longer to be rolled out."""


def group(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Grouping:
    """Return the status with the candidates that the flags make now."""
    stopped = _within_retention(spec, status.stopped, now)
    kept: list[CandidateStatus] = []
    rests: list[tuple[CandidateStatus, _Rest]] = []
    for candidate in status.candidates:
        rest = _rest_of(candidate, observation)
        kept += rest.parts
        rests.append((candidate, rest))
    listed = {key for candidate in kept for key in candidate.flags}
    new = {key: digest for key, digest in observation.flags.items() if key not in listed}
    bad = {(entry.flag, entry.definition): entry for entry in stopped}
    again = {key: digest for key, digest in new.items() if (key, digest) in bad}
    fresh = {key: digest for key, digest in new.items() if key not in again}
    events: list[Occurrence] = []
    made: list[CandidateStatus] = []
    if again and len(kept) + len(made) < MOST:
        entry = next(bad[one] for one in again.items())
        made.append(_stopped_candidate(again, entry, observation))
        events += about_candidate(made[-1], (_again_event(made[-1], entry, observation),))
    if fresh and len(kept) + len(made) < MOST:
        made.append(_fresh_candidate(fresh, observation, rests))
    history = status.history
    for candidate, rest in rests:
        told, outcome = _ending(candidate, rest, made, status.absent, spec, now)
        events += about_candidate(candidate, told)
        history = (*((outcome,) if outcome is not None else ()), *history)
    candidates = _start_queued(spec, (*kept, *made))
    before = {candidate.digest for candidate in status.candidates}
    grouped = status.model_copy(
        update={
            "candidates": candidates,
            "stopped": stopped,
            "absent": _absent(status.absent, observation.absent, now),
            "history": history[:_HISTORY],
        }
    )
    fresh_digests = frozenset(candidate.digest for candidate in candidates) - before
    return Grouping(grouped, tuple(events), fresh_digests)


def missing_reason(candidate: CandidateStatus, observation: Observation) -> str:
    """Return why no flag of a candidate can be served: `FlagAbsent` or `FlagDisabled`; empty: one can."""
    if any(observation.flags.get(key) == digest for key, digest in candidate.flags.items()):
        return ""
    return "FlagAbsent" if any(key in observation.absent for key in candidate.flags) else "FlagDisabled"


def kept_keys(
    spec: FlagRolloutSpec,
    status: FlagRolloutStatus,
    absent: Iterable[str],
    disabled: Collection[str],
    now: datetime,
) -> frozenset[str]:
    """Return the keys of flags whose promoted definitions stay although Git does not serve them: of absent
    flags for a time, of disabled ones while a candidate has them. `absent`, `disabled`: keys of flags with
    promoted definitions.
    """
    entries = {entry.flag: entry for entry in status.absent}
    fresh = [key for key in absent if key not in entries]
    known = [entries[key] for key in absent if key in entries]
    known = sorted((entry for entry in known if _is_kept(spec, entry, now)), key=lambda entry: entry.since)
    newest = (*sorted(fresh), *(entry.flag for entry in reversed(known)))[:_MOST_STOPPED]
    in_candidates = {key for candidate in status.candidates for key in candidate.flags}
    return frozenset(newest) | (in_candidates & set(disabled))


def _rest_of(candidate: CandidateStatus, observation: Observation) -> _Rest:
    here, away, superseded, gone = {}, {}, {}, []
    for key, digest in candidate.flags.items():
        now = observation.flags.get(key)
        if now == digest:
            here[key] = digest
        elif now is not None:
            superseded[key] = now
        elif key in observation.absent or key in observation.disabled:
            away[key] = digest
        else:
            gone.append(key)
    if candidate.phase in STOPPED or not (here and away):
        flags = {key: digest for key, digest in candidate.flags.items() if key in here or key in away}
        parts = [candidate.model_copy(update={"flags": flags})] if flags else []
    else:
        # The flags that are not served wait at their step; the others go on.
        apart = candidate.model_copy(update={"digest": candidate_digest(away), "flags": away})
        parts = [candidate.model_copy(update={"flags": here}), apart]
    return _Rest(tuple(parts), superseded, tuple(gone))


def _fresh_candidate(
    flags: Mapping[str, str], observation: Observation, rests: Iterable[tuple[CandidateStatus, _Rest]]
) -> CandidateStatus:
    """Return a candidate of new definitions. It has the users of one that it takes over as a whole."""
    digest = candidate_digest(flags)
    own = f"{observation.rollout.name}/{digest.partition(':')[2][:_SALT_DIGITS]}"
    emptied = (
        candidate.salt
        for candidate, rest in rests
        if not rest.parts and rest.superseded and rest.superseded.keys() <= flags.keys()
    )
    commit = _commit_of(flags, observation)
    return CandidateStatus(
        digest=digest,
        revision=commit.revision,
        author=commit.author,
        flags=dict(flags),
        phase="Queued",
        salt=next(filter(None, emptied), own),
    )


def _stopped_candidate(
    flags: Mapping[str, str], entry: StoppedDefinition, observation: Observation
) -> CandidateStatus:
    candidate = _fresh_candidate(flags, observation, ())
    why = {"phase": "Failed", "reason": entry.outcome, "message": entry.reason, "post_rollout_at": entry.at}
    return candidate.model_copy(update=why)


def _again_event(
    candidate: CandidateStatus, entry: StoppedDefinition, observation: Observation
) -> Occurrence:
    did = "aborted" if entry.outcome == "Aborted" else "rolled back"
    why = f": {entry.reason}" if entry.reason else ""
    retry = observation.advise(Retry(observation.rollout, candidate.digest))
    text = (
        f"{name_of(candidate)} has definitions that were {did} at {entry.at}{why}; they are not rolled out "
        f"again before somebody retries: {retry}"
    )
    flags = tuple(sorted(candidate.flags))[:_LISTED]
    return Occurrence("StoppedBefore", text, warning=True, flags=flags)


def _commit_of(flags: Mapping[str, str], observation: Observation) -> Commit:
    return next((observation.commits[key] for key in flags if key in observation.commits), Commit())


def _ending(
    candidate: CandidateStatus,
    rest: _Rest,
    made: Iterable[CandidateStatus],
    absent: Iterable[AbsentFlag],
    spec: FlagRolloutSpec,
    now: datetime,
) -> tuple[list[Occurrence], Outcome | None]:
    """Return the Events of the flags that left a candidate, and its outcome if none stayed."""
    events = []
    stays = f"; {flags_text(rest.parts[0].flags)} goes on as before" if rest.parts else ""
    flags = tuple(sorted(candidate.flags))[:_LISTED]
    if rest.superseded:
        later = next((one for one in made if rest.superseded.keys() & one.flags.keys()), None)
        by = name_of(later) if later is not None else "a later commit"
        text = f"{_part_text(candidate, rest.superseded)} is superseded by {by}{stays}"
        events.append(Occurrence("RolloutSuperseded", text, flags=flags))
    dropped = {entry.flag for entry in absent if not _is_kept(spec, entry, now)}
    removed = [key for key in rest.gone if key in dropped]
    if reverted := [key for key in rest.gone if key not in dropped]:
        text = f"Git has the promoted definitions again in place of {_part_text(candidate, reverted)}{stays}"
        events.append(Occurrence("RolloutReverted", text, flags=flags))
    if rest.parts or candidate.phase in STOPPED:
        # What was stopped is in the history already.
        return events, None
    if rest.superseded:
        return events, outcome_of(candidate, "Superseded", events[0].message, now)
    if reverted:
        return events, outcome_of(candidate, "Reverted", "Git has the promoted definitions again", now)
    return events, outcome_of(candidate, "Removed", f"{flags_text(removed)} was absent for too long", now)


def _part_text(candidate: CandidateStatus, keys: Iterable[str]) -> str:
    keys = set(keys)
    name = name_of(candidate)
    return name if keys == candidate.flags.keys() else f"{flags_text(keys)} of {name}"


def _is_kept(spec: FlagRolloutSpec, entry: AbsentFlag, now: datetime) -> bool:
    since = parse_time(entry.since)
    return since is None or now < since + timedelta(seconds=spec.retention)


def _absent(known: Iterable[AbsentFlag], keys: frozenset[str], now: datetime) -> tuple[AbsentFlag, ...]:
    since = {entry.flag: entry.since for entry in known}
    return tuple(AbsentFlag(flag=key, since=since.get(key, precise_timestamp(now))) for key in sorted(keys))


def _within_retention(
    spec: FlagRolloutSpec, stopped: Iterable[StoppedDefinition], now: datetime
) -> tuple[StoppedDefinition, ...]:
    oldest = now - timedelta(seconds=spec.retention)
    return tuple(entry for entry in stopped if (parse_time(entry.at) or now) > oldest)


def with_stopped(
    stopped: tuple[StoppedDefinition, ...], candidate: CandidateStatus, outcome: Outcome, now: datetime
) -> tuple[StoppedDefinition, ...]:
    """Return the definitions that are not tried again, with those of a candidate that was stopped."""
    new = tuple(
        StoppedDefinition(
            flag=key,
            definition=definition,
            outcome="Aborted" if outcome.outcome == "Aborted" else "RolledBack",
            revision=candidate.revision,
            reason=outcome.reason,
            at=precise_timestamp(now),
        )
        for key, definition in candidate.flags.items()
    )
    return (*new, *without_stopped(stopped, candidate))[:_MOST_STOPPED]


def without_stopped(
    stopped: Iterable[StoppedDefinition], candidate: CandidateStatus
) -> tuple[StoppedDefinition, ...]:
    """Return the definitions that are not tried again, without those of a candidate."""
    return tuple(entry for entry in stopped if candidate.flags.get(entry.flag) != entry.definition)


def _start_queued(
    spec: FlagRolloutSpec, candidates: tuple[CandidateStatus, ...]
) -> tuple[CandidateStatus, ...]:
    """Let candidates begin, in their order, while no more than `maxConcurrent` run."""
    room = spec.max_concurrent - sum(is_running(candidate) for candidate in candidates)
    started = []
    for candidate in candidates:
        if candidate.phase == "Queued" and room > 0:
            room -= 1
            started.append(candidate.model_copy(update={"phase": "Pending"}))
        else:
            started.append(candidate)
    return tuple(started)


def is_running(candidate: CandidateStatus) -> bool:
    """Whether a candidate takes the place of another; one whose flags Git does not serve takes none."""
    away = candidate.reason in {"FlagAbsent", "FlagDisabled"}
    return candidate.phase not in {*STOPPED, "Queued"} and not away
