"""What is served of flags whose new definitions are rolled out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.candidates import candidate_of, matches
from evaluator.flags.model import CONFIDENTIAL_KEY, Flag, FlagSet, State
from evaluator.flags.overrides import OVERRIDE_KEY, without_override
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
    promoted_digest: str
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


def with_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> dict[str, Flag]:
    """What the rollouts make of flags, by key; of several for one flag, the first counts."""
    made: dict[str, Flag] = {}
    earlier: list[str] = []
    for rollout in rollouts:
        own = _rolled_out(desired, rollout)
        made |= {key: flag for key, flag in own.items() if not matches(earlier, key)}
        earlier += rollout.patterns
    return made


def _rolled_out(desired: FlagSet, rollout: Rollout) -> dict[str, Flag]:
    candidate = candidate_of(desired, rollout.promoted, rollout.patterns, rollout.cohort.audiences)
    if not candidate.keys or (rollout.only and candidate.digest != rollout.only):
        return {}
    exposed = candidate.digest == rollout.exposed
    if exposed and rollout.everyone:
        return {}
    two = TwoDefinitions(desired, rollout.promoted, rollout.cohort, rollout.salt)
    marks: dict[str, Scalar] = {
        ROLLOUT_KEY: rollout.name,
        ROLLOUT_SHARE_KEY: "0",
        ROLLOUT_CANDIDATE_KEY: candidate.digest,
    }
    if exposed and not candidate.misfits:
        marks |= {ROLLOUT_STEP_KEY: rollout.step, ROLLOUT_SHARE_KEY: f"{rollout.cohort.share / 100:g}"}
        made = {key: two.both(key) for key in candidate.keys}
    else:
        made = {key: two.promoted(key) for key in candidate.keys}
    promoted = rollout.promoted.flags
    return {key: _mark(flag, CONFIDENTIAL_KEY in promoted[key].metadata, marks) for key, flag in made.items()}


def _mark(flag: Flag, confidential: bool, marks: Mapping[str, Scalar]) -> Flag:
    secret = {CONFIDENTIAL_KEY: True} if confidential else {}
    kept = {key: value for key, value in flag.metadata.items() if key not in _KEYS}
    return replace(flag, metadata=MappingProxyType({**kept, **secret, **marks}))


def arm_rule(flag: Flag) -> Json | None:
    """The rule that gives the arm of a user, an `Arm`; None for a flag that no rollout marks, or whose rule
    is not as a rollout makes it: a file may hold any mark.
    """
    if ROLLOUT_KEY not in flag.metadata:
        return None
    cases: list[Json] = []
    try:
        if OVERRIDE_KEY in flag.metadata:
            rule: Any = flag.targeting
            cases += [True if flag.state is State.DISABLED else rule["if"][0], Arm.EXCLUDED.value]
        cases += [{"!": [HAS_KEY]}, Arm.EXCLUDED.value]
        if ROLLOUT_STEP_KEY in flag.metadata:
            cases += [condition_of(without_override(flag)), Arm.CANDIDATE.value]
    except (TypeError, LookupError):
        return None
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
