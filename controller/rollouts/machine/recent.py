"""The definitions that a flag had before its promoted one, for `spec.rollbackWindow`. Pure.

They are a stack for each flag: a promotion of one of them takes those off that came after it, since these
were taken back. An entry is `KEY=DIGEST`; `KEY=!DIGEST` marks a definition that an override hid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import CandidateStatus, FlagRolloutStatus
    from controller.rollouts.machine.observation import Observation

_MOST: Final = 64


def earlier_definitions(status: FlagRolloutStatus, flag: str) -> list[str]:
    """Return the entries of a flag without its key, the newest first."""
    parts = (entry.rpartition("=") for entry in status.recent_digests)
    return [digest for key, _, digest in parts if key == flag]


def with_promoted(
    status: FlagRolloutStatus, candidate: CandidateStatus, observation: Observation
) -> tuple[str, ...]:
    """Return the entries after the promotion of a candidate."""
    recent: list[str] = []
    others = [entry for entry in status.recent_digests if entry.rpartition("=")[0] not in candidate.flags]
    for key, definition in candidate.flags.items():
        earlier = earlier_definitions(status, key)
        before = observation.promoted_definitions.get(key)
        if definition in earlier:
            earlier = earlier[earlier.index(definition) + 1 :]
        elif before is not None and f"!{before}" not in earlier:
            earlier = [before, *earlier]
        recent += [f"{key}={digest}" for digest in earlier]
    return (*recent, *others)[:_MOST]


def with_overridden(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation
) -> FlagRolloutStatus:
    """Mark the definitions that overrides hide: nobody goes back to them without steps."""
    if spec.rollback_window is None:
        return status
    hidden = {key: observation.promoted_definitions.get(key) for key in observation.overrides}
    marks = [f"{key}=!{digest}" for key, digest in sorted(hidden.items()) if digest is not None]
    marks += [
        f"{key}=!{digest}"
        for candidate in status.candidates
        for key, digest in sorted(candidate.flags.items())
        if key in observation.overrides
    ]
    new = [mark for mark in marks if mark not in status.recent_digests]
    return status.model_copy(update={"recent_digests": (*new, *status.recent_digests)[:_MOST]})
