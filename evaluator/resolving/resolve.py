"""Resolves a flag, a type and a context to a value, a variant and a reason. Pure.

Order and outcomes are flagd's. Answers are made once per flag and reused, so a server may cache an encoded
answer by the answer's identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.references import Expander, RuleTooLarge
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, Json, Scalar, State
from evaluator.resolving.resolution import (
    NOT_FOUND,
    ErrorCode,
    EvaluationReason,
    FlagType,
    Resolution,
    coerce,
)
from evaluator.targeting import STEPS, Frame, RuleError, compile_rule
from evaluator.targeting.scope import failing
from evaluator.targeting.values import kind, texts_in, variant_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import Flag, FlagSet
    from evaluator.targeting import Trace
    from evaluator.targeting.frame import Evaluate

_GENERATIONS: Final = frozenset(Bucketing)
_NAMED: Final = 5
"""Most variants that a message lists."""
_LONGEST: Final = 64
"""Most characters of a name in a message."""


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

    def __init__(self, flag: Flag, flags: CompiledFlagSet, like: CompiledFlag | None = None) -> None:
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
            self.run = failing(str(excess))
            return
        if expanded == {}:
            # flagd expands references before it checks whether there is any targeting.
            return
        rule = compile_rule(expanded, bucketing=flags.bucketing_of(flag), flag_key=flag.key)
        self.run, self.reads_flagd, self._rule = rule.run, rule.reads_flagd, expanded

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


class CompiledFlagSet(Mapping[str, CompiledFlag]):
    """A flag set ready for evaluation: its flags by key, each compiled when it is first asked for."""

    def __init__(self, flag_set: FlagSet, bucketing: Bucketing, *, expose_bucketing: bool) -> None:
        """bucketing: the generation of `fractional` for a set that does not pin one."""
        self.flag_set = flag_set
        self.bucketing = _pinned_bucketing(flag_set.metadata) or bucketing
        """The generation of `fractional` for flags that do not pin their own."""
        self._unpinned = bucketing
        self._expose_bucketing = expose_bucketing
        shown = {BUCKETING_KEY: self.bucketing.value} if expose_bucketing else {}
        self.metadata: Mapping[str, Scalar] = {**flag_set.metadata, **shown}
        """What every answer's metadata starts from."""
        self.compiled: dict[str, CompiledFlag] = {}
        """Flags compiled so far."""

    def __getitem__(self, key: str) -> CompiledFlag:
        flag = self.compiled.get(key)
        if flag is None:
            flag = self.compiled[key] = CompiledFlag(self.flag_set.flags[key], self)
        return flag

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_in_order)

    def __len__(self) -> int:
        return len(self.flag_set.flags)

    def compile_all(self) -> None:
        """Compile all remaining flags; takes about 50 µs a flag."""
        for key in self.flag_set.flags:
            _ = self[key]
        _ = self.keys_in_order

    def borrow(self, other: CompiledFlagSet) -> None:
        """Reuse the compiled rules of unchanged flags of `other`."""
        if self.flag_set.evaluators is not other.flag_set.evaluators:
            return
        for key, like in list(other.compiled.items()):
            flag = self.flag_set.flags.get(key)
            if (
                flag is not None
                and flag.targeting is like.flag.targeting
                and flag.state is like.flag.state
                and self.bucketing_of(flag) is other.bucketing_of(like.flag)
            ):
                self.compiled[key] = CompiledFlag(flag, self, like)

    def bucketing_of(self, flag: Flag) -> Bucketing:
        """The generation that the flag's own metadata pins, as where sets are merged; else the set's."""
        if BUCKETING_KEY not in flag.metadata:
            return self.bucketing
        return _pinned_bucketing(flag.metadata) or self._unpinned

    def metadata_of(self, flag: Flag) -> Mapping[str, Scalar]:
        """The flag's metadata in responses: the set's metadata, patched by its own."""
        own = flag.metadata_under(self.metadata)
        if self._expose_bucketing and BUCKETING_KEY in flag.metadata:
            return {**own, BUCKETING_KEY: self.bucketing_of(flag).value}
        return own

    @cached_property
    def keys_in_order(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        return tuple(sorted(self.flag_set.flags))

    @cached_property
    def expander(self) -> Expander:
        """Expands the rules' references to the set's evaluators."""
        return Expander(self.flag_set.evaluators)

    def expand(self, rule: Json) -> Json:
        """`rule` with its references expanded, if the set has evaluators. Raises RuleTooLarge."""
        return self.expander.expand(rule) if self.flag_set.evaluators else rule


def compile_flag_set(
    flag_set: FlagSet, *, bucketing: Bucketing = Bucketing.V2, expose_bucketing: bool = False
) -> CompiledFlagSet:
    """Make a flag set ready for evaluation. bucketing: the generation of `fractional` where the set pins
    none. expose_bucketing: name the generation in every answer's metadata.
    """
    return CompiledFlagSet(flag_set, bucketing, expose_bucketing=expose_bucketing)


def _pinned_bucketing(metadata: Mapping[str, Scalar]) -> Bucketing | None:
    pinned = metadata.get(BUCKETING_KEY)
    return Bucketing(pinned) if pinned in _GENERATIONS else None


def resolve(
    flags: CompiledFlagSet,
    key: str,
    wanted: FlagType | None,
    context: Mapping[str, Json],
    now: int,
    trace: Trace | None = None,
) -> Resolution:
    """Evaluate one flag. wanted: None takes a value of any type. context: a dict. now: Unix seconds. trace:
    receives the result of each operator of the rule. Never raises.
    """
    flag = flags.compiled.get(key)
    if flag is None:
        if key not in flags.flag_set.flags:
            return NOT_FOUND
        flag = flags[key]
    run = flag.run
    if run is None:
        return flag.default_resolution(wanted)
    if flag.reads_flagd:
        context = {**context, "$flagd": {"flagKey": key, "timestamp": now}}
    frame = Frame()
    frame.steps_left, frame.trace = STEPS, trace
    try:
        result = run(context, frame)
        matches = flag.matches.get(wanted) or flag.matches_of(wanted)
        resolution = matches.get(result) if result.__class__ is str else None
        return resolution or flag.targeted_resolution(result, wanted)
    except RuleError as error:
        return flag.error_resolution(ErrorCode.PARSE_ERROR, str(error))
    except RecursionError:
        return flag.error_resolution(ErrorCode.PARSE_ERROR, "the context is nested too deep for the rule")
