"""Who gets another value at the cut-over, since no hash of another product survives. Pure.

The old bucket of a user says nothing about the new one. Of users who are divided into shares p, q, …, by
value, the share p·p + q·q + … gets the same value by chance, and the others another one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import orjson

from controller.importers.model import (
    NEXT,
    All,
    Always,
    AnyItem,
    AnyOf,
    Condition,
    Imported,
    ImportedFlag,
    InGrowingShare,
    InSegment,
    InShare,
    Not,
    Outcome,
    Serves,
    Targeting,
    UserSplit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evaluator.flags.model import Json


class CutOver(StrEnum):
    """What becomes of users who are divided."""

    SPLIT = "split"
    """They are divided by the same shares, by another hash."""
    MAJORITY = "majority"
    """All get what most of them had."""


def freeze(imported: Imported) -> Imported:
    """The flags with each division replaced by its largest part."""
    return replace(
        imported,
        flags=tuple(
            replace(flag, targeting={name: _freeze(targeting) for name, targeting in flag.targeting.items()})
            for flag in imported.flags
        ),
        segments=tuple(
            replace(
                segment,
                conditions={name: _freeze_condition(item) for name, item in segment.conditions.items()},
            )
            for segment in imported.segments
        ),
    )


def _freeze(targeting: Targeting) -> Targeting:
    rules = tuple(
        replace(rule, when=_freeze_condition(rule.when), then=_largest(rule.then)) for rule in targeting.rules
    )
    otherwise = _largest(targeting.otherwise)
    return replace(targeting, rules=rules, otherwise=targeting.off if otherwise is NEXT else otherwise)


def _largest(outcome: Outcome) -> Outcome:
    return max(outcome.arms, key=lambda arm: arm[1])[0] if isinstance(outcome, UserSplit) else outcome


def _freeze_condition(condition: Condition) -> Condition:
    match condition:
        case All(parts):
            return All(tuple(map(_freeze_condition, parts)))
        case AnyOf(parts):
            return AnyOf(tuple(map(_freeze_condition, parts)))
        case Not(part):
            return Not(_freeze_condition(part))
        case AnyItem(attribute, part):
            return AnyItem(attribute, _freeze_condition(part))
        case InShare(_, weight, of) | InGrowingShare(last=weight, of=of):
            return Always(2 * weight >= of)
    return condition


def moved_shares(imported: Imported, freeze: CutOver = CutOver.SPLIT) -> dict[str, dict[str, float]]:
    """At most these shares of users get other values, by flag and environment."""
    moves = _Moves(imported, freeze)
    return {
        flag.key: {environment: moves.of_flag(flag, environment) for environment in flag.targeting}
        for flag in imported.flags
    }


class _Moves:
    def __init__(self, imported: Imported, freeze: CutOver) -> None:
        self._flags = {flag.key: flag for flag in imported.flags}
        self._segments = {segment.name: segment for segment in imported.segments}
        self._freeze = freeze
        self._known: dict[tuple[str, str], float] = {}

    def of_flag(self, flag: ImportedFlag, environment: str) -> float:
        known = self._known.get((flag.key, environment))
        if known is not None:
            return known
        # Lint refuses flags that need each other; until then a cycle adds nothing.
        self._known[flag.key, environment] = 0.0
        targeting = flag.targeting[environment]
        last = (rule.then for rule in targeting.rules if not _passes_on(rule.then))
        outcomes = [*last, targeting.otherwise]
        stays = 1 - max(self._of_outcome(outcome, flag.variants) for outcome in outcomes)
        # Rules that pass users on, and shares within conditions, may all concern one user; the same share in
        # two rules, or two answers of one flag, concern the same users.
        apart: dict[object, float] = {}
        for rule in targeting.rules:
            stays *= 1 - self._of_outcome(rule.then, flag.variants) if _passes_on(rule.then) else 1
            apart.update(self._of_condition(rule.when, environment))
        stays *= math.prod(1 - share for share in apart.values())
        self._known[flag.key, environment] = round(1 - stays, 6)
        return self._known[flag.key, environment]

    def _of_outcome(self, outcome: Outcome, variants: Mapping[str, Json]) -> float:
        if not isinstance(outcome, UserSplit):
            return 0.0
        shares: dict[object, int] = defaultdict(int)
        for arm, weight in outcome.arms:
            shares[orjson.dumps(variants[arm]) if isinstance(arm, str) else arm] += max(0, weight)
        return self._moved([weight for weight in shares.values() if weight])

    def _moved(self, weights: list[float]) -> float:
        total = sum(weights)
        if len(weights) < 2:
            return 0.0
        if self._freeze is CutOver.MAJORITY:
            return 1 - max(weights) / total
        return 1 - sum((weight / total) ** 2 for weight in weights)

    def _of_condition(self, condition: Condition, environment: str) -> Iterator[tuple[object, float]]:
        """What of a condition divides users, each with the share that moves."""
        match condition:
            case All(parts) | AnyOf(parts):
                for part in parts:
                    yield from self._of_condition(part, environment)
            case Not(part) | AnyItem(_, part):
                yield from self._of_condition(part, environment)
            case InShare(_, weight, of):
                yield condition, self._moved([part for part in (weight, of - weight) if part > 0])
            case InGrowingShare(first=first, last=last, of=of):
                half = sorted((first, last, of / 2))[1]
                yield condition, self._moved([part for part in (half, of - half) if part > 0])
            case InSegment(name) if name in self._segments:
                inner = self._segments[name].conditions.get(environment)
                if inner is not None:
                    yield from self._of_condition(inner, environment)
            case Serves(key) if key in self._flags and environment in self._flags[key].targeting:
                yield key, self.of_flag(self._flags[key], environment)


def _passes_on(outcome: Outcome) -> bool:
    return isinstance(outcome, UserSplit) and any(arm is NEXT for arm, _ in outcome.arms)
