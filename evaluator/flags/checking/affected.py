"""Which flags a problem concerns when it names none. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.references import measure
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


def is_whole_set_bad(parsed: Parsed) -> bool:
    """Whether no flag can be trusted. A shared rule's error is that of the flags that use it."""
    return parsed.whole_bad and any(
        problem.flag is None and problem.severity is Severity.ERROR and not _EVALUATOR.match(problem.path)
        for problem in parsed.problems
    )


def flags_affected_by(flag_set: FlagSet, failures: Iterable[Problem]) -> frozenset[str]:
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
