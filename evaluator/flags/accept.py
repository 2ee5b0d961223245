"""Judges a parsed delivery: accepts it with bad flags at their last good definition, or refuses it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import digest
from evaluator.flags.diff import RuleCopier
from evaluator.flags.known_operators import REFERENCE, is_scalars, reference_name
from evaluator.flags.layer import EVALUATORS
from evaluator.flags.model import ABSENT, HELD_FROM_KEY, REVISION_KEY, Flag, FlagSet, Json
from evaluator.flags.overrides import Override, override_flags
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.references import measure
from evaluator.flags.rollouts import Rollout, metadata_in_rollouts, with_rollouts
from evaluator.flags.text import json_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evaluator.flags.merge import Parsed


_EVALUATOR: Final = re.compile(re.escape(json_path((EVALUATORS,))) + r'(?:\.[\w$-]+|\["(?:[^"\\]|\\.)*"\])')
"""The path of one shared rule; matches the start of the paths within it."""

_CUT_OFF: Final = "too-many-problems"


@dataclass(frozen=True, slots=True)
class Progress:
    """Differences between the desired set and the served one: rollouts under way, overrides in force."""

    overrides: tuple[Override, ...] = ()
    """Overrides in force, over rollouts; of several for one flag, the later over the earlier."""
    rollouts: tuple[Rollout, ...] = ()
    """Rollouts under way. Of several for one flag, the first counts."""
    missing: tuple[str, ...] = ()
    """Names of promoted definitions that cannot be read: nothing can be said of what is to be served."""


NO_PROGRESS: Final = Progress()


def effective(desired: FlagSet, progress: Progress = NO_PROGRESS) -> FlagSet:
    """Return the set to be served. Only an override keeps a flag that is no longer desired."""
    instead = with_rollouts(desired, progress.rollouts)
    if progress.overrides:
        instead |= override_flags({**desired.flags, **instead}, desired.evaluators, progress.overrides)
    metadata = metadata_in_rollouts(desired, progress.rollouts)
    if not instead and metadata is desired.metadata:
        return desired
    return replace(desired, flags=MappingProxyType({**desired.flags, **instead}), metadata=metadata)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which problems hold back which flags."""

    warnings: bool = False
    """Whether warnings count as errors."""
    whole: bool = False
    """Whether any error refuses the whole delivery, not just the flag that has it."""


PER_FLAG: Final = Policy()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of an accepted delivery."""

    flag_set: FlagSet
    """The set that evaluators read: `desired` with progress."""
    desired: FlagSet
    """The delivered set, with held flags: the `previous` of the next delivery."""
    digest: str
    """Digest of `flag_set`: `sha256:<hex>`."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    missing: tuple[str, ...]
    """Keys of bad flags that have no last good definition and so are not served, sorted."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of a delivery that cannot be trusted: nothing changes."""

    problems: tuple[Problem, ...]

    @property
    def cause(self) -> str:
        """The first error, with its place."""
        errors = (str(problem) for problem in self.problems if problem.severity is Severity.ERROR)
        return next(errors, "it holds no flags")


def accept(
    parsed: Parsed, previous: FlagSet | None, policy: Policy = PER_FLAG, progress: Progress = NO_PROGRESS
) -> Accepted | Refused:
    """Judge a parsed delivery after `previous`, the source's last `desired`. Takes long for a large set."""
    failures = parsed.problems if policy.warnings else parsed.errors
    if _is_whole_set_bad(parsed) or (failures and policy.whole):
        return Refused(parsed.problems)
    bad = parsed.bad | _flags_affected_by(parsed.flag_set, failures)
    if policy.warnings:
        bad |= parsed.warned
    desired, held = hold_back(_with_good_rules(parsed.flag_set, failures, previous), bad, previous)
    flag_set = effective(desired, progress)
    missing = tuple(sorted(bad - desired.flags.keys()))
    return Accepted(flag_set, desired, digest(flag_set), held, missing, parsed.problems)


def _is_whole_set_bad(parsed: Parsed) -> bool:
    """Return whether no flag can be trusted. An error of a shared rule counts for the flags that use it."""
    return parsed.whole_bad and any(
        problem.flag is None and problem.severity is Severity.ERROR and not _EVALUATOR.match(problem.path)
        for problem in parsed.problems
    )


def _flags_affected_by(flag_set: FlagSet, failures: Iterable[Problem]) -> frozenset[str]:
    """Keys of the flags that refer, however indirectly, to a shared rule that one of `failures` is in."""
    failures = list(failures)
    paths = {match[0] for failure in failures if (match := _EVALUATOR.match(failure.path))}
    if not paths and all(failure.code != _CUT_OFF for failure in failures):
        return frozenset()
    uses = {key: _references(flag.targeting) for key, flag in flag_set.flags.items()}
    if any(failure.code == _CUT_OFF for failure in failures):
        # Problems past the bound are cut off; any shared rule may have one.
        return frozenset(key for key, names in uses.items() if names)
    between = {name: _references(body) for name, body in flag_set.evaluators.items()}
    names = {name for used in (*uses.values(), *between.values()) for name in used}
    spoiled = {name for name in names if json_path((EVALUATORS, name)) in paths}
    spoiled = _all_that_reach(between, spoiled)
    return frozenset(key for key, used in uses.items() if used & spoiled)


