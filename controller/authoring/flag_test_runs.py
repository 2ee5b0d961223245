"""Runs tests of flags by the evaluator's own compiled rules, and says what came of each. Pure.

How many users get a variant is computed where the rule allows it: if every `fractional` hashes one attribute,
and nothing else reads it, the answer changes only where a bucket ends. The answer of each range of hashes
between two such ends, and its width, make the exact share. Of other rules 10,000 synthetic keys are asked.

The work is bounded by counts, never by a clock: the same tests pass or fail on any machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.flag_test_coverage import LOOPS, Coverage, ReachedParts, rule_of
from controller.authoring.key_uses import evaluator_users
from controller.authoring.shares import HASHES, SAMPLES, hash_input
from evaluator.flags.diff import same
from evaluator.flags.model import Bucketing, FlagSet, Json, Path
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.references import RuleTooLarge
from evaluator.flags.suggestions import did_you_mean
from evaluator.flags.text import quote
from evaluator.resolving.compiled_flag import CompiledFlag
from evaluator.resolving.explain import MOST_STEPS, TraceStep, answer, explain
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, Resolution
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.fractional import TARGETING_KEY
from evaluator.targeting.variables import FLAGD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from controller.authoring.flag_test_files import FlagTest
    from evaluator.flags.layer import Layer


FAILED: Final = "test-failed"
"""The code of a problem that a failing test makes."""
MOST_WORK: Final = 20_000_000
"""Most results of operators in all tests of a flag set: about half a minute."""
_MOST_RANGES: Final = 10_000
"""Most ranges of hashes of one flag; beyond, its shares are estimated."""
_NAMED: Final = 5
"""Flags that a message names."""
_NO_VARIANT: Final = "(no variant)"
_TIMESTAMP: Final = f"{FLAGD}.timestamp"
_VARIABLES: Final = frozenset({"var", "missing", "missing_some"})


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """What came of one case."""

    __test__ = False

    test: FlagTest
    expected: str
    came: str
    passed: bool
    trace: tuple[str, ...] = ()
    """Of a case that failed: how the answer came about, as `explain` tells it."""
    skipped: bool = False
    """Whether it did not run: its flag stays at its last good definition for another reason."""
    users: tuple[str, ...] = ()
    """Of a case of an evaluator that failed: the flags that use it."""

    @property
    def message(self) -> str:
        """The failure in one line."""
        more = f" and {len(self.users) - _NAMED} more" if len(self.users) > _NAMED else ""
        used = f"; used by {', '.join(map(quote, self.users[:_NAMED]))}{more}" if self.users else ""
        return f"the test {quote(self.test.name)} fails: expected {self.expected}; came {self.came}{used}"

    def problem(self, severity: Severity = Severity.ERROR) -> Problem:
        """The failure as a problem of the flag, at the place of the test."""
        return self.test.problem(severity, FAILED, self.message)

    def problems(self, severity: Severity) -> Sequence[Problem]:
        """The failure, as a problem of each flag that it concerns."""
        problem = self.problem(severity)
        return [replace(problem, flag=key) for key in self.users] or [problem]


@dataclass(frozen=True, slots=True)
class TestReport:
    """What came of all cases, and what they reach."""

    __test__ = False

    outcomes: tuple[TestOutcome, ...]
    coverage: Coverage

    @property
    def failures(self) -> tuple[TestOutcome, ...]:
        """The cases that failed."""
        return tuple(outcome for outcome in self.outcomes if not outcome.passed and not outcome.skipped)

    def with_users(self, layers: Sequence[Layer]) -> TestReport:
        """The same, with the flags of `layers` that use the evaluators whose tests fail."""
        names = {outcome.test.subject for outcome in self.failures if outcome.test.of_evaluator}
        users = {name: evaluator_users(layers, name) for name in names}
        outcomes = (
            replace(outcome, users=users.get(outcome.test.subject, ()))
            if outcome.test.of_evaluator and not outcome.passed
            else outcome
            for outcome in self.outcomes
        )
        return replace(self, outcomes=tuple(outcomes)) if names else self


def run_flag_tests(
    flag_set: FlagSet,
    cases: Iterable[FlagTest],
    bucketing: Bucketing = Bucketing.V2,
    skip: Collection[str] = frozenset(),
    most_work: int = MOST_WORK,
) -> TestReport:
    """Run each case; those about the flags `skip` do not run. Never raises."""
    flags = compile_flag_set(flag_set, bucketing=bucketing)
    runs = _Runs(flags, ReachedParts(flags), most_work)
    outcomes = tuple(
        TestOutcome(case, "", "", passed=False, skipped=True) if case.flag in skip else runs.run(case)
        for case in cases
    )
    return TestReport(outcomes, runs.reached.coverage())


@dataclass(slots=True)
class _Reports:
    """What the operators of one evaluation report."""

    values: dict[Path, Json] = field(default_factory=dict)
    steps: int = 0
    reads_time: bool = False
    range_end: int = HASHES
    """The first hash beyond the one that was given for which the answer may differ."""

    def __call__(self, path: Path, name: str, value: Json, particulars: Mapping[str, Json]) -> None:
        self.steps += 1
        self.values[path] = value
        if name == "var" and particulars.get("name") == _TIMESTAMP:
            self.reads_time = True
        if "end" in particulars:
            end = -((-particulars["end"] << 32) // particulars["of"])
            self.range_end = min(self.range_end, end)


@dataclass(slots=True)
class _Runs:
    flags: CompiledFlagSet
    reached: ReachedParts
    work_left: int

    def run(self, test: FlagTest) -> TestOutcome:
        """Run a case."""
        if self.work_left <= 0:
            message = (
                "nothing: all tests together take too much work, so it did not run; make several FlagSets"
            )
            return TestOutcome(test, "a result", message, passed=False)
        if test.of_evaluator:
            return self._run_evaluator(test)
        known = self.flags.flag_set.flags
        if test.distribution is not None and test.subject in known:
            return self._run_distribution(test)
        if test.expect is None or test.subject not in known:
            return self._run_missing(test)
        flags = self.flags if test.at is None else self._with_hash(test.subject, _constant(test.at))
        reports = _Reports()
        now = test.time or 0
        resolution = resolve(flags, test.subject, test.wanted, test.context, now, reports)
        self._count(test.subject, resolution, reports)
        given = answer(test.subject, resolution)
        outcome = _judge(test, given, reports)
        if outcome.passed:
            return outcome
        steps = explain(flags, test.subject, test.wanted, test.context, now).steps
        return TestOutcome(test, outcome.expected, outcome.came, passed=False, trace=tuple(map(str, steps)))

    def _run_missing(self, test: FlagTest) -> TestOutcome:
        """A case about a flag that is not there, or should not be."""
        known = self.flags.flag_set.flags
        if test.subject in known:
            return TestOutcome(test, f"no flag {quote(test.subject)}", "a flag of that key", passed=False)
        wants_none = test.distribution is None and (
            test.expect is None or test.expect.get("errorCode") == ErrorCode.FLAG_NOT_FOUND
        )
        hint = did_you_mean(test.subject, known)
        return TestOutcome(test, _expected(test), f"no flag of that key{hint}", passed=wants_none)

    def _run_evaluator(self, test: FlagTest) -> TestOutcome:
        evaluators = self.flags.flag_set.evaluators
        if test.subject not in evaluators:
            hint = did_you_mean(test.subject, evaluators)
            return TestOutcome(test, _expected(test), f"no evaluator of that name{hint}", passed=False)
        reports, steps = _Reports(), list[TraceStep]()

        def trace(path: Path, name: str, value: Json, particulars: Mapping[str, Json]) -> None:
            reports(path, name, value, particulars)
            if len(steps) < MOST_STEPS:
                steps.append(TraceStep(path, name, value, particulars))

        context = {**test.context, FLAGD: {"flagKey": "", "timestamp": test.time or 0}}
        try:
            rule = compile_rule(
                self.flags.expand({"$ref": test.subject}),
                bucketing=self.flags.bucketing,
                flag_key="",
                hash_of=None if test.at is None else _constant(test.at),
            )
            given: dict[str, Json] = {"value": rule(context, trace)}
        except (RuleTooLarge, RuleError, RecursionError) as error:
            given = {"errorCode": ErrorCode.PARSE_ERROR.value, "errorDetails": str(error)}
        self.work_left -= 1 + reports.steps
        outcome = _judge(test, given, reports)
        trace_lines = () if outcome.passed else tuple(map(str, steps))
        return TestOutcome(test, outcome.expected, outcome.came, outcome.passed, trace_lines)

    def _run_distribution(self, test: FlagTest) -> TestOutcome:
        wanted = test.distribution or {}
        rule = rule_of(self.flags, test.subject)
        bucketing = self.flags.bucketing_of(self.flags[test.subject].flag)
        sources = {*_hash_sources(rule, test.subject, bucketing)}
        shares, how = None, "exactly"
        if attributes := _one_source(sources, rule):
            shares = self._exact(test, attributes)
        if shares is None:
            varied = {name for source in sources if source is not None for name in source[1] if name}
            shares, how = self._estimate(test, varied or {TARGETING_KEY}), f"of {SAMPLES:,} keys"
        if shares is None:
            came = "a rule that reads $flagd.timestamp: give the test a `time`"
            return TestOutcome(test, _expected(test), came, passed=False)
        total = sum(shares.values())
        percent = {name: Fraction(100 * count, total) for name, count in shares.items()}
        came = ", ".join(f"{name} {float(share):.4g} %" for name, share in sorted(percent.items()))
        passed = all(share.admits(percent.get(name, Fraction(0))) for name, share in wanted.items())
        return TestOutcome(test, _expected(test), f"{came} ({how})", passed)

    def _exact(self, test: FlagTest, attributes: Iterable[str]) -> Counter[str] | None:
        """Count the hashes of each variant, range by range; None where there are too many ranges."""
        hashed = [0]
        flags = self._with_hash(test.subject, lambda: hashed[0])
        context = test.context
        for attribute in attributes:
            context = _with(context, attribute, attribute)
        shares: Counter[str] = Counter()
        for _ in range(_MOST_RANGES):
            reports = _Reports()
            resolution = resolve(flags, test.subject, None, context, test.time or 0, reports)
            if reports.reads_time and test.time is None:
                return None
            self._count(test.subject, resolution, reports)
            shares[_name_of(resolution)] += reports.range_end - hashed[0]
            hashed[0] = reports.range_end
            if hashed[0] >= HASHES:
                return shares
            if self.work_left <= 0:
                break
        return None

    def _estimate(self, test: FlagTest, attributes: Collection[str]) -> Counter[str] | None:
        """Count the variants of synthetic keys; None where the test needs a time."""
        shares: Counter[str] = Counter()
        cost = 1
        for index in range(SAMPLES):
            context = test.context
            for attribute in attributes:
                context = _with(context, attribute, f"{attribute}-{index}")
            self.work_left -= cost
            resolution = resolve(self.flags, test.subject, None, context, test.time or 0)
            name = _name_of(resolution)
            if name not in shares:
                reports = _Reports()
                resolve(self.flags, test.subject, None, context, test.time or 0, reports)
                if reports.reads_time and test.time is None:
                    return None
                cost = max(cost, reports.steps)
                self._count(test.subject, resolution, reports)
            shares[name] += 1
            if self.work_left <= 0:
                break
        return shares

    def _count(self, key: str, resolution: Resolution, reports: _Reports) -> None:
        self.work_left -= 1 + reports.steps
        self.reached.add(key, resolution.variant, reports.values)

    def _with_hash(self, key: str, hash_of: Callable[[], int]) -> CompiledFlagSet:
        """The flags, of which one takes `hash_of` for the hash of any user."""
        flags = self.flags
        changed = CompiledFlagSet(flags.flag_set, flags.bucketing, expose_bucketing=False)
        flag = flags[key].flag
        compiled = changed.compiled[key] = CompiledFlag(flag, flags, flags[key])
        rule = rule_of(flags, key)
        if compiled.run is not None and rule is not None:
            bucketing = flags.bucketing_of(flag)
            made = compile_rule(rule, bucketing=bucketing, flag_key=key, hash_of=hash_of)
            compiled.run = made.run
        return changed


def _constant(percent: Fraction) -> Callable[[], int]:
    """The first hash that is at or beyond a percentage of all."""
    hashed = -((-percent * HASHES) // 100)
    return lambda: int(hashed)


def _name_of(resolution: Resolution) -> str:
    if resolution.error_code is not None:
        return f"({resolution.error_code})"
    return _NO_VARIANT if resolution.variant is None else resolution.variant


def _judge(test: FlagTest, given: Mapping[str, Any], reports: _Reports) -> TestOutcome:
    """Compare an answer, with OFREP's names, with what is expected."""
    expect = test.expect or {}
    if reports.reads_time and test.time is None:
        came = "a rule that reads $flagd.timestamp: give the test a `time`"
        return TestOutcome(test, _expected(test), came, passed=False)
    metadata = given.get("metadata", {})
    same_metadata = all(same(value, metadata.get(name)) for name, value in expect.get("metadata", {}).items())
    passed = same_metadata and all(
        same(value, given.get(name)) for name, value in expect.items() if name != "metadata"
    )
    return TestOutcome(test, _expected(test), _came(given, {*expect}), passed)


