"""Reads `*.flagtest.yaml`: what a file of tests may say, and the cases that its tests come to. Pure.

A file is strict, unlike definitions: a misspelt field would be a test that passes.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evaluator.flags.document import read_document
from evaluator.flags.known_operators import shorten
from evaluator.flags.layer import EVALUATORS
from evaluator.flags.model import ABSENT, EMPTY, Json, Path
from evaluator.flags.problems import Document, Problem, Severity
from evaluator.flags.suggestions import did_you_mean
from evaluator.flags.text import Bounds, choices, json_path, quote
from evaluator.host.times import read_time
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, FlagType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


TEST_SUFFIXES: Final = (".flagtest.yaml", ".flagtest.yml", ".flagtest.json")
"""What the name of a file of tests ends with; such a file holds no definitions."""
MOST_ROWS: Final = 1_000
"""Most cases that the matrix of one test comes to."""
MOST_CASES: Final = 50_000
"""Most cases of all tests of a flag set."""
TEST_BOUNDS: Final = Bounds(document_bytes=4 * 1024 * 1024)
"""Bounds of one file."""
FORM: Final = "test-form"
"""The code of what is wrong with a file of tests."""
MAY_HOLD: Final = "a test has `name`, `flag` or `evaluator`, and one of `expect`, `distribution`, `missing`"

_SUBJECTS: Final = ("flag", "evaluator")
_WANTS: Final = ("expect", "distribution", "missing")
TEST_FIELDS: Final = ("name", *_SUBJECTS, "matrix", "context", "time", "at", "type", *_WANTS)
EXPECTED_FIELDS: Final = ("variant", "value", "reason", "errorCode", "metadata")
_OF_EVALUATOR: Final = ("value", "errorCode")
_VARIABLE: Final = re.compile(r"\$(\$\{|\{([^{}]*)\})")
_SHARE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *%? *(?:(?:±|\+-|\+/-) *([0-9]+(?:\.[0-9]+)?))?")


_ROUNDING: Final = Fraction(1, 1_000_000)
"""Percent: 2^32 hashes are not divided evenly, so a tenth of them is a little more or less."""


class UserShare(NamedTuple):
    """How many users get a variant, in percent."""

    percent: Fraction
    tolerance: Fraction = Fraction(0)

    def __str__(self) -> str:
        return f"{float(self.percent):g} ± {float(self.tolerance):g} %"

    def admits(self, percent: Fraction) -> bool:
        """Whether another share is as near as it has to be."""
        return abs(percent - self.percent) <= self.tolerance + _ROUNDING


@dataclass(frozen=True, slots=True)
class FlagTest:
    """One case: a test, with the values of a row of its matrix."""

    name: str
    subject: str
    """The key of the flag, or the name of the evaluator."""
    document: Document
    path: Path
    """The place of the test in its document."""
    of_evaluator: bool = False
    """Whether it is about an evaluator, not about a flag."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    time: int | None = None
    """What `$flagd.timestamp` says, in seconds; None: the test does not say."""
    at: Fraction | None = None
    """Where every `fractional` finds the user, in percent; None: where the hash leads."""
    wanted: FlagType | None = None
    expect: Mapping[str, Json] | None = None
    distribution: Mapping[str, UserShare] | None = None
    """Shares of variants; where it and `expect` are None, the flag must be missing."""

    @property
    def flag(self) -> str | None:
        """The key of the flag, if it is about one."""
        return None if self.of_evaluator else self.subject

    def problem(self, severity: Severity, code: str, message: str) -> Problem:
        """A problem of the test. That of an evaluator has its path: it counts for all flags that use it."""
        line, column = self.document.place(self.path)
        path = (EVALUATORS, self.subject) if self.of_evaluator else self.path
        return Problem(self.document.file, line, column, severity, code, message, json_path(path), self.flag)


class FlagTests(NamedTuple):
    """All tests of a flag set, and what is wrong with their files."""

    cases: tuple[FlagTest, ...] = ()
    problems: tuple[Problem, ...] = ()


