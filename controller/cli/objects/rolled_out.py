"""Which FlagRollout rolls changes of flags out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.parsed_spec import parse_spec
from controller.api.rollouts.flagrollout import FlagRolloutSpec
from controller.delivery.progress.overrides import names_of, set_name
from controller.delivery.state.state_words import candidate_text
from evaluator.flags.candidates import changed_flags, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.meta import Resource
    from controller.delivery.state.flag_state import FlagState
    from evaluator.flags.model import FlagSet


def rollouts_of_set(
    rollouts: Iterable[Resource], names: Iterable[str]
) -> list[tuple[Resource, FlagRolloutSpec]]:
    """The FlagRollouts that name a flag set by one of its names, the oldest first, with their specs; those
    that cannot be read, or are being deleted, are left out.
    """
    return sorted(_read_specs(rollouts, frozenset(names)), key=lambda pair: (pair[0].created, pair[0].name))


def _read_specs(
    rollouts: Iterable[Resource], names: frozenset[str]
) -> Iterator[tuple[Resource, FlagRolloutSpec]]:
    for rollout in rollouts:
        if set_name(rollout) in names and not rollout.deleting:
            try:
                yield rollout, parse_spec(FlagRolloutSpec, rollout)
            except InvalidSpecError:
                continue


def rollouts_by_flag(
    rollouts: Iterable[tuple[Resource, FlagRolloutSpec]], before: FlagSet, after: FlagSet
) -> dict[str, str]:
    """The names of the FlagRollouts that roll a change out, by the keys of its flags: of several for one flag
    the oldest.
    """
    names: dict[str, str] = {}
    for rollout, spec in rollouts:
        for key in changed_flags(after, before, spec.flags):
            names.setdefault(key, rollout.name)
    return names


def rollout_text(rollouts: Iterable[Resource], target: Resource, flag: FlagState) -> str | None:
    """How far the FlagRollout of a flag that an object delivers has come; None where there is none."""
    if flag.candidate is not None:
        return candidate_text(flag.candidate)
    here = [rollout for rollout in rollouts if rollout.namespace == target.namespace]
    for rollout, spec in rollouts_of_set(here, names_of(target)):
        if matches(spec.flags, flag.key):
            return f"FlagRollout {rollout.name} rolls its changes out"
    return None