def _expected(test: FlagTest) -> str:
    if test.distribution is not None:
        return ", ".join(f"{name} {share}" for name, share in test.distribution.items())
    if test.expect is None:
        return f"no flag {quote(test.subject)}"
    return ", ".join(_field(name, value) for name, value in test.expect.items())


def _came(given: Mapping[str, Any], asked: Collection[str]) -> str:
    """The answer: what was asked for, the variant, the reason, and any error."""
    fields = [name for name in ("variant", "value", "reason", "errorCode") if name in asked or name in given]
    texts = [_field(name, given.get(name)) for name in fields]
    if "metadata" in asked:
        texts.append(_field("metadata", given.get("metadata")))
    if given.get("errorDetails"):
        texts.append(str(given["errorDetails"]))
    return ", ".join(texts)


def _field(name: str, value: Json) -> str:
    if value is None:
        return f"no {name}"
    is_word = name in ("reason", "errorCode") and isinstance(value, str | EvaluationReason)
    return f"{name} {value if is_word else quote(value)}"


def _with(context: Mapping[str, Json], attribute: str, value: str) -> dict[str, Json]:
    """The context with an attribute, whose dots lead into objects."""
    name, dot, rest = attribute.partition(".")
    if not dot:
        return {**context, name: value}
    inner = context.get(name)
    return {**context, name: _with(inner if isinstance(inner, dict) else {}, rest, value)}


