from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from controller.api.artifact_status import ArtifactStatus
from controller.api.flagset_status import FlagSetStatus
from controller.delivery import problem_text as problems_of
from controller.flagsets import messages
from controller.flagsets.compose import Composition
from evaluator.flags.diff import Diff
from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.problems import Problem, Severity
from tests.worlds.flagsets import START

WARNING = Problem("a.yaml", 1, 2, Severity.WARNING, "x", "it is odd")
ERROR = Problem("b.yaml", 3, 4, Severity.ERROR, "x", "it is wrong")


def flags(*keys: str) -> dict[str, Flag]:
    return {key: Flag(key, State.ENABLED, {"on": True}) for key in keys}


def attempt(revision: str = "r1", author: str = "", subject: str = "", **made: Any) -> messages.Attempt:
    metadata = {"flagstaff.dev/author": author, "flagstaff.dev/subject": subject}
    artifact = ArtifactStatus(url="http://x", revision=revision, digest="sha256:00", metadata=metadata)
    fields: dict[str, Any] = {
        "flag_set": FlagSet(flags("a")), "digest": "sha256:1", "problems": (), "held": (),
        "changed": Diff((), MappingProxyType({}), ()), "accepted": True,
    }  # fmt: skip
    return messages.Attempt(artifact, Composition(**fields | made))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ERROR, "b.yaml:3:4"),
        (replace(ERROR, line=0, column=0), "b.yaml"),
        (replace(ERROR, file=""), "3:4"),
        (replace(ERROR, file="", line=0, column=0), ""),
    ],
)
def test_a_place_is_named_as_far_as_it_is_known(problem: Problem, expected: str) -> None:
    assert problems_of.place(problem) == expected


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ([ERROR], "b.yaml:3:4: it is wrong"),
        ([WARNING, ERROR, WARNING], "b.yaml:3:4: it is wrong (and 2 more)"),
        ([WARNING], "a.yaml:1:2: it is odd"),
        ([replace(ERROR, file="", line=0, column=0)], "it is wrong"),
    ],
)
def test_the_worst_problem_stands_for_all(problems: list[Problem], expected: str) -> None:
    assert problems_of.first_problem(problems) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (Diff((), {}, ()), "no flags changed"),
        (Diff(("a",), {"b": ()}, ("c",)), "1 added, 1 changed, 1 removed: a, b, c"),
        (Diff(tuple("abcdef"), {}, ()), "6 added: a, b, c, d, e, …"),
        (Diff(("k" * 100,), {}, ()), f"1 added: {'k' * 63}…"),
        (Diff(("a\nb",), {}, ()), "1 added: a b"),
    ],
)
def test_changes_are_counted_and_the_first_are_named(changed: Diff, expected: str) -> None:
    assert messages.changes(changed) == expected


def test_what_strangers_write_stays_within_its_line() -> None:
    made = attempt(author="A\x1b[31m\n <x>", subject="s" * 200, changed=Diff(("a",), {}, ()))
    said = messages.message_of_apply(FlagSetStatus(), made)
    assert said == f'r1 by A [31m  "{"s" * 71}…": 1 added: a'


def test_an_unknown_author_and_subject_are_left_out() -> None:
    assert (
        messages.message_of_apply(FlagSetStatus(), attempt(changed=Diff(("a",), {}, ()))) == "r1: 1 added: a"
    )


def test_a_message_about_a_bad_revision_names_flags_and_says_what_to_do() -> None:
    made = attempt(problems=(ERROR,), held=("a",), missing=("new",))
    assert messages.message_of_partial(made) == (
        "r1 is applied, except 2 of 2 flags: b.yaml:3:4: it is wrong. "
        "Still serving the previous definition of: a; not served, since they never were valid: new; "
        "push a correction, or revert the commit"
    )


def test_a_question_is_not_followed_by_a_full_stop() -> None:
    made = attempt(problems=(replace(ERROR, message="cut off?"),))
    assert messages.message_of_refusal(made, "", "r0") == (
        "r1 is refused: b.yaml:3:4: cut off? r0 stays served; push a correction, or revert the commit"
    )


@pytest.mark.parametrize(
    ("accepted", "end"),
    [
        (True, ", or delete X x to have all other flags applied"),
        (False, "push a correction, or revert the commit"),
    ],
)
def test_the_message_says_how_to_undo_an_edit_where_that_is_possible(accepted: bool, end: str) -> None:
    made = attempt(problems=(ERROR,), accepted=accepted)
    assert messages.message_of_unknown(made, "X x").endswith(end)


def test_errors_come_first_and_unknown_places_are_left_out() -> None:
    nowhere = replace(WARNING, file="", line=0, column=0)
    found = problems_of.problem_list([nowhere, ERROR])
    assert [each.model_dump(exclude_none=True) for each in found] == [
        {"severity": "error", "file": "b.yaml", "line": 3, "column": 4, "message": "it is wrong"},
        {"severity": "warning", "message": "it is odd"},
    ]


def test_a_held_flag_is_of_its_own_revision_or_else_of_the_set_s() -> None:
    marked = replace(flags("a")["a"], metadata={"flagstaff.dev/held-from": "r0"})
    both = FlagSet(flags("b") | {"a": marked}, {}, {"flagstaff.dev/revision": "r1"})
    made = attempt(flag_set=both, held=("a", "b")).composition
    assert [(each.name, each.revision) for each in messages.held_list(made)] == [("a", "r0"), ("b", "r1")]


def test_a_revision_that_is_in_the_history_is_not_added_again() -> None:
    first = messages.history(FlagSetStatus(), attempt("r1"), START)
    before = FlagSetStatus(history=first)
    assert messages.history(before, attempt("r1"), START) == first
    again = messages.history(before, attempt("r1", digest="sha256:2"), START)
    assert [each.digest for each in again] == ["sha256:2", "sha256:1"]


def test_the_history_keeps_the_newest() -> None:
    before = FlagSetStatus()
    for number in range(15):
        before = FlagSetStatus(history=messages.history(before, attempt(f"r{number}"), START))
    assert [each.revision for each in before.history] == [f"r{number}" for number in range(14, 4, -1)]


def test_the_last_good_revision_stays_while_a_flag_is_bad() -> None:
    before = FlagSetStatus(last_good_revision="r0")
    for bad in (attempt(held=("a",)), attempt(missing=("n",))):
        assert messages.status(before, bad, (), START).last_good_revision == "r0"
    assert messages.status(FlagSetStatus(), attempt(missing=("n",)), (), START).last_good_revision is None
    assert messages.status(before, attempt(), (), START).last_good_revision == "r1"


def test_no_text_of_a_stranger_makes_a_status_that_is_not_taken() -> None:
    long = "k" * 100_000
    problem = replace(ERROR, file=long, path=long, message=long)
    (entry,) = problems_of.problem_list([problem])
    assert [len(str(text)) for text in (entry.file, entry.path, entry.message)] == [500] * 3
    held = messages.held_list(attempt(flag_set=FlagSet(flags(long)), held=(long,)).composition)
    assert [len(each.name) for each in held] == [500]
