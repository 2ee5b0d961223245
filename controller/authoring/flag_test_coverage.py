"""Which variants of flags, and which branches of their rules, tests reach. Pure.

A branch is a result of an `if`, also where no result is written for what no condition admits. Rules are taken
with their references expanded; bodies of loops, which run once for each element, have no branches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.model import ABSENT, Json, Path, State
from evaluator.flags.references import RuleTooLarge
from evaluator.flags.text import json_path, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


class Unreached(NamedTuple):
    """What no test reaches of a flag."""

    variants: tuple[str, ...]
    branches: tuple[Branch, ...]


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
    parts_unreached: Mapping[str, Unreached]
    """What no test reaches of each flag, by key."""

    @property
    def unreached(self) -> dict[str, tuple[str, ...]]:
        """The same in words."""
        return {
            key: (
                *(f"variant {quote(name)}" for name in parts.variants),
                *(f"branch {branch}" for branch in parts.branches),
            )
            for key, parts in self.parts_unreached.items()
        }

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
        if key not in self.flags.flag_set.flags:
            return
        self.variants.setdefault(key, set()).update(() if variant is None else (variant,))
        taken = self.branches.setdefault(key, set())
        for path, values in _conditionals(rule_of(self.flags, key)):
            if path in reports:
                taken.add(Branch(path, _result_taken(path, values, reports)))

    def coverage(self) -> Coverage:
        """What was reached, of all that there is."""
        variants, branches, unreached = ReachedCount(), ReachedCount(), dict[str, Unreached]()
        flags = self.flags.flag_set.flags
        for key, flag in flags.items():
            if flag.state is State.DISABLED:
                continue
            seen, taken = self.variants.get(key, set()), self.branches.get(key, set())
            all_branches = [*branches_of(rule_of(self.flags, key))]
            missed = tuple(branch for branch in all_branches if branch not in taken)
            left = tuple(name for name in flag.variants if name not in seen)
            variants = ReachedCount(
                variants.reached + len(flag.variants) - len(left), variants.total + len(flag.variants)
            )
            branches = ReachedCount(
                branches.reached + len(all_branches) - len(missed), branches.total + len(all_branches)
            )
            if left or missed:
                unreached[key] = Unreached(left, missed)
        tested = sum(key in self.variants for key in flags)
        return Coverage(ReachedCount(tested, len(flags)), variants, branches, unreached)


def rule_of(flags: CompiledFlagSet, key: str) -> Json:
    """The rule of a flag, its references expanded; null where there is none, or it is too large."""
    flag = flags.flag_set.flags.get(key)
    if flag is None or flag.targeting is ABSENT:
        return None
    try:
        return flags.expand(flag.targeting)
    except RuleTooLarge:
        return None


def branches_of(rule: Json) -> Iterator[Branch]:
    """Yield the branches of a rule."""
    for path, values in _conditionals(rule):
        yield from (Branch(path, result) for result in range(1, len(values), 2))
        yield Branch(path, len(values) - len(values) % 2)


def changed_branches(before: Json, after: Json) -> frozenset[Branch]:
    """The branches of a rule that are new, or whose result or condition is another than before."""
    known = dict(_conditionals(before))
    given = dict(_conditionals(after))
    return frozenset(
        branch
        for branch in branches_of(after)
        if _parts(known.get(branch.path, ()), branch.result) != _parts(given[branch.path], branch.result)
    )


def _parts(values: Sequence[Json], result: int) -> str:
    """The result and its condition, as text; the last result has none."""
    first = result - 1 if result % 2 else result
    return json.dumps([bool(values), values[first : result + 1]], sort_keys=True)


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
