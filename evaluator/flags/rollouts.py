"""The definitions that are served of flags in a rollout, and the arm of a user. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.candidates import changed_flags, matches, misfits
from evaluator.flags.diff import RuleCopier
from evaluator.flags.model import (
    BUCKETING_KEY,
    CONFIDENTIAL_KEY,
    Bucketing,
    Flag,
    FlagSet,
    Json,
    Scalar,
    State,
)
from evaluator.flags.overrides import OVERRIDE_KEY, override_condition, without_override
from evaluator.flags.rollout_rules import HAS_KEY, Cohort, TwoDefinitions, cohort_condition, condition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


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
class Exposure:
    """One candidate of a rollout: the definitions that one commit changed, and who gets them."""

    candidate: str
    """Its digest, `sha256:<hex>`."""
    flags: Mapping[str, str]
    """The `definition_digest` of each flag by key. A flag with another definition is not exposed."""
    cohort: Cohort | None = None
    """Who gets the definitions; None: nobody."""
    salt: str = ""
    """The text before the targeting key in the hash that decides who is in the cohort."""
    step: str = ""
    """For people, such as `2/4`."""
    everyone: bool = False
    """Whether all get the definitions."""
    bucketing: Bucketing | None = None
    """The generation of `fractional` since the candidate was exposed; None: that of each evaluator."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far the new definitions of some flags are rolled out."""

    name: str
    patterns: tuple[str, ...]
    """Patterns of the flags' keys."""
    promoted: FlagSet = field(compare=False)
    """The definitions for everybody who gets no new one."""
    promoted_name: str
    """The name of the promoted definitions, such as that of the object that has them, for comparison."""
    exposures: tuple[Exposure, ...] = ()
    """Its candidates. A flag that differs and is in none of them is held back."""
    gone: bool = False
    """Whether it is deleted: it holds back the definitions of its candidates alone."""
    listed: bool = False
    """Whether only the status of the object names it: whose flags its patterns take is not known."""


class CohortReach(StrEnum):
    """Who gets new definitions."""

    IDLE = "Idle"
    """Nothing differs."""
    HELD = "Held"
    """Nobody."""
    EXPOSED = "Exposed"
    """The cohort."""
    EVERYONE = "Everyone"


@dataclass(frozen=True, slots=True)
class CandidateReach:
    """Who gets the definitions of one candidate."""

    exposure: Exposure | None
    """The candidate; None: no candidate has the flags."""
    flags: Mapping[str, str]
    """The `definition_digest` of those of its flags that differ from the promoted ones, by key."""
    reach: CohortReach


def reach_of(desired: FlagSet, rollout: Rollout) -> tuple[CandidateReach, ...]:
    """Return who gets the definitions of each candidate, and of the flags that differ and are in none."""
    left = dict(changed_flags(desired, rollout.promoted, rollout.patterns))
    reached = []
    for exposure in rollout.exposures:
        flags = {key: left.pop(key) for key, wanted in exposure.flags.items() if left.get(key) == wanted}
        reached.append(CandidateReach(exposure, flags, _reach(desired, rollout.promoted, exposure, flags)))
    if left and not rollout.gone:
        reached.append(CandidateReach(None, left, CohortReach.HELD))
    return tuple(reached)


def _reach(desired: FlagSet, promoted: FlagSet, exposure: Exposure, keys: Collection[str]) -> CohortReach:
    if not keys:
        return CohortReach.IDLE
    if exposure.everyone:
        return CohortReach.EVERYONE
    cohort = exposure.cohort
    if cohort is None or misfits(desired, promoted, keys, (*cohort.audiences, *cohort.excluded)):
        return CohortReach.HELD
    return CohortReach.EXPOSED


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
    reached = [
        one for one in reach_of(desired, rollout) if one.reach in (CohortReach.HELD, CohortReach.EXPOSED)
    ]
    if not reached:
        return {}
    two, promoted = TwoDefinitions(desired, rollout.promoted), rollout.promoted.flags
    made: dict[str, Flag] = {}
    for candidate in reached:
        exposure = candidate.exposure
        marks: dict[str, Scalar] = {ROLLOUT_KEY: rollout.name, ROLLOUT_SHARE_KEY: "0"}
        if exposure is not None:
            marks[ROLLOUT_CANDIDATE_KEY] = exposure.candidate
        make = two.copy_promoted
        if exposure is not None and exposure.cohort is not None and candidate.reach is CohortReach.EXPOSED:
            marks |= {ROLLOUT_STEP_KEY: exposure.step, ROLLOUT_SHARE_KEY: exposure.cohort.percent}
            make = partial(two.both, condition=cohort_condition(exposure.cohort, exposure.salt))
        for key in candidate.flags:
            made[key] = _mark(make(key), CONFIDENTIAL_KEY in promoted[key].metadata, marks)
    return made


def metadata_in_rollouts(desired: FlagSet, rollouts: Iterable[Rollout]) -> Mapping[str, Scalar]:
    """Return the metadata of the served set: a candidate keeps the generation of `fractional` of its first
    exposure, by which its users are drawn, and so does the whole set until the candidate ends. A candidate
    that is exposed records the generation that is returned here.
    """
    exposures = (exposure for rollout in rollouts for exposure in rollout.exposures)
    first = next((exposure for exposure in exposures if exposure.cohort is not None), None)
    if first is None or desired.metadata.get(BUCKETING_KEY) == first.bucketing:
        return desired.metadata
    kept = {key: value for key, value in desired.metadata.items() if key != BUCKETING_KEY}
    own = {} if first.bucketing is None else {BUCKETING_KEY: first.bucketing.value}
    return MappingProxyType({**kept, **own})


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