class _Wrong(Exception):
    """A part of a test cannot be read."""

    def __init__(self, path: Path, message: str, *, at_key: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.at_key = at_key


def is_test_file(name: str) -> bool:
    """Whether a file holds tests of flags, by its name."""
    return name.endswith(TEST_SUFFIXES)


def read_flag_tests(layers: Iterable[Iterable[tuple[str, bytes]]], most_cases: int = MOST_CASES) -> FlagTests:
    """Read the test files of layers, base first. A test of a later layer replaces that of the same name and
    flag of an earlier one, as flags do. Never raises.
    """
    merged: dict[tuple[str, str], list[FlagTest]] = {}
    problems: list[Problem] = []
    for files in layers:
        reading = _Reading(problems)
        for name, content in files:
            reading.read(name, content)
        merged |= reading.cases
    cases = [case for of_test in merged.values() for case in of_test]
    if len(cases) > most_cases:
        message = f"the tests come to {len(cases)} cases, more than {most_cases}; leave some out"
        problems.append(cases[most_cases].problem(Severity.ERROR, FORM, message))
        cases = cases[:most_cases]
    return FlagTests(tuple(cases), tuple(problems))


class _Reading:
    """The tests of one layer."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.cases: dict[tuple[str, str], list[FlagTest]] = {}

    def read(self, name: str, content: bytes) -> None:
        document = read_document(content, file=name, bounds=TEST_BOUNDS)
        self.problems += (problem for problem in document.problems if problem.severity is not Severity.NOTE)
        if document.value is ABSENT:
            return
        try:
            top = _object(document.value, ())
            _require_clear(top)
            _require_known(top, ("tests", "$schema"), (), "a file of tests has `tests`")
            tests = _list(top.get("tests"), ("tests",))
        except _Wrong as wrong:
            self._report(document, wrong, None)
            return
        for index, test in enumerate(tests):
            path = ("tests", index)
            subject = test.get("flag") if isinstance(test, dict) else None
            try:
                self._add(document, path, _object(test, path))
            except _Wrong as wrong:
                self._report(document, wrong, subject if isinstance(subject, str) else None)

    def _report(self, document: Document, wrong: _Wrong, flag: str | None) -> None:
        line, column = document.place(wrong.path, key=wrong.at_key)
        where = json_path(wrong.path)
        self.problems.append(
            Problem(document.file, line, column, Severity.ERROR, FORM, str(wrong), where, flag)
        )

    def _add(self, document: Document, path: Path, test: dict[str, Any]) -> None:
        cases = [*_cases(document, path, test)]
        key = (str(test["name"]), cases[0].subject)
        if key in self.cases:
            first = self.cases[key][0]
            line, _ = first.document.place(first.path)
            message = (
                f"{quote(key[0])} is also the name of a test at {first.document.file}:{line}; rename one"
            )
            raise _Wrong((*path, "name"), message)
        self.cases[key] = cases


def _object(value: Json, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(path, f"an object is needed here, not {shorten(value)}")
    return value


def _list(value: Json, path: Path) -> list[Json]:
    if not isinstance(value, list):
        raise _Wrong(path, f"a list of tests is needed here, not {shorten(value)}")
    return value


def _require_clear(top: Mapping[str, Any]) -> None:
    if "sops" in top:
        message = "tests are not decrypted: write the file in clear, with values that are no secrets"
        raise _Wrong(("sops",), message, at_key=True)


def _require_known(value: Mapping[str, Any], known: Sequence[str], path: Path, otherwise: str) -> None:
    for name in value:
        if name not in known:
            hint = did_you_mean(name, known) or f"; {otherwise}"
            raise _Wrong((*path, name), f"unknown field {quote(name)}{hint}", at_key=True)


def _cases(document: Document, path: Path, test: dict[str, Any]) -> Iterator[FlagTest]:
    """The cases of one test. Raises _Wrong."""
    _require_known(test, TEST_FIELDS, path, MAY_HOLD)
    for word in ("name", *_SUBJECTS):
        if word in test and not (isinstance(test[word], str) and test[word]):
            raise _Wrong((*path, word), f"`{word}` must be a text, not {shorten(test[word])}")
    subjects = [word for word in _SUBJECTS if word in test]
    wants = [word for word in _WANTS if word in test]
    if "name" not in test or len(subjects) != 1 or len(wants) != 1:
        raise _Wrong(path, MAY_HOLD)
    if subjects == ["evaluator"] and wants != ["expect"]:
        raise _Wrong((*path, wants[0]), "a test of an evaluator has `expect`", at_key=True)
    for row in _rows(test.get("matrix", {}), (*path, "matrix")):
        yield _case(document, path, _Filled(test, row, path))


def _rows(matrix: Json, path: Path) -> Iterator[dict[str, Json]]:
    """The combinations of a matrix, in the order of its lists."""
    columns = _object(matrix, path)
    for name, values in columns.items():
        if not isinstance(values, list) or not values:
            raise _Wrong((*path, name), f"{quote(name)} needs a list of values, not {shorten(values)}")
    count = math.prod(map(len, columns.values()))
    if count > MOST_ROWS:
        raise _Wrong(path, f"the matrix comes to {count} cases, more than {MOST_ROWS}; make it smaller")
    for values in itertools.product(*columns.values()):
        yield dict(zip(columns, values, strict=True))


class _Filled(NamedTuple):
    """A test with the values of a row for its variables."""

    test: dict[str, Any]
    row: dict[str, Json]
    path: Path

    def get(self, field: str, default: Json = None) -> Json:
        return _fill(self.test.get(field, default), self.row, (*self.path, field))

    @property
    def name(self) -> str:
        """Says the row where the test's own name does not."""
        name = str(self.get("name"))
        if not self.row or name != self.test["name"]:
            return name
        return f"{name} [{', '.join(f'{key}={_text(value)}' for key, value in self.row.items())}]"


def _fill(value: Json, row: Mapping[str, Json], path: Path) -> Json:
    """`value` with each `${name}` replaced; a text that is nothing else becomes the value itself."""
    if isinstance(value, dict):
        return {str(_fill(key, row, path)): _fill(part, row, (*path, key)) for key, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, row, (*path, index)) for index, part in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def named(match: re.Match[str]) -> Json:
        name = match[2]
        if name not in row:
            hint = did_you_mean(name, row) or (
                "; those of `matrix` are known, not those of a FlagSet, and `$${` is the text `${`"
            )
            raise _Wrong(path, f"there is no variable {quote(name)}{hint}")
        return row[name]

    whole = _VARIABLE.fullmatch(value)
    if whole is not None and whole[2] is not None:
        return named(whole)
    return _VARIABLE.sub(lambda match: "${" if match[2] is None else _text(named(match)), value)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else shorten(value)


def _case(document: Document, path: Path, filled: _Filled) -> FlagTest:
    of_evaluator = "evaluator" in filled.test
    missing = filled.get("missing", True)
    if missing is not True:
        raise _Wrong((*path, "missing"), "`missing` must be true; leave it out, and write `expect`")
    expect = distribution = None
    if "expect" in filled.test:
        expect = _expectation(filled.get("expect"), (*path, "expect"), of_evaluator=of_evaluator)
    if "distribution" in filled.test:
        distribution = _shares(filled.get("distribution"), (*path, "distribution"))
        if "at" in filled.test:
            raise _Wrong(
                (*path, "at"), "`at` names one bucket, and a distribution has all of them", at_key=True
            )
    return FlagTest(
        filled.name,
        str(filled.get("evaluator" if of_evaluator else "flag")),
        document,
        path,
        of_evaluator,
        _object(filled.get("context", {}), (*path, "context")),
        _time(filled.get("time"), (*path, "time")),
        _position(filled.get("at"), (*path, "at")),
        _one_of(FlagType, filled.get("type"), (*path, "type"), upper=True),
        expect,
        distribution,
    )


def _time(value: Json, path: Path) -> int | None:
    if value is None:
        return None
    try:
        return int(read_time(value).timestamp())
    except ValueError:
        message = f"{quote(value)} is no time with a zone; write it as 2026-12-24T12:00:00Z"
        raise _Wrong(path, message) from None


def _position(value: Json, path: Path) -> Fraction | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 100:
        raise _Wrong(path, f"`at` must be a number from 0 to less than 100, not {shorten(value)}")
    return Fraction(repr(value))


def _one_of(names: Any, value: Json, path: Path, *, upper: bool = False) -> Any:
    if value is None:
        return None
    written = value.upper() if upper and isinstance(value, str) else value
    known = [name.value.lower() if upper else name.value for name in names]
    if not isinstance(written, str) or written not in names.__members__:
        hint = did_you_mean(str(value), known) or f"; choose one of {', '.join(map(quote, known))}"
        raise _Wrong(path, f"{quote(value)} is not known{hint}")
    return names(written)


def _expectation(value: Json, path: Path, *, of_evaluator: bool) -> dict[str, Json]:
    expect = _object(value, path)
    known = _OF_EVALUATOR if of_evaluator else EXPECTED_FIELDS
    _require_known(expect, known, path, f"what can be expected is {choices(known)}")
    if not expect:
        raise _Wrong(path, f"`expect` needs at least one of {choices(known)}")
    variant = expect.get("variant")
    if variant is not None and not isinstance(variant, str):
        raise _Wrong((*path, "variant"), f"`variant` must be a name or null; write {quote(_text(variant))}")
    _one_of(EvaluationReason, expect.get("reason"), (*path, "reason"))
    _one_of(ErrorCode, expect.get("errorCode"), (*path, "errorCode"))
    _object(expect.get("metadata", {}), (*path, "metadata"))
    return expect


def _shares(value: Json, path: Path) -> dict[str, UserShare]:
    """The shares by variant: a number of percent, or a text such as `10 ± 1`."""
    written = _object(value, path)
    if not written:
        raise _Wrong(path, '`distribution` needs the share of a variant, such as {"on": 10 ± 1}')
    return {name: _share(share, (*path, name)) for name, share in written.items()}


def _share(value: Json, path: Path) -> UserShare:
    text = value if isinstance(value, str) else "" if isinstance(value, bool) else repr(value)
    match = _SHARE.fullmatch(text.removesuffix("%").strip())
    share = None if match is None else UserShare(Fraction(match[1]), Fraction(match[2] or 0))
    if share is None or share.percent > 100:
        raise _Wrong(path, f"{shorten(value)} is no share; write percent and tolerance, such as 10 ± 1")
    return share
