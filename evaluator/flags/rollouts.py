"""The definitions that are served of flags in a rollout, and the arm of a user. Pure."""

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
    """Users without targeting key, and users under an override: the share does not decide for them."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far the new definitions of some flags are rolled out."""

    name: str
    patterns: tuple[str, ...]
    """Patterns of the flags' keys."""
    promoted: FlagSet = field(compare=False)
    """The definitions for everybody who is not in the cohort."""
    promoted_name: str
    """The name of the promoted definitions, such as that of the object that has them, for comparison."""
    exposed: str = ""
    """The digest of the candidate that the cohort gets; empty: nobody gets one."""
    cohort: Cohort = field(default_factory=Cohort)
    salt: str = ""
    """The text before the targeting key in the hash that decides who is in the cohort."""
    step: str = ""
    """For people, such as `2/4`."""
    everyone: bool = False
    """Whether all get the candidate `exposed`."""
    only: str = ""
    """The one candidate that a deleted rollout still holds back; empty: any."""
    listed: bool = False
    """Whether only the status of the object names it: whose flags its patterns take is not known."""


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
    """Return the definitions that differ from the promoted ones, and who gets them."""
    candidate = candidate_of(desired, rollout.promoted, rollout.patterns, rollout.cohort.audiences)
    if not candidate.keys or (rollout.only and candidate.digest != rollout.only):
        return candidate, Reach.IDLE
    if candidate.digest != rollout.exposed:
        return candidate, Reach.HELD
    if rollout.everyone:
        return candidate, Reach.EVERYONE
    return candidate, Reach.HELD if candidate.misfits else Reach.EXPOSED


def with_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> dict[str, Flag]:
    """Return the served definitions of flags in rollouts, by key; of several rollouts, the first counts."""
    made: dict[str, Flag] = {}
    earlier: list[str] = []
    for rollout in rollouts:
        for key, flag in _flags_in_rollout(desired, rollout).items():
            if not matches(earlier, key):
                made.setdefault(key, flag)
        if not rollout.listed:
            earlier += rollout.patterns
    return made


def _flags_in_rollout(desired: FlagSet, rollout: Rollout) -> dict[str, Flag]:
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
    make = two.both if reach is Reach.EXPOSED else two.copy_promoted
    promoted = rollout.promoted.flags
    return {
        key: _mark(make(key), CONFIDENTIAL_KEY in promoted[key].metadata, marks) for key in candidate.keys
    }


def _mark(flag: Flag, confidential: bool, marks: Mapping[str, Scalar]) -> Flag:
    secret = {CONFIDENTIAL_KEY: True} if confidential else {}
    kept = {key: value for key, value in flag.metadata.items() if key not in _KEYS}
    return replace(flag, metadata=MappingProxyType({**kept, **secret, **marks}))


def arm_rule(flag: Flag) -> Json | None:
    """Return the rule whose result is the `Arm` of a user; it may use the set's `$evaluators`. None for a
    flag without a rollout's marks, or whose definition no rollout makes.
    """
    if ROLLOUT_KEY not in flag.metadata:
        return None
    cases: list[Json] = []
    if OVERRIDE_KEY in flag.metadata:
        overridden = True if flag.state is State.DISABLED else override_condition(flag)
        if overridden is None:
            return None
        cases += [overridden, Arm.EXCLUDED.value]
        beneath = without_override(flag)
        if beneath is None:
            return None
        flag = beneath
    cases += [{"!": [HAS_KEY]}, Arm.EXCLUDED.value]
    if ROLLOUT_STEP_KEY in flag.metadata:
        in_cohort = condition_of(flag)
        if in_cohort is None:
            return None
        cases += [in_cohort, Arm.CANDIDATE.value]
    return {"if": [*cases, Arm.BASELINE.value]}


def without_rollouts(flag_set: FlagSet, rollouts: Iterable[Rollout]) -> FlagSet:
    """Return a served set with the promoted definition of each flag that has a rollout's marks, without those
    whose promoted definition is not known.
    """
    marked = {key for key, flag in flag_set.flags.items() if ROLLOUT_KEY in flag.metadata}
    if not marked:
        return flag_set
    flags = {key: flag for key, flag in flag_set.flags.items() if key not in marked}
    for rollout in rollouts:
        copier = RuleCopier(rollout.promoted.evaluators, flag_set.evaluators)
        for key in (marked & rollout.promoted.flags.keys()) - flags.keys():
            flags[key] = copier.copy_flag(rollout.promoted.flags[key])
    return replace(flag_set, flags=MappingProxyType(flags))
