"""The evaluator suite of flagd-testbed: every scenario, in memory.

The harness stands for an SDK: where there is no value, the caller's code default is the answer.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gherkin.parser import Parser
from gherkin.pickles.compiler import Compiler

from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT
from evaluator.resolving.resolution import FlagType, Resolution
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTBED = Path(
    os.environ.get("FLAGD_TESTBED") or Path(__file__).parents[3] / "shared" / "conformance" / "flagd-testbed"
)
NOT_RUN = {"@fractional-v1": "this generation of bucketing is retired; flagd no longer has it"}
NOW = 1_700_000_000
READ: dict[str, Any] = {
    "Boolean": lambda text: text == "true",
    "String": str,
    "Integer": int,
    "Float": float,
    "Object": lambda text: json.loads(text.replace('\\"', '"')),
}


def scenarios() -> Iterator[Any]:
    features = sorted((TESTBED / "gherkin").glob("*.feature"))
    if not features:
        yield pytest.param(None, marks=pytest.mark.skip(f"no flagd-testbed at {TESTBED}"), id="absent")
    for feature in features:
        document: Any = Parser().parse(feature.read_text(encoding="utf-8"))
        document["uri"] = feature.name
        for number, pickle in enumerate(Compiler().compile(document)):
            reasons = [NOT_RUN[tag["name"]] for tag in pickle["tags"] if tag["name"] in NOT_RUN]
            marks = [pytest.mark.skip(reason) for reason in reasons]
            name = f"{feature.stem}-{number}-{pickle['name'].replace(' ', '-')}"
            yield pytest.param(pickle, marks=marks, id=name)


@pytest.fixture(scope="module")
def flags() -> CompiledFlagSet:
    path = TESTBED / "flags" / "testkit-flags.json"
    return compile_flag_set(parse(path.read_bytes(), file=path.name).flag_set)


class Caller:
    """One scenario's state."""

    def __init__(self, flags: CompiledFlagSet) -> None:
        self.flags = flags
        self.context: dict[str, Any] = {}
        self.kind = self.key = ""
        self.default: Any = None
        self.answer: Resolution | None = None

    def ask_for(self, kind: str, key: str, default: str) -> None:
        self.kind, self.key, self.default = kind, key, READ[kind](default)

    def know(self, key: str, kind: str, value: str) -> None:
        self.context[key] = READ[kind](value)

    def know_user(self, value: str) -> None:
        self.context["targetingKey"] = value

    def know_inner(self, outer: str, inner: str, value: str) -> None:
        self.context[outer] = {inner: value}

    def evaluate(self) -> None:
        wanted = FlagType(self.kind.upper())
        self.answer = resolve(self.flags, self.key, wanted, self.context, NOW)

    @property
    def answered(self) -> Resolution:
        assert self.answer is not None, "nothing was evaluated"
        return self.answer

    def value_is(self, text: str) -> None:
        value = self.default if self.answered.value is ABSENT else self.answered.value
        assert value == READ[self.kind](text)
        assert type(value) is type(READ[self.kind](text))

    def reason_is(self, reason: str) -> None:
        assert self.answered.reason == reason

    def error_is(self, code: str) -> None:
        assert self.answered.error_code == code

    def metadata_holds(self, *rows: dict[str, Any]) -> None:
        for row in rows:
            assert self.answered.metadata[row["key"]] == READ[row["metadata_type"]](row["value"])

    def metadata_is_empty(self) -> None:
        assert not self.answered.metadata


STEPS: dict[str, Any] = {
    r"an evaluator": lambda _: None,
    r'an? (\w+)-flag with key "(.*)" and a fallback value "(.*)"': Caller.ask_for,
    r'a context containing a key "(.*)", with type "(.*)" and with value "(.*)"': Caller.know,
    r'a context containing a targeting key with value "(.*)"': Caller.know_user,
    r'a context containing a nested property with outer key "(.*)" and inner key "(.*)", with value "(.*)"': (
        Caller.know_inner
    ),
    r"the flag was evaluated with details": Caller.evaluate,
    r'the resolved details value should be "(.*)"': Caller.value_is,
    r'the reason should be "(.*)"': Caller.reason_is,
    r'the error-code should be "(.*)"': Caller.error_is,
    r"the resolved metadata should contain": Caller.metadata_holds,
    r"the resolved metadata is empty": Caller.metadata_is_empty,
}


def rows_of(step: Any) -> list[dict[str, str]]:
    rows = step.get("argument", {}).get("dataTable", {}).get("rows", [])
    cells = [[cell["value"] for cell in row["cells"]] for row in rows]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def take(caller: Caller, step: Any) -> None:
    for pattern, action in STEPS.items():
        match = re.fullmatch(pattern, step["text"])
        if match is not None:
            action(caller, *match.groups(), *rows_of(step))
            return
    pytest.fail(f"no step reads {step['text']!r}")


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_flagd_and_this_evaluator_agree_on(scenario: Any, flags: CompiledFlagSet) -> None:
    caller = Caller(flags)
    for step in scenario["steps"]:
        take(caller, step)
