"""What verbs print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller.cli.printing import printable
from controller.cli.problems import as_json, as_sarif
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOSTILE = "a\x1b[31m\u202e\x9b\u2066é😀"


@pytest.mark.parametrize("form", [as_json, as_sarif])
def test_what_cannot_be_seen_is_an_escape_and_the_same_value(
    form: Callable[[Sequence[Problem]], str],
) -> None:
    text = form([Problem(HOSTILE, 1, 1, Severity.ERROR, "syntax", HOSTILE)])
    assert all(line.isprintable() for line in text.splitlines())
    assert json.dumps(json.loads(text)).count(json.dumps(HOSTILE)) >= 2
    assert "é😀" in text


def test_lines_stay() -> None:
    assert printable("a\n\tb\n") == "a\n\\tb\n"
