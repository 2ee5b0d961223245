"""Judges what was read: the set with bad flags at their last good definition, or a refusal. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import digest
from evaluator.flags.checking.references import measure
from evaluator.flags.holding import held_back
from evaluator.flags.layers.layer import EVALUATORS
from evaluator.flags.model import ABSENT
from evaluator.flags.syntax.problems import Severity
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.flags.layers.merge import Parsed
    from evaluator.flags.model import FlagSet, Json
    from evaluator.flags.syntax.problems import Problem

_EVALUATOR: Final = re.compile(re.escape(json_path((EVALUATORS,))) + r'(?:\.[\w$-]+|\["(?:[^"\\]|\\.)*"\])')
"""The path of one shared rule, at the start of the paths within it."""

_CUT_OFF: Final = "too-many-problems"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a problem holds back."""

    warnings: bool = False
    """Whether warnings count as errors."""
    whole: bool = False
    """Whether any error refuses the whole delivery, rather than hold the flag that has it."""


PER_FLAG: Final = Policy()


@dataclass(frozen=True, slots=True)
class Accepted:
    """To be served."""

    flag_set: FlagSet
    """What was delivered, with held flags: what is served, and the `previous` of the next delivery."""
    digest: str
    """Of `flag_set`: `sha256:<hex>`."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    missing: tuple[str, ...]
    """Keys of bad flags that have no last good definition and so are not served, sorted."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It is unknown what is wanted: nothing changes."""

    problems: tuple[Problem, ...]

    @property
    def cause(self) -> str:
        """The first error, with its place."""
        errors = (str(problem) for problem in self.problems if problem.severity is Severity.ERROR)
        return next(errors, "it holds no flags")


def accept(parsed: Parsed, previous: FlagSet | None, policy: Policy = PER_FLAG) -> Accepted | Refused:
    """Judge what was read after `previous`, the source's last set. Takes long for a large set."""
    failures = parsed.problems if policy.warnings else parsed.errors
    if _is_whole_set_bad(parsed) or (failures and policy.whole):
        return Refused(parsed.problems)
    bad = parsed.bad | _flags_affected_by(parsed.flag_set, failures)
    if policy.warnings:
        bad |= parsed.warned
    flag_set, held = held_back(parsed.flag_set, bad, previous)
    missing = tuple(sorted(bad - flag_set.flags.keys()))
    return Accepted(flag_set, digest(flag_set), held, missing, parsed.problems)


def _is_whole_set_bad(parsed: Parsed) -> bool:
    """Whether no flag can be trusted. A shared rule's error is that of the flags that use it."""
    return parsed.whole_bad and any(
        problem.flag is None and problem.severity is Severity.ERROR and not _EVALUATOR.match(problem.path)
        for problem in parsed.problems
    )


def _flags_affected_by(flag_set: FlagSet, failures: Iterable[Problem]) -> frozenset[str]:
    """Keys of the flags that refer, however indirectly, to a shared rule that one of `failures` is in."""
    failures = list(failures)
    paths = {match[0] for each in failures if (match := _EVALUATOR.match(each.path))}
    if not paths and all(each.code != _CUT_OFF for each in failures):
        return frozenset()
    uses = {key: _references(flag.targeting) for key, flag in flag_set.flags.items()}
    if any(each.code == _CUT_OFF for each in failures):
        # What was cut off may be any shared rule's.
        return frozenset(key for key, names in uses.items() if names)
    between = {name: _references(body) for name, body in flag_set.evaluators.items()}
    names = {name for used in (*uses.values(), *between.values()) for name in used}
    spoiled = {name for name in names if json_path((EVALUATORS, name)) in paths}
    spoiled = _reaching(between, spoiled)
    return frozenset(key for key, used in uses.items() if used & spoiled)


def _references(rule: Json) -> set[str]:
    return set() if rule is ABSENT else {name for name, _, _ in measure(rule).references}


def _reaching(between: dict[str, set[str]], spoiled: set[str]) -> set[str]:
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
