"""What is served of flags whose new definitions are rolled out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.candidates import Candidate, candidate_of, matches
from evaluator.flags.model import CONFIDENTIAL_KEY, Flag, FlagSet, State
from evaluator.flags.overrides import OVERRIDE_KEY, override_condition, without_override
from evaluator.flags.rollout_rules import HAS_KEY, Cohort, TwoDefinitions, condition_of
from evaluator.flags.rule_copies import RuleCopier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evaluator.flags.model import Json, Scalar

ROLLOUT_KEY: Final = "flagstaff.dev/rollout"
"""Metadata key of a flag whose new definition is not everybody's yet: the rollout's name."""
ROLLOUT_STEP_KEY: Final = "flagstaff.dev/rollout-step"
"""The step, such as `2/4`; absent where nobody gets the new definition."""
ROLLOUT_SHARE_KEY: Final = "flagstaff.dev/rollout-share"
"""Percent of users who get the new definition, as text: `10`, `0.25`."""
ROLLOUT_CANDIDATE_KEY: Final = "flagstaff.dev/rollout-candidate"
"""The digest of the new definitions."""
ROLLOUT_ARM_KEY: Final = "flagstaff.dev/rollout-arm"
"""Metadata key of an answer: the arm of the user that it is for."""
_KEYS: Final = frozenset(
    {ROLLOUT_KEY, ROLLOUT_STEP_KEY, ROLLOUT_SHARE_KEY, ROLLOUT_CANDIDATE_KEY, ROLLOUT_ARM_KEY}
)


class Arm(StrEnum):
    """Which definition a user gets."""

    CANDIDATE = "candidate"
    BASELINE = "baseline"
    EXCLUDED = "excluded"
    """Not one that the share decides: of users without targeting key, or under an override."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far the new definitions of some flags are rolled out."""

    name: str
    patterns: tuple[str, ...]
    """Patterns of the flags' keys."""
    promoted: FlagSet = field(compare=False)
    """The definitions for everybody who is not in the cohort."""
    promoted_name: str
    """What tells them from other promoted definitions, such as the name of the object that has them."""
    exposed: str = ""
    """The digest of the candidate that the cohort gets; empty: nobody gets one."""
    cohort: Cohort = field(default_factory=Cohort)
    salt: str = ""
    """Before the targeting key, where users are drawn."""
    step: str = ""
    """For people, such as `2/4`."""
    everyone: bool = False
    """Whether all get the candidate `exposed`."""
    only: str = ""
    """The one candidate that is held back, of a rollout that is gone; empty: any."""


class Reach(StrEnum):
    """Who gets new definitions."""

    IDLE = "Idle"
    """Nothing differs."""
    HELD = "Held"
    """Nobody."""
    EXPOSED = "Exposed"
    """The cohort."""
    EVERYONE = "Everyone"


def reach_of(desired: FlagSet, rollout: Rollout) -> tuple[Candidate, Reach]:
    """What differs from the promoted definitions, and who gets it."""
    candidate = candidate_of(desired, rollout.promoted, rollout.patterns, rollout.cohort.audiences)
    if not candidate.keys or (rollout.only and candidate.digest != rollout.only):
        return candidate, Reach.IDLE
    if candidate.digest != rollout.exposed:
        return candidate, Reach.HELD
    if rollout.everyone:
        return candidate, Reach.EVERYONE
    return candidate, Reach.HELD if candidate.misfits else Reach.EXPOSED


def with_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> dict[str, Flag]:
    """What the rollouts make of flags, by key; of several for one flag, the first counts."""
    made: dict[str, Flag] = {}
    earlier: list[str] = []
    for rollout in rollouts:
        for key, flag in _rolled_out(desired, rollout).items():
            if not matches(earlier, key):
                made.setdefault(key, flag)
        if not rollout.only:
            earlier += rollout.patterns
    return made


def _rolled_out(desired: FlagSet, rollout: Rollout) -> dict[str, Flag]:
    candidate, reach = reach_of(desired, rollout)
    if reach in (Reach.IDLE, Reach.EVERYONE):
        return {}
    two = TwoDefinitions(desired, rollout.promoted, rollout.cohort, rollout.salt)
    marks: dict[str, Scalar] = {
        ROLLOUT_KEY: rollout.name,
        ROLLOUT_SHARE_KEY: "0",
        ROLLOUT_CANDIDATE_KEY: candidate.digest,
    }
    if reach is Reach.EXPOSED:
        marks |= {ROLLOUT_STEP_KEY: rollout.step, ROLLOUT_SHARE_KEY: rollout.cohort.percent}
    make = two.both if reach is Reach.EXPOSED else two.promoted
    promoted = rollout.promoted.flags
    return {
        key: _mark(make(key), CONFIDENTIAL_KEY in promoted[key].metadata, marks) for key in candidate.keys
    }


def _mark(flag: Flag, confidential: bool, marks: Mapping[str, Scalar]) -> Flag:
    secret = {CONFIDENTIAL_KEY: True} if confidential else {}
    kept = {key: value for key, value in flag.metadata.items() if key not in _KEYS}
    return replace(flag, metadata=MappingProxyType({**kept, **secret, **marks}))


def arm_rule(flag: Flag) -> Json | None:
    """The rule that gives the arm of a user, an `Arm`, with the set's `$evaluators`; None for a flag that no
    rollout marks, or whose definition is none that a rollout makes.
    """
    if ROLLOUT_KEY not in flag.metadata:
        return None
    cases: list[Json] = []
    if OVERRIDE_KEY in flag.metadata:
        overridden = True if flag.state is State.DISABLED else override_condition(flag)
        if overridden is None:
            return None
        cases += [overridden, Arm.EXCLUDED.value]
        flag = without_override(flag)
    cases += [{"!": [HAS_KEY]}, Arm.EXCLUDED.value]
    if ROLLOUT_STEP_KEY in flag.metadata:
        in_cohort = condition_of(flag)
        if in_cohort is None:
            return None
        cases += [in_cohort, Arm.CANDIDATE.value]
    return {"if": [*cases, Arm.BASELINE.value]}


def without_rollouts(flag_set: FlagSet, rollouts: Iterable[Rollout]) -> FlagSet:
    """Return a set that was served, with the promoted definition of each flag that a rollout marks; those of
    which none is known are left out.
    """
    marked = {key for key, flag in flag_set.flags.items() if ROLLOUT_KEY in flag.metadata}
    if not marked:
        return flag_set
    flags = {key: flag for key, flag in flag_set.flags.items() if key not in marked}
    for rollout in rollouts:
        copier = RuleCopier(rollout.promoted.evaluators, flag_set.evaluators)
        for key in (marked & rollout.promoted.flags.keys()) - flags.keys():
            flag = rollout.promoted.flags[key]
            flags[key] = replace(flag, targeting=copier.copy(flag.targeting))
    return replace(flag_set, flags=MappingProxyType(flags))
