"""What readers share."""

from __future__ import annotations

import re

import pytest

from controller.importers.model import NEXT, Condition, OneOf, Text, TextPart
from controller.importers.reading import NoExactForm, arms_of_ranges, text_pattern


def test_the_first_range_has_users_and_holes_are_left_to_the_next_rule() -> None:
    arms = arms_of_ranges([(10, 40, "a"), (20, 50, "b"), (90, 120, "c")], 100, "here")
    assert arms == ((NEXT, 10), ("a", 10), ("a", 20), ("b", 10), (NEXT, 40), ("c", 10))
    assert arms_of_ranges([(0.5, 0.2, "a")], 1.0, "here")[0][0] is NEXT


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abc", Text("a", TextPart.ANYWHERE, ("abc",))),
        ("^abc", Text("a", TextPart.START, ("abc",))),
        (r"@a\.b$", Text("a", TextPart.END, ("@a.b",))),
        ("^(x|y-z)$", OneOf("a", ("x", "y-z"))),
    ],
)
def test_an_expression_that_is_a_text_is_found(pattern: str, expected: Condition) -> None:
    assert text_pattern("a", pattern, "here") == expected


@pytest.mark.parametrize("pattern", ["", "a.b", "a*", "^a|b", r"\d", "a\\", "(a", "[ab]", "a{2}", "(?i)a"])
def test_other_expressions_are_refused(pattern: str) -> None:
    with pytest.raises(NoExactForm, match=re.escape("no form here")):
        text_pattern("a", pattern, "here")
