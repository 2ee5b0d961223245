"""A flag kept at its last good definition while the set around it moves on. Pure."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.checking.references import Expander, RuleTooLarge, measure
from evaluator.flags.diff import same
from evaluator.flags.model import ABSENT, HELD_FROM_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from evaluator.flags.model import Flag, FlagSet, Json


class LastGoodFlags:
    """Takes flags over from `previous` into a set with other `evaluators`."""

    def __init__(self, previous: FlagSet, evaluators: Mapping[str, Json]) -> None:
        self._previous = previous
        self._before = Expander(previous.evaluators)
        self._after = Expander(evaluators)

    def flag(self, key: str) -> Flag:
        """The previous flag, meaning what it meant, marked with the revision that it stems from."""
        return self._marked(self._previous.flags[key])

    def others(self, keys: Collection[str]) -> tuple[Flag, ...]:
        """The same for the previous flags of further flag sets with one of these keys."""
        return tuple(self._marked(flag) for flag in self._previous.others if flag.key in keys)

    def _marked(self, flag: Flag) -> Flag:
        revision = self._previous.metadata.get(REVISION_KEY)
        if revision is not None and HELD_FROM_KEY not in flag.metadata:
            metadata = MappingProxyType({**flag.metadata, HELD_FROM_KEY: revision})
            flag = replace(flag, metadata=metadata)
        return replace(flag, targeting=self._targeting(flag.targeting))

    def _targeting(self, rule: Json) -> Json:
        """Expanded only where the evaluators moved on: else the digest would change and no flag did."""
        if rule is ABSENT or not measure(rule).references:
            return rule
        meant = self._before.expand(rule)
        try:
            return rule if same(meant, self._after.expand(rule)) else meant
        except RuleTooLarge:
            return meant


def held_back(
    flag_set: FlagSet, bad: Collection[str], previous: FlagSet | None
) -> tuple[FlagSet, tuple[str, ...]]:
    """The set with each bad flag at its last good definition or absent; the keys of those held, sorted."""
    flags = {key: flag for key, flag in flag_set.flags.items() if key not in bad}
    others = tuple(flag for flag in flag_set.others if flag.key not in bad)
    if previous is None:
        held: tuple[str, ...] = ()
    else:
        held = tuple(sorted(key for key in bad if key in previous.flags))
        last_good = LastGoodFlags(previous, flag_set.evaluators)
        flags |= {key: last_good.flag(key) for key in held}
        others = (*others, *last_good.others(held))
    return replace(flag_set, flags=MappingProxyType(flags), others=others), held
