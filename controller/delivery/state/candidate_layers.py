"""The candidates of FlagRollouts over the flags of one object: what is served of them, by the object's own
status, and why, by the status of the FlagRollout. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import ObjectKey
from controller.api.rollouts import flagrollout
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.delivery.state.set_state import CandidateLayer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from controller.api.objects.meta import Resource
    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.api.rollouts.served_rollout import ServedRollout
    from controller.delivery.state.set_state import Users

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
        candidate = _candidate(by_name.get(entry.name), layer.candidate)
        if candidate is not None:
            known = layer_of(layer.rollout, candidate)
            layer = replace(known, users=layer.users, step=layer.step, share=layer.share)
        yield layer


def _candidate(rollout: Resource | None, digest: str) -> CandidateStatus | None:
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
