"""Flag sets as they are served while a rollout is under way."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import candidate_digest, changed_flags
from evaluator.flags.canonical import digest
from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import Exposure, Rollout

if TYPE_CHECKING:
    from evaluator.flags.overrides import Override

VARIANTS = {"on": True, "off": False}
OLD = Flag("new-checkout", State.ENABLED, MappingProxyType(VARIANTS), "off")
NEW = replace(OLD, default_variant="on")
PLAIN = Flag("banner", State.ENABLED, MappingProxyType(VARIANTS), "on")
"""A flag that is in no rollout."""


def flags(*several: Flag) -> FlagSet:
    """A flag set of these."""
    return FlagSet(MappingProxyType({flag.key: flag for flag in several}))


def rolled_out(
    share: float,
    *,
    old: Flag = OLD,
    new: Flag = NEW,
    step: str = "2/4",
    audiences: tuple[Any, ...] = (),
    overrides: tuple[Override, ...] = (),
) -> FlagSet:
    """What is served of a change from `old` to `new` at a share of users, in percent, and of PLAIN."""
    desired, promoted = flags(new, PLAIN), flags(old)
    changed = changed_flags(desired, promoted, ("new-*",))
    exposure = Exposure(
        candidate_digest(changed),
        changed,
        Cohort(round(share * 100), audiences) if step else None,
        salt="checkout/0a1b2c3d",
        step=step,
    )
    rollout = Rollout("checkout", ("new-*",), promoted, digest(promoted), (exposure,))
    return effective(desired, Progress(overrides, (rollout,)))
