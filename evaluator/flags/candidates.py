"""Selects the definitions to roll out: those that differ from the promoted ones. Pure."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import digest
from evaluator.flags.diff import ChangedPart, RuleCopier, diff
from evaluator.flags.model import ABSENT, BUCKETING_KEY, EMPTY, Bucketing, Flag, FlagSet, Json, State
from evaluator.flags.overrides import is_invalid_audience
from evaluator.flags.references import Expander, RuleTooLarge, measure
from evaluator.flags.rollout_rules import (
    WHOLE,
    Cohort,
    Incompatibility,
    TwoDefinitions,
    cohort_condition,
    draws_otherwise,
    pinned_generation,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


_DIGITS: Final = 16


def matches(patterns: Iterable[str], key: str) -> bool:
    """Whether one of the patterns is the key; `*` stands for any characters."""
    return any(_matches(pattern.split("*"), key) for pattern in patterns)


def _matches(parts: list[str], key: str) -> bool:
    first, *between = parts
    if not between:
        return key == first
    last = between.pop()
    if len(key) < len(first) + len(last) or not key.startswith(first) or not key.endswith(last):
        return False
    start, end = len(first), len(key) - len(last)
    for part in between:
        start = key.find(part, start, end)
        if start < 0:
            return False
        start += len(part)
    return True


def capture(flag_set: FlagSet, patterns: Iterable[str]) -> FlagSet:
    """Return the definitions of the flags that match, and the `$evaluators` that they use."""
    patterns = tuple(patterns)
    flags = {key: flag for key, flag in flag_set.flags.items() if matches(patterns, key)}
    return _with_used_evaluators(flags, flag_set.evaluators)


def _with_used_evaluators(flags: dict[str, Flag], evaluators: Mapping[str, Json]) -> FlagSet:
    pending = [flag.targeting for flag in flags.values() if flag.targeting is not ABSENT]
    used: dict[str, Json] = {}
    while pending:
        for name, _, _ in measure(pending.pop()).references:
            if name in evaluators and name not in used:
                used[name] = evaluators[name]
                pending.append(evaluators[name])
    return FlagSet(MappingProxyType(flags), MappingProxyType(used))


def changed_flags(desired: FlagSet, promoted: FlagSet, patterns: Iterable[str]) -> Mapping[str, str]:
    """Return the `definition_digest` of each desired definition that is to be rolled out, by key, sorted: of
    flags that match, are in both sets, are enabled and differ from the promoted one in more than metadata,
    of which only the generation of `fractional` that a flag pins decides anything. New, deleted and disabled
    flags are served as desired at once.
    """
    patterns = tuple(patterns)
    shared = [
        key
        for key in promoted.flags
        if key in desired.flags and desired.flags[key].state is State.ENABLED and matches(patterns, key)
    ]
    changed = diff(
        FlagSet({key: promoted.flags[key] for key in shared}, promoted.evaluators),
        FlagSet({key: desired.flags[key] for key in shared}, desired.evaluators),
    ).changed
    keys = [
        key
        for key, changes in changed.items()
        if set(changes) != {ChangedPart.METADATA} or draws_otherwise(desired, promoted, key)
    ]
    if not keys:
        return EMPTY
    expander = Expander(desired.evaluators)
    return MappingProxyType({key: definition_digest(desired.flags[key], expander) for key in keys})


def definition_digest(flag: Flag, expander: Expander) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a flag's meaning: with references expanded,
    without metadata, and as if it were enabled, so that a flag that was disabled for a while is known again.
    `expander`: of the flag's set.
    """
    definition = replace(_definition(flag, expander), state=State.ENABLED)
    return digest(FlagSet({flag.key: definition})).partition(":")[2][:_DIGITS]


def candidate_digest(definitions: Mapping[str, str]) -> str:
    """Return the digest, `sha256:<hex>`, of definitions that are rolled out together, given as the
    `definition_digest` by key.
    """
    text = json.dumps(dict(definitions), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def misfits(
    desired: FlagSet, promoted: FlagSet, keys: Iterable[str], audiences: tuple[Json, ...] = ()
) -> Mapping[str, Incompatibility]:
    """Return why definitions cannot be served to some users only, by key; nobody gets a candidate that has
    one. `keys`: of flags in both sets. `audiences` count for the size of rules; one with an operator or a
    reference that does not exist is a misfit of all, since it fails for everybody.
    """
    keys = tuple(keys)
    two, condition = TwoDefinitions(desired, promoted), cohort_condition(Cohort(WHOLE - 1, audiences), "")
    reasons = {key: misfit for key in keys if (misfit := two.misfit(key, condition)) is not None}
    if not reasons and any(is_invalid_audience(audience, desired.evaluators) for audience in audiences):
        return dict.fromkeys(keys, "InvalidAudience")
    return reasons


def _definition(flag: Flag, expander: Expander) -> Flag:
    """Return the flag with references expanded and without metadata, except for another generation of
    `fractional` than flagd's own, for a digest of its meaning.
    """
    rule = flag.targeting
    if rule is not ABSENT:
        with suppress(RuleTooLarge):
            rule = expander.expand(rule)
    pinned = pinned_generation(flag)
    metadata = EMPTY if pinned is Bucketing.V2 else {BUCKETING_KEY: pinned.value}
    return replace(flag, targeting=rule, metadata=metadata, without=frozenset())


def settle(
    desired: FlagSet, promoted: FlagSet, patterns: Iterable[str], kept: Collection[str] = ()
) -> FlagSet:
    """Return the promoted definitions with the changes that are served at once: new, deleted and disabled
    flags, without those in `kept`: keys whose promoted definitions stay while the flags are absent or
    disabled, so that a rollout goes on where it was once they are back. Returns `promoted` itself if nothing
    changes.
    """
    patterns = tuple(patterns)
    stay = {*changed_flags(desired, promoted, patterns)}
    stay |= {
        key
        for key in promoted.flags.keys() & kept
        if matches(patterns, key) and (key not in desired.flags or desired.flags[key].state is State.DISABLED)
    }
    settled = _combine(desired, promoted, {**capture(desired, patterns).flags}, stay)
    return promoted if _meaning(settled) == _meaning(promoted) else settled


def with_promoted(promoted: FlagSet, desired: FlagSet, keys: Collection[str]) -> FlagSet:
    """Return the promoted definitions after a promotion of the flags with these keys; all others stay as they
    are. `keys`: of flags in both sets.
    """
    moved = {key: desired.flags[key] for key in keys}
    return _combine(desired, promoted, moved, promoted.flags.keys() - moved.keys())


def _combine(desired: FlagSet, promoted: FlagSet, flags: dict[str, Flag], stay: Iterable[str]) -> FlagSet:
    """Return the desired `flags` together with the promoted ones that `stay`."""
    copier = RuleCopier(promoted.evaluators, desired.evaluators)
    for key in stay:
        flags[key] = copier.copy_flag(promoted.flags[key])
    return _with_used_evaluators(flags, desired.evaluators)


def _meaning(flag_set: FlagSet) -> str:
    expander = Expander(flag_set.evaluators)
    return digest(FlagSet({key: _definition(flag, expander) for key, flag in flag_set.flags.items()}))
