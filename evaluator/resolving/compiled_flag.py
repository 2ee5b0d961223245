"""One flag, compiled: its rule, and every answer that it has given; also one in a rollout. Pure.

Answers are made once per flag and reused, so a server may cache an encoded answer by the answer's identity.

In a rollout each answer names the arm, which is computed from the same evaluation context.

Each arm has answers of its own, so that they are cached like those of any other flag.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from evaluator.flags.model import ABSENT, Bucketing, Flag, Json, Scalar, State
from evaluator.flags.references import RuleTooLarge
from evaluator.flags.rollouts import ROLLOUT_ARM_KEY, ROLLOUT_CANDIDATE_KEY, Arm
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, FlagType, Resolution, coerce
from evaluator.targeting import STEPS, Frame, RuleError, Trace, compile_rule
from evaluator.targeting.frame import Evaluate, fail_with
from evaluator.targeting.values import kind, texts_in, variant_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_NAMED: Final = 5
"""Most variants that a message lists."""
_LONGEST: Final = 64
"""Most characters of a name in a message."""


class FlagSetOf(Protocol):
    """What a flag takes from the set that it is in."""

    def metadata_of(self, flag: Flag, /) -> Mapping[str, Scalar]:
        """The flag's metadata in responses."""

    def bucketing_of(self, flag: Flag, /) -> Bucketing:
        """The flag's generation of `fractional`."""

    def expand(self, rule: Json, /) -> Json:
        """`rule` with its references expanded. Raises RuleTooLarge."""


class CompiledFlag:
    """One flag with every answer it has given so far."""

    __slots__ = (
        "_errors",
        "_escaped",
        "_metadata",
        "_others",
        "_rule",
        "_texts",
        "flag",
        "matches",
        "reads_flagd",
        "run",
    )

    def __init__(self, flag: Flag, flags: FlagSetOf, like: CompiledFlag | None = None) -> None:
        """`like` has the same rule, compiled already."""
        self.flag = flag
        self.run: Evaluate | None = None
        """The compiled rule; None where every context gets the same answer."""
        self.reads_flagd = False
        self._metadata = flags.metadata_of(flag)
        self.matches: dict[FlagType | None, dict[str, Resolution]] = {}
        """Answers by the wanted type and the text that the rule gives (`matches_of`)."""
        self._others: dict[FlagType | None, Resolution] = {}
        self._escaped: dict[FlagType | None, dict[str, Resolution]] = {}
        self._errors: dict[str, Resolution] = {}
        self._rule: Json = None
        self._texts: frozenset[str] | None = None
        if like is not None:
            self.run, self.reads_flagd, self._rule = like.run, like.reads_flagd, like._rule
            return
        if flag.state is State.DISABLED or flag.targeting is ABSENT or flag.targeting == {}:
            return
        try:
            expanded = flags.expand(flag.targeting)
        except RuleTooLarge as excess:
            self.run = fail_with(str(excess))
            return
        if expanded == {}:
            # flagd expands references before it checks whether there is any targeting.
            return
        rule = compile_rule(expanded, bucketing=flags.bucketing_of(flag), flag_key=flag.key)
        self.run, self.reads_flagd, self._rule = rule.run, rule.reads_flagd, expanded

    def resolve(
        self, wanted: FlagType | None, context: Mapping[str, Json], now: int, trace: Trace | None = None
    ) -> Resolution:
        """Evaluate the flag: see `resolve.resolve`."""
        run = self.run
        if run is None:
            return self.default_resolution(wanted)
        if self.reads_flagd:
            context = {**context, "$flagd": {"flagKey": self.flag.key, "timestamp": now}}
        frame = Frame()
        frame.steps_left, frame.trace = STEPS, trace
        try:
            result = run(context, frame)
            matches = self.matches.get(wanted) or self.matches_of(wanted)
            resolution = matches.get(result) if isinstance(result, str) else None
            return resolution or self.targeted_resolution(result, wanted)
        except RuleError as error:
            return self.error_resolution(ErrorCode.PARSE_ERROR, str(error))
        except RecursionError:
            return self.error_resolution(ErrorCode.PARSE_ERROR, "the context is nested too deep for the rule")

    def default_resolution(self, wanted: FlagType | None) -> Resolution:
        """The answer where no rule matched: static, disabled, or the default variant."""
        answer = self._others.get(wanted)
        if answer is None:
            answer = self._others[wanted] = self._settle(wanted)
        return answer

    def _settle(self, wanted: FlagType | None) -> Resolution:
        if self.flag.state is State.DISABLED:
            return self._without_value(EvaluationReason.DISABLED)
        if self.flag.default_variant is None:
            return self._without_value(EvaluationReason.DEFAULT)
        reason = EvaluationReason.STATIC if self.run is None else EvaluationReason.DEFAULT
        return self._with_variant(self.flag.default_variant, wanted, reason)

    def targeted_resolution(self, result: Json, wanted: FlagType | None) -> Resolution:
        """Return the answer for the rule's result."""
        if result is None:
            return self.default_resolution(wanted)
        name = variant_name(result)
        if name is None or name not in self.flag.variants:
            return self.error_resolution(ErrorCode.GENERAL, self._no_variant(result))
        escaped = self._escaped.setdefault(wanted, {})
        answer = self.matches_of(wanted).get(name) or escaped.get(name)
        if answer is None:
            answer = escaped[name] = self._with_variant(name, wanted, EvaluationReason.TARGETING_MATCH)
        return answer

    def _no_variant(self, result: Json) -> str:
        if self._texts is None:
            self._texts = texts_in(self._rule)
        # A result that is no text of the rule comes from the context, which no message quotes.
        known = isinstance(result, str) and result in self._texts
        shown = json.dumps(result[:_LONGEST], ensure_ascii=False) if known else kind(result)
        names = [name[:_LONGEST] for name in islice(self.flag.variants, _NAMED)]
        more = ["…"] if len(self.flag.variants) > _NAMED else []
        return f"targeting returned {shown}, which is not a variant ({', '.join(names + more)})"

    def matches_of(self, wanted: FlagType | None) -> dict[str, Resolution]:
        """Return answers by the rule's result text, without names whose characters JSON would escape."""
        resolution = self.matches.get(wanted)
        if resolution is None:
            reason = EvaluationReason.TARGETING_MATCH
            resolution = self.matches[wanted] = {
                name: self._with_variant(name, wanted, reason)
                for name in self.flag.variants
                if variant_name(name) == name
            }
        return resolution

    def error_resolution(self, code: ErrorCode, message: str) -> Resolution:
        """Return the answer for an error, cached: a rule fails in few different ways."""
        answer = self._errors.get(message)
        if answer is None:
            reason = EvaluationReason.ERROR
            answer = Resolution(ABSENT, None, reason, code, message, self._metadata)
            self._errors[message] = answer
        return answer

    def _with_variant(self, variant: str, wanted: FlagType | None, reason: EvaluationReason) -> Resolution:
        value = coerce(self.flag.variants.get(variant), wanted)
        if value is ABSENT:
            asked = wanted.lower() if wanted else "any"
            message = f"the value of variant {variant!r} is not of type {asked}"
            return self.error_resolution(ErrorCode.TYPE_MISMATCH, message)
        return Resolution(value, variant, reason, metadata=self._metadata)

    def _without_value(self, reason: EvaluationReason) -> Resolution:
        return Resolution(ABSENT, None, reason, metadata=self._metadata)


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
