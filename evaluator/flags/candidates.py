"""Selects the definitions to roll out: those that differ from the promoted ones. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.canonical import digest
from evaluator.flags.checking.references import Expander, RuleTooLarge, measure
from evaluator.flags.diff import Change, diff
from evaluator.flags.model import ABSENT, EMPTY, FlagSet, State
from evaluator.flags.overrides import is_invalid_audience
from evaluator.flags.rollout_rules import WHOLE, Cohort, TwoDefinitions
from evaluator.flags.rule_copies import RuleCopier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evaluator.flags.model import Flag, Json
    from evaluator.flags.rollout_rules import Misfit


@dataclass(frozen=True, slots=True)
class Candidate:
    """The definitions that differ from the promoted ones, and so are rolled out together."""

    digest: str
    """The digest of these definitions, `sha256:<hex>`; empty: none differs."""
    keys: tuple[str, ...] = ()
    """Sorted."""
    misfits: Mapping[str, Misfit] = field(default_factory=lambda: EMPTY)
    """Why definitions cannot be served to some users only, by key; nobody gets the candidate then."""


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


def candidate_of(
    desired: FlagSet, promoted: FlagSet, patterns: Iterable[str], audiences: tuple[Json, ...] = ()
) -> Candidate:
    """Return the definitions to roll out: of enabled flags that are in both sets and differ in more than
    metadata. New, deleted and disabled flags are served as desired at once. `audiences` count for the size of
    rules; one with an operator or a reference that does not exist is a misfit, since it fails for everybody.
    """
    keys = _candidate_keys(desired, promoted, tuple(patterns))
    if not keys:
        return Candidate("")
    expander = Expander(desired.evaluators)
    definitions = {key: _definition(desired.flags[key], expander) for key in keys}
    two = TwoDefinitions(desired, promoted, Cohort(WHOLE - 1, audiences), "")
    misfits: dict[str, Misfit] = {key: misfit for key in keys if (misfit := two.misfit(key)) is not None}
    if not misfits and any(is_invalid_audience(audience, desired.evaluators) for audience in audiences):
        misfits = dict.fromkeys(keys, "InvalidAudience")
    return Candidate(digest(FlagSet(definitions)), keys, MappingProxyType(misfits))


def _candidate_keys(desired: FlagSet, promoted: FlagSet, patterns: tuple[str, ...]) -> tuple[str, ...]:
    shared = [
        key
        for key in promoted.flags
        if key in desired.flags and desired.flags[key].state is State.ENABLED and matches(patterns, key)
    ]
    changed = diff(
        FlagSet({key: promoted.flags[key] for key in shared}, promoted.evaluators),
        FlagSet({key: desired.flags[key] for key in shared}, desired.evaluators),
    ).changed
    return tuple(key for key, changes in changed.items() if set(changes) != {Change.METADATA})


def _definition(flag: Flag, expander: Expander) -> Flag:
    """Return the flag without metadata and with references expanded, for a digest of its meaning."""
    rule = flag.targeting
    if rule is not ABSENT:
        with suppress(RuleTooLarge):
            rule = expander.expand(rule)
    return replace(flag, targeting=rule, metadata=EMPTY, without=frozenset())


def settle(desired: FlagSet, promoted: FlagSet, patterns: Iterable[str]) -> FlagSet:
    """Return the promoted definitions with the changes that are served at once: new, deleted and disabled
    flags. Returns `promoted` itself if there are none.
    """
    patterns = tuple(patterns)
    candidate = set(_candidate_keys(desired, promoted, patterns))
    copier = RuleCopier(promoted.evaluators, desired.evaluators)
    flags = dict(capture(desired, patterns).flags)
    for key in candidate:
        flags[key] = copier.copy_flag(promoted.flags[key])
    settled = _with_used_evaluators(flags, desired.evaluators)
    return promoted if _meaning(settled) == _meaning(promoted) else settled


def _meaning(flag_set: FlagSet) -> str:
    expander = Expander(flag_set.evaluators)
    return digest(FlagSet({key: _definition(flag, expander) for key, flag in flag_set.flags.items()}))