# -- what a rule hashes --------------------------------------------------------------------------------------


def _hash_sources(
    node: Json, flag_key: str, bucketing: Bucketing, *, in_loop: bool = False
) -> Iterator[tuple[str, tuple[str, ...]] | None]:
    """For each `fractional`: what it hashes, and the attributes in that; None: it cannot be told."""
    if isinstance(node, list):
        for part in node:
            yield from _hash_sources(part, flag_key, bucketing, in_loop=in_loop)
    elif isinstance(node, dict) and len(node) == 1:
        ((name, values),) = node.items()
        if name == "fractional":
            readable = not in_loop and isinstance(values, list) and values
            yield hash_input(flag_key, values, bucketing) if readable else None
        yield from _hash_sources(values, flag_key, bucketing, in_loop=in_loop or name in LOOPS)


def _one_source(sources: set[tuple[str, tuple[str, ...]] | None], rule: Json) -> tuple[str, ...]:
    """The attributes that all of a rule's `fractional`s hash, and nothing else of the rule reads; empty where
    there are none such. Without any `fractional`, the targeting key.
    """
    source = next(iter(sources)) if len(sources) == 1 else None if sources else ("", (TARGETING_KEY,))
    attributes = () if source is None or not all(source[1]) else source[1]
    for name in _variables(rule, but_hashed=True):
        for attribute in attributes:
            if not name or f"{name}.".startswith(f"{attribute}.") or attribute.startswith(f"{name}."):
                return ()
    return attributes


def _variables(node: Json, *, but_hashed: bool = False) -> Iterator[str | None]:
    """The names of the variables that a rule reads, None for one that is computed; `but_hashed`: apart from
    what a `fractional` hashes.
    """
    if isinstance(node, list):
        for part in node:
            yield from _variables(part, but_hashed=but_hashed)
    elif isinstance(node, dict) and len(node) == 1:
        ((name, values),) = node.items()
        if name in _VARIABLES:
            first = values[0] if name == "var" and isinstance(values, list) and values else values
            yield first if name == "var" and isinstance(first, str) else None
        elif but_hashed and name == "fractional" and isinstance(values, list):
            hashes = bool(values) and not isinstance(values[0], list)
            yield from _variables(values[1:] if hashes else values, but_hashed=True)
        else:
            yield from _variables(values, but_hashed=but_hashed)
