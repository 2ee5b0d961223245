"""Which variants of flags, and which branches of their rules, tests reach. Pure.

A branch is a result of an `if`, also where no result is written for what no condition admits. Rules are taken
with their references expanded; bodies of loops, which run once for each element, have no branches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.model import ABSENT, Json, Path, State
from evaluator.flags.references import RuleTooLarge
from evaluator.flags.text import json_path, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.flags.model import Flag
    from evaluator.resolving.resolve import CompiledFlagSet


IFS: Final = ("if", "?:")
LOOPS: Final = frozenset({"map", "filter", "reduce", "all", "some", "none"})
_DEEPEST: Final = 200
"""Levels of a rule that are searched, as many as are compiled."""


class Branch(NamedTuple):
    """One result of an `if`."""

    path: Path
    """The place of the `if` in the rule."""
    result: int
    """Its index among the arguments; their number where no result is written."""

    def __str__(self) -> str:
        return f"targeting{json_path((*self.path, self.result))[1:]}"


class ReachedCount(NamedTuple):
    """How many of a kind tests reach."""

    reached: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Coverage:
    """What tests reach of a flag set."""

    flags: ReachedCount
    variants: ReachedCount
    branches: ReachedCount
    unreached: Mapping[str, tuple[str, ...]]
    """What no test reaches of each flag, by key: variants and branches."""

    @property
    def percent(self) -> float:
        """The share of variants and branches that tests reach; 100 where there are none."""
        total = self.variants.total + self.branches.total
        return 100.0 if not total else 100.0 * (self.variants.reached + self.branches.reached) / total

    def lacking(self, least: float | None) -> str:
        """Why it is too little; empty where it is not."""
        if least is None or self.percent >= least:
            return ""
        return f"the tests reach {self.percent:.1f} % of variants and branches, of at least {least:g} %"

    def __str__(self) -> str:
        counts = (("flags", self.flags), ("variants", self.variants), ("branches", self.branches))
        parts = ", ".join(f"{count.reached} of {count.total} {name}" for name, count in counts)
        return f"coverage {self.percent:.1f} %: {parts}"


@dataclass(slots=True)
class ReachedParts:
    """Collects what tests reach."""

    flags: CompiledFlagSet
    variants: dict[str, set[str]] = field(default_factory=dict)
    branches: dict[str, set[Branch]] = field(default_factory=dict)

    def add(self, key: str, variant: str | None, reports: Mapping[Path, Json]) -> None:
        """Count an evaluation: its variant, and the results of the rule's operators by path."""
        if (flag := self.flags.flag_set.flags.get(key)) is None:
            return
        self.variants.setdefault(key, set()).update(() if variant is None else (variant,))
        taken = self.branches.setdefault(key, set())
        for path, values in _conditionals(self._rule(flag)):
            if path in reports:
                taken.add(Branch(path, _result_taken(path, values, reports)))

    def coverage(self) -> Coverage:
        """What was reached, of all that there is."""
        variants, branches, unreached = ReachedCount(), ReachedCount(), {}
        flags = self.flags.flag_set.flags
        for key, flag in flags.items():
            if flag.state is State.DISABLED:
                continue
            seen, taken = self.variants.get(key, set()), self.branches.get(key, set())
            all_branches = [*self._branches(flag)]
            missed = [branch for branch in all_branches if branch not in taken]
            left = [name for name in flag.variants if name not in seen]
            variants = ReachedCount(
                variants.reached + len(flag.variants) - len(left), variants.total + len(flag.variants)
            )
            branches = ReachedCount(
                branches.reached + len(all_branches) - len(missed), branches.total + len(all_branches)
            )
            if left or missed:
                named = (f"variant {quote(name)}" for name in left)
                unreached[key] = (*named, *(f"branch {branch}" for branch in missed))
        tested = sum(key in self.variants for key in flags)
        return Coverage(ReachedCount(tested, len(flags)), variants, branches, unreached)

    def _branches(self, flag: Flag) -> Iterator[Branch]:
        for path, values in _conditionals(self._rule(flag)):
            results = range(1, len(values), 2)
            yield from (Branch(path, result) for result in results)
            yield Branch(path, len(values) - len(values) % 2)

    def _rule(self, flag: Flag) -> Json:
        if flag.targeting is ABSENT:
            return None
        try:
            return self.flags.expand(flag.targeting)
        except RuleTooLarge:
            return None


def _conditionals(rule: Json, path: Path = ()) -> Iterator[tuple[Path, list[Json]]]:
    """The place and the arguments of each `if`, outside of loops."""
    if len(path) > 2 * _DEEPEST:
        return
    if isinstance(rule, list):
        for index, part in enumerate(rule):
            yield from _conditionals(part, (*path, index))
    elif isinstance(rule, dict) and len(rule) == 1:
        ((name, values),) = rule.items()
        if name in LOOPS:
            return
        if name in IFS and isinstance(values, list) and len(values) > 1:
            yield (*path, name), values
        yield from _conditionals(values, (*path, name))


def _result_taken(path: Path, values: Sequence[Json], reports: Mapping[Path, Json]) -> int:
    for index in range(0, len(values) - 1, 2):
        condition = values[index]
        if isinstance(condition, dict) and len(condition) == 1:
            condition = reports.get((*path, index, *condition))
        if condition:
            return index + 1
    return len(values) - len(values) % 2
