"""The tests that cover a change of flags: how many, which fail after it, and what no test reaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.flag_test_coverage import changed_branches, rule_of
from controller.authoring.flag_test_runs import run_flag_tests
from evaluator.flags.marks import prerequisites_mark
from evaluator.flags.references import measure
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from controller.authoring.flag_test_files import FlagTest
    from evaluator.flags.model import FlagSet


@dataclass(frozen=True, slots=True)
class CoveringTests:
    """What tests say about a change of a flag."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    count: int
    """How many are about the flag, or an evaluator or prerequisite of it; each row of a matrix is one."""
    failures: tuple[str, ...] = ()
    """For each that fails after the change, what was expected and what came."""
    untested: tuple[str, ...] = ()
    """The branches of the new rule that change and that no test reaches."""


def covering_tests(
    before: FlagSet,
    after: FlagSet,
    changed: Collection[str],
    tests: Sequence[FlagTest],
    held: Collection[str] = (),
) -> dict[str, CoveringTests]:
    """What the tests say about each flag that differs; empty without any tests. Those about the flags `held`
    do not run.
    """
    if not tests:
        return {}
    used = {key: _used_by(after, key) for key in changed}
    cases = [test for test in tests if any(_is_about(test, names) for names in used.values())]
    report = run_flag_tests(after, cases, skip=frozenset(held))
    sides = compile_flag_set(before), compile_flag_set(after)
    unreached = report.coverage.parts_unreached
    found = {}
    for key, names in used.items():
        own = [test for test in report.outcomes if _is_about(test.test, names)]
        failures = tuple(test.message for test in own if not test.passed and not test.skipped)
        changes = changed_branches(*(rule_of(side, key) for side in sides))
        missed = unreached[key].branches if key in unreached else ()
        found[key] = CoveringTests(
            len(own), failures, tuple(str(branch) for branch in missed if branch in changes)
        )
    return found


class _Used(NamedTuple):
    """What decides a flag."""

    flags: frozenset[str]
    """The flag and its prerequisites, also those of these."""
    evaluators: frozenset[str]
    """Those that their rules use, also by way of others."""


def _is_about(test: FlagTest, used: _Used) -> bool:
    return test.subject in (used.evaluators if test.of_evaluator else used.flags)


def _used_by(flag_set: FlagSet, key: str) -> _Used:
    pending, flags = [key], {key}
    while pending:
        flag = flag_set.flags.get(pending.pop())
        needed = () if flag is None else prerequisites_mark(flag.metadata)
        pending += (name for name in needed if name not in flags)
        flags.update(needed)
    rules = [flag_set.flags[name].targeting for name in flags if name in flag_set.flags]
    names = set[str]()
    while rules:
        for name, *_ in measure(rules.pop()).references:
            if name not in names and name in flag_set.evaluators:
                names.add(name)
                rules.append(flag_set.evaluators[name])
    return _Used(frozenset(flags), frozenset(names))
