"""What evaluators read: the desired definitions, except where progress puts others in their place. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Flag, FlagSet


@dataclass(frozen=True, slots=True)
class Progress:
    """What stands between the desired set and what is served: rollouts under way, overrides in force."""

    flags: Mapping[str, Flag] = field(default_factory=lambda: EMPTY)
    """Definitions to be served instead of the desired ones, by key."""


NO_PROGRESS: Final = Progress()


def effective(desired: FlagSet, progress: Progress = NO_PROGRESS) -> FlagSet:
    """The set to be served. A flag that is no longer desired is not brought back by progress."""
    instead = {key: flag for key, flag in progress.flags.items() if key in desired.flags}
    if not instead:
        return desired
    return replace(desired, flags=MappingProxyType({**desired.flags, **instead}))
