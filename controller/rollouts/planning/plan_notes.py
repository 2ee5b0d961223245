"""What a person should know of a planned rollout. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.delivery.state.state_words import names_text
from controller.rollouts.machine.people_requests import is_paused
from controller.rollouts.machine.reasons import name_of
from evaluator.flags.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.meta import Resource
    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import CandidateStatus
    from evaluator.flags.model import FlagSet


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
