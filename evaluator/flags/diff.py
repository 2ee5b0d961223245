"""Compares two flag sets flag by flag, by their effect on evaluation, and copies rules from one into
another. Pure.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.canonical import content_metadata
from evaluator.flags.model import ABSENT, HELD_FROM_KEY, Flag, FlagSet, Json
from evaluator.flags.references import Expander, RuleTooLarge, measure
from evaluator.flags.text import normal_number

if TYPE_CHECKING:
    from collections.abc import Mapping


class ChangedPart(StrEnum):
    """The part of a flag that differs, named as in the document."""

    STATE = "state"
    VARIANTS = "variants"
    DEFAULT_VARIANT = "defaultVariant"
    TARGETING = "targeting"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Diff:
    """Keys of flags that differ, sorted; false if there are none."""

    added: tuple[str, ...]
    changed: Mapping[str, tuple[ChangedPart, ...]]
    """Sorted changes by key, in order of keys."""
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every flag key concerned, sorted."""
        return tuple(sorted({*self.added, *self.changed, *self.removed}))


def diff(old: FlagSet, new: FlagSet) -> Diff:
    """Compare two sets without their provenance. Targeting is compared with its `$ref`s expanded: a changed
    evaluator changes the flags that use it, and a rule moved into an evaluator changes none. Set metadata
    counts as each flag's, beneath its own.
    """
    targeting = _Targeting(old.evaluators, new.evaluators)
    inherits_same = same(content_metadata(old.metadata), content_metadata(new.metadata))
    changed: dict[str, tuple[ChangedPart, ...]] = {}
    for key in sorted(old.flags.keys() & new.flags.keys()):
        before, after = old.flags[key], new.flags[key]
        changes = set() if before is after else _plain_changes(before, after)
        if not inherits_same:
            before_metadata = content_metadata(before.metadata_under(old.metadata))
            if same(before_metadata, content_metadata(after.metadata_under(new.metadata))):
                changes.discard(ChangedPart.METADATA)
            else:
                changes.add(ChangedPart.METADATA)
        if targeting.differs(before.targeting, after.targeting):
            changes.add(ChangedPart.TARGETING)
        if changes:
            changed[key] = tuple(sorted(changes))
    return Diff(
        added=tuple(sorted(new.flags.keys() - old.flags.keys())),
        changed=changed,
        removed=tuple(sorted(old.flags.keys() - new.flags.keys())),
    )


def keep_unchanged(new: FlagSet, old: FlagSet | None) -> FlagSet:
    """Return `new` with the flags of `old` that are the same: their canonical text and compiled rule are kept
    with them.
    """
    if old is None:
        return new
    flags = {key: _keep_equal(old.flags.get(key), flag) for key, flag in new.flags.items()}
    evaluators = old.evaluators if same(dict(old.evaluators), dict(new.evaluators)) else new.evaluators
    return replace(new, flags=MappingProxyType(flags), evaluators=evaluators)


def _keep_equal(before: Flag | None, after: Flag) -> Flag:
    if (
        before is None
        or HELD_FROM_KEY in before.metadata
        or not same(before.targeting, after.targeting)
        or _plain_changes(before, after)
    ):
        return after
    return before


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, while true and 1, equal to Python, are not."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if one == other:
        return True
    # Whole numbers beyond 2^53 may differ in Python and be one float64, hence one digest.
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and normal_number(one) == normal_number(other)


def _plain_changes(before: Flag, after: Flag) -> set[ChangedPart]:
    changes = set()
    if before.state is not after.state:
        changes.add(ChangedPart.STATE)
    if before.default_variant != after.default_variant:
        changes.add(ChangedPart.DEFAULT_VARIANT)
    if not same(dict(before.variants), dict(after.variants)):
        changes.add(ChangedPart.VARIANTS)
    if before.without != after.without or not same(
        content_metadata(before.metadata), content_metadata(after.metadata)
    ):
        changes.add(ChangedPart.METADATA)
    return changes


class _Targeting:
    """Compares targeting of an old and a new set; expands only where something may differ."""

    def __init__(self, old: Mapping[str, Json], new: Mapping[str, Json]) -> None:
        self._evaluators = (old, new)
        self._unchanged = same(dict(old), dict(new))
        self._expanders: tuple[Expander, Expander] | None = None

    def differs(self, before: Json, after: Json) -> bool:
        equal = same(before, after)
        if equal and (self._unchanged or before is ABSENT or not measure(before).references):
            return False
        if before is ABSENT or after is ABSENT:
            return True
        if self._expanders is None:
            old, new = self._evaluators
            self._expanders = Expander(old), Expander(new)
        try:
            return not same(self._expanders[0].expand(before), self._expanders[1].expand(after))
        except RuleTooLarge:
            return True


class RuleCopier:
    """Copies rules from a set with the `$evaluators` `before` into one with `after`."""

    def __init__(self, before: Mapping[str, Json], after: Mapping[str, Json]) -> None:
        self._before = Expander(before)
        self._after = Expander(after)

    def copy_flag(self, flag: Flag) -> Flag:
        """Return a flag with its rule copied."""
        return replace(flag, targeting=self.copy(flag.targeting))

    def copy(self, rule: Json) -> Json:
        """Return a rule, or ABSENT, that means the same. It is expanded only if evaluators changed its
        meaning: an unchanged flag must keep its digest.
        """
        if rule is ABSENT or not measure(rule).references:
            return rule
        meant = rule
        with suppress(RuleTooLarge):
            meant = self._before.expand(rule)
            return rule if same(meant, self._after.expand(rule)) else meant
        return meant
