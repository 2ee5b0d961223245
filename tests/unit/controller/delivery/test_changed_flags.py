"""What a revision changed, in lines: names, never values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.delivery.changed_flags import MOST_LINES, changed_flags
from evaluator.flags.diff import diff
from evaluator.flags.model import Flag, FlagSet, State

SECRET = "a-secret-value"  # noqa: S105 - of nobody
FLAG = Flag("banner", State.ENABLED, {"plain": SECRET, "christmas": SECRET + "!"}, "plain")


def lines(before: FlagSet | None, after: FlagSet) -> tuple[str, ...]:
    return changed_flags(before, after, diff(before or FlagSet(), after))


def flag_set(*flags: Flag) -> FlagSet:
    return FlagSet({each.key: each for each in flags})


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ([], [FLAG], "+ banner: plain"),
        ([], [replace(FLAG, default_variant=None)], "+ banner: no default"),
        ([FLAG], [], "- banner"),
        ([FLAG], [replace(FLAG, default_variant="christmas")], "~ banner: default plain → christmas"),
        ([FLAG], [replace(FLAG, state=State.DISABLED)], "~ banner: state ENABLED → DISABLED"),
        ([FLAG], [replace(FLAG, variants={"plain": "y"})], "~ banner: variants"),
        (
            [FLAG], [replace(FLAG, default_variant=None, targeting={"if": [True, SECRET, None]})],
            "~ banner: default plain → no default, targeting",
        ),
    ],
)  # fmt: skip
def test_a_line_says_what_changed_of_a_flag(before: list[Flag], after: list[Flag], line: str) -> None:
    assert lines(flag_set(*before), flag_set(*after)) == (line,)


def test_without_a_set_before_all_flags_are_added() -> None:
    assert lines(None, flag_set(FLAG)) == ("+ banner: plain",)


def test_many_lines_are_counted() -> None:
    many = flag_set(*(replace(FLAG, key=f"k{number:03}") for number in range(100)))
    found = lines(None, many)
    assert len(found) == MOST_LINES
    assert found[-1] == "… and 81 more"


def test_a_key_of_a_stranger_stays_within_its_line() -> None:
    (line,) = lines(None, flag_set(replace(FLAG, key="a\nb" + "x" * 1_000, default_variant="c\nd")))
    assert line.startswith("+ a bxxx")
    assert line.endswith("…: c d")
