"""A flag in a rollout: each answer names the arm, which is computed from the same evaluation context. Pure.

Each arm has answers of its own, so that they are cached like those of any other flag.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.checking.references import RuleTooLarge
from evaluator.flags.rollouts import ROLLOUT_ARM_KEY, ROLLOUT_CANDIDATE_KEY, Arm
from evaluator.resolving.compiled_flag import CompiledFlag
from evaluator.resolving.resolution import ErrorCode
from evaluator.targeting import STEPS, Frame, RuleError, compile_rule
from evaluator.targeting.scope import fail_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.flags.model import Flag, Json
    from evaluator.resolving.compiled_flag import FlagSetOf
    from evaluator.resolving.resolution import FlagType, Resolution
    from evaluator.targeting.frame import Evaluate


class RolloutFlag(CompiledFlag):
    """One flag in a rollout, with the answers of each arm."""

    __slots__ = ("_arm", "revision")

    def __init__(self, flag: Flag, flags: FlagSetOf, arm_rule: Json) -> None:
        """arm_rule: a rule whose result is the text of an Arm."""
        super().__init__(flag, flags)
        self.revision = str(flag.metadata.get(ROLLOUT_CANDIDATE_KEY, ""))
        """The digest of the candidate."""
        try:
            rule = compile_rule(flags.expand(arm_rule), bucketing=flags.bucketing_of(flag), flag_key=flag.key)
            choose, reads_flagd = rule.run, rule.reads_flagd
        except RuleTooLarge as excess:
            choose, reads_flagd = fail_with(str(excess)), False
        self._arm = partial(_arm, choose)
        arms: dict[str | None, CompiledFlag] = {
            arm.value: CompiledFlag(_with_arm(flag, arm), flags, self) for arm in Arm
        }
        # None of these refers back to this object, so a replaced set is freed without the garbage collector.
        self.run = partial(_run, arms, self._arm, self.run)
        self.reads_flagd = self.reads_flagd or reads_flagd

    def arm_of(self, context: Mapping[str, Json], now: int) -> str | None:
        """Return the arm of an evaluation context; None where its rule fails. now: Unix seconds."""
        if self.reads_flagd:
            context = {**context, "$flagd": {"flagKey": self.flag.key, "timestamp": now}}
        return self._arm(context)

    def targeted_resolution(self, result: Json, wanted: FlagType | None) -> Resolution:
        """Return the answer for a result of `_run`."""
        flag, value = result
        if flag is None:
            return super().targeted_resolution(value, wanted)
        if isinstance(value, RuleError):
            error: Resolution = flag.error_resolution(ErrorCode.PARSE_ERROR, str(value))
            return error
        answer: Resolution = flag.targeted_resolution(value, wanted)
        return answer


def _arm(choose: Evaluate, context: Json) -> str | None:
    frame = Frame()
    # A trace has the steps of the flag's own rule only.
    frame.steps_left, frame.trace = STEPS, None
    try:
        return str(choose(context, frame))
    except (RuleError, RecursionError):
        return None


def _run(
    arms: Mapping[str | None, CompiledFlag],
    arm_of: Callable[[Json], str | None],
    rule: Evaluate | None,
    context: Json,
    frame: Frame,
) -> tuple[CompiledFlag | None, Json]:
    """Return (the flag with the arm's answers, the result of the flag's rule or its error)."""
    flag = arms.get(arm_of(context))
    if rule is None:
        return flag, None
    try:
        return flag, rule(context, frame)
    except RuleError as error:
        if flag is None:
            raise
        return flag, error


def _with_arm(flag: Flag, arm: Arm) -> Flag:
    return replace(flag, metadata=MappingProxyType({**flag.metadata, ROLLOUT_ARM_KEY: arm.value}))
