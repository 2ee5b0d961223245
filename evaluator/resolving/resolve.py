"""Resolves a flag, a type and a context to a value, a variant and a reason. Pure.

Order and outcomes are flagd's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import BUCKETING_KEY, Bucketing, Flag, FlagSet, Json, Scalar
from evaluator.flags.references import Expander
from evaluator.flags.rollouts import ROLLOUT_KEY, arm_rule
from evaluator.resolving.compiled_flag import CompiledFlag, RolloutFlag
from evaluator.resolving.resolution import NOT_FOUND, FlagType, Resolution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.targeting import Trace


_GENERATIONS: Final = frozenset(Bucketing)


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
            flag = self.compiled[key] = self._compile(self.flag_set.flags[key])
        return flag

    def _compile(self, flag: Flag) -> CompiledFlag:
        rule = arm_rule(flag) if ROLLOUT_KEY in flag.metadata else None
        return CompiledFlag(flag, self) if rule is None else RolloutFlag(flag, self, rule)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_in_order)

    def __len__(self) -> int:
        return len(self.flag_set.flags)

    def compile_all(self) -> None:
        """Compile all remaining flags; takes about 50 µs a flag."""
        for key in self.flag_set.flags:
            _ = self[key]
        _ = self.keys_in_order, self.in_rollouts

    def borrow(self, other: CompiledFlagSet) -> None:
        """Reuse the compiled rules of unchanged flags of `other`."""
        if self.flag_set.evaluators is not other.flag_set.evaluators:
            return
        for key, like in list(other.compiled.items()):
            flag = self.flag_set.flags.get(key)
            if (
                flag is not None
                and ROLLOUT_KEY not in flag.metadata
                and ROLLOUT_KEY not in like.flag.metadata
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
    def in_rollouts(self) -> Mapping[str, RolloutFlag]:
        """The flags that are in a rollout, by key."""
        marked = [key for key, flag in self.flag_set.flags.items() if ROLLOUT_KEY in flag.metadata]
        return {key: flag for key in marked if isinstance(flag := self[key], RolloutFlag)}

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
    return flag.resolve(wanted, context, now, trace)
