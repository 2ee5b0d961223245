"""The tests that cover a change of flags: how many, which fail after it, and what no test reaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.flag_test_coverage import changed_branches, rule_of
from controller.authoring.flag_test_runs import run_flag_tests
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
    """How many are about the flag, or an evaluator that it uses; each row of a matrix is one."""
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
    used = {key: _evaluators_of(after, key) for key in changed}
    wanted = {name for names in used.values() for name in names}
    cases = [test for test in tests if test.subject in (wanted if test.of_evaluator else used)]
    report = run_flag_tests(after, cases, skip=frozenset(held))
    sides = compile_flag_set(before), compile_flag_set(after)
    unreached = report.coverage.parts_unreached
    found = {}
    for key, names in used.items():
        own = [test for test in report.outcomes if _is_about(test.test, key, names)]
        failures = tuple(test.message for test in own if not test.passed and not test.skipped)
        changes = changed_branches(*(rule_of(side, key) for side in sides))
        missed = unreached[key].branches if key in unreached else ()
        found[key] = CoveringTests(
            len(own), failures, tuple(str(branch) for branch in missed if branch in changes)
        )
    return found


def _is_about(test: FlagTest, key: str, evaluators: Collection[str]) -> bool:
    return test.subject in evaluators if test.of_evaluator else test.subject == key


def _evaluators_of(flag_set: FlagSet, key: str) -> frozenset[str]:
    """The evaluators that a flag's rule uses, also by way of others."""
    flag = flag_set.flags.get(key)
    pending, names = [] if flag is None else [flag.targeting], set[str]()
    while pending:
        for name, *_ in measure(pending.pop()).references:
            if name not in names and name in flag_set.evaluators:
                names.add(name)
                pending.append(flag_set.evaluators[name])
    return frozenset(names)