def _with_good_rules(flag_set: FlagSet, failures: Iterable[Problem], previous: FlagSet | None) -> FlagSet:
    """Return the set with the previous body of each shared rule that a failure is in: all flags that refer to
    it are held, and may go on to do so.
    """
    paths = {match[0] for failure in failures if (match := _EVALUATOR.match(failure.path))}
    if not paths or previous is None:
        return flag_set
    kept = {
        name: body for name, body in previous.evaluators.items() if json_path((EVALUATORS, name)) in paths
    }
    return (
        replace(flag_set, evaluators=MappingProxyType({**flag_set.evaluators, **kept})) if kept else flag_set
    )


def _references(rule: Json) -> set[str]:
    return set() if rule is ABSENT else {name for name, _, _ in measure(rule).references}


def _all_that_reach(between: dict[str, set[str]], spoiled: set[str]) -> set[str]:
    users_of: dict[str, list[str]] = {}
    for name, used in between.items():
        for target in used:
            users_of.setdefault(target, []).append(name)
    reached, pending = set(spoiled), list(spoiled)
    while pending:
        for name in users_of.get(pending.pop(), ()):
            if name not in reached:
                reached.add(name)
                pending.append(name)
    return reached


_LONG: Final = 1_000
"""Items of lists that a rule may have to be copied into a flag."""
_KEPT: Final = " (held)"
"""The end of the names of shared rules that are kept for held flags."""


class _LastGood:
    """Copies flags of `previous` into a set with other `evaluators`."""

    def __init__(self, previous: FlagSet, evaluators: Mapping[str, Json]) -> None:
        self._previous = previous
        self._others = evaluators
        self._rules = RuleCopier(previous.evaluators, evaluators)
        self.kept: dict[str, Json] = {}
        """Shared rules that copied flags refer to, and that the other set has not."""

    def flag(self, flag: Flag) -> Flag:
        """Return the previous flag, its meaning unchanged, marked with the revision that it comes from."""
        revision = self._previous.metadata.get(REVISION_KEY)
        if revision is not None and HELD_FROM_KEY not in flag.metadata:
            metadata = MappingProxyType({**flag.metadata, HELD_FROM_KEY: revision})
            flag = replace(flag, metadata=metadata)
        return replace(flag, targeting=self._copy(flag.targeting))

    def _copy(self, rule: Json) -> Json:
        copied = self._rules.copy(rule)
        if copied is rule or measure(copied).members <= _LONG:
            return copied
        # A list of a hundred thousand users in each flag would not fit into an object of the cluster.
        before = self._previous.evaluators
        between = {name: _references(body) & before.keys() for name, body in before.items()}
        pending, names = [*_references(rule) & before.keys()], dict[str, str]()
        while pending:
            name = pending.pop()
            if name not in names:
                names[name] = name if name.endswith(_KEPT) else f"{name}{_KEPT}"
                pending += between[name]
        if not self._others.keys().isdisjoint(names.values()):
            return copied
        self.kept |= {new: _with_names(before[name], names) for name, new in names.items()}
        return _with_names(rule, names)


def _with_names(rule: Json, names: Mapping[str, str]) -> Json:
    """Return the rule with references by other names."""
    if isinstance(rule, list):
        return rule if is_scalars(rule) else [_with_names(item, names) for item in rule]
    if not isinstance(rule, dict):
        return rule
    name = reference_name(rule)
    if name is not None:
        return {REFERENCE: names.get(name, name)}
    return {key: _with_names(item, names) for key, item in rule.items()}


def hold_back(
    flag_set: FlagSet, bad: Collection[str], previous: FlagSet | None
) -> tuple[FlagSet, tuple[str, ...]]:
    """Return (the set with bad flags at their last good definition or left out, sorted held keys)."""
    flags = {key: flag for key, flag in flag_set.flags.items() if key not in bad}
    others = tuple(flag for flag in flag_set.others if flag.key not in bad)
    if previous is None:
        held: tuple[str, ...] = ()
    else:
        held = tuple(sorted(key for key in bad if key in previous.flags))
        last_good = _LastGood(previous, flag_set.evaluators)
        flags |= {key: last_good.flag(previous.flags[key]) for key in held}
        others = (*others, *(last_good.flag(flag) for flag in previous.others if flag.key in held))
        if last_good.kept:
            evaluators = MappingProxyType({**flag_set.evaluators, **last_good.kept})
            flag_set = replace(flag_set, evaluators=evaluators)
    return replace(flag_set, flags=MappingProxyType(flags), others=others), held
