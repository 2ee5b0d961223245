"""Lists in files beside definitions: the plain list that they come to, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.delivery.changed_flags import changed_flags
from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.segments import MOST_IN_ALL, MOST_VALUES, with_listed, without_listed
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet

CSV = {"file": "beta.segment.csv", "column": "id"}
LINES = {"file": "beta.segment.txt"}


def definitions(named: Any = None, rule: Any = None) -> bytes:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    rule = rule or {"if": [{"$ref": "beta"}, "on"]}
    shared = {"beta": {"in": [{"var": "targetingKey"}, CSV if named is None else named]}}
    flags = {"cart": {**flag, "targeting": rule}, "other": flag}
    return json.dumps({"flags": flags, "$evaluators": shared}, indent=1).encode()


def composed(
    files: dict[str, str | bytes],
    *,
    named: Any = None,
    rule: Any = None,
    previous: FlagSet | None = None,
    skipped: tuple[str, ...] = (),
    path: str = "flags",
) -> Composition:
    tree = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    tree = {"flags/shop.json": definitions(named, rule), **tree}
    return compose(tree, [path], provenance=provenance_of("main@sha1:1"), previous=previous, skipped=skipped)


def variants(flag_set: FlagSet, *users: str) -> list[str | None]:
    compiled = compile_flag_set(flag_set)
    return [resolve(compiled, "cart", None, {"targetingKey": user}, 0).variant for user in users]


@pytest.mark.parametrize(
    ("file", "named", "text"),
    [
        pytest.param("beta.segment.csv", CSV, "name,id\nAnn,u1\nBob,u2\n", id="a column"),
        pytest.param("beta.segment.csv", CSV, '\ufeffid\r\nu1\r\n"u2"\r\n', id="as a spreadsheet writes it"),
        pytest.param("beta.segment.csv", CSV, 'id,note\nu1,"two\nlines"\nu2,\n', id="a value of two lines"),
        pytest.param("beta.segment.txt", LINES, "u1\n\n  u2", id="lines"),
    ],
)
def test_a_list_in_a_file_comes_to_a_plain_list(file: str, named: Any, text: str) -> None:
    made = composed({f"flags/{file}": text}, named=named)
    assert made.problems == ()
    assert made.flag_set.evaluators["beta"] == {"in": [{"var": "targetingKey"}, ["u1", "u2"]]}
    assert variants(made.flag_set, "u1", "u2", "u3") == ["on", "on", "off"]


@pytest.mark.parametrize("path", ["flags", "flags/shop.json", "flags/*.json", "**"])
def test_every_way_to_name_a_layer_finds_the_lists_beside_its_definitions(path: str) -> None:
    assert variants(composed({"flags/beta.segment.csv": "id\nu1\n"}, path=path).flag_set, "u1") == ["on"]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "flags/beta.segment.csv", "the file is empty"),
        ("id\n", "flags/beta.segment.csv", "the file has no value"),
        ("ids\nu1\n", "flags/beta.segment.csv:1:1", 'no column "id" (did you mean "ids"?)'),
        ("id,id\nu1,u2\n", "flags/beta.segment.csv:1:1", 'two columns "id"'),
        ("id,name\nu1,Ann\nu2\n", "flags/beta.segment.csv:3:1", "the row has 1 of the 2 values"),
        ("id,name\n,Ann\n", "flags/beta.segment.csv:2:1", 'no value in the column "id"'),
        ('id\nu1\n"u2\n', "flags/beta.segment.csv:3:1", "this is no CSV"),
        ("id\nu1\nu\u200b1\n", "flags/beta.segment.csv:3:1", "U+200B"),
        ("id\n" + "u" * 1_025 + "\n", "flags/beta.segment.csv:2:1", "more than 1024 characters"),
        (b"id\nu1\n\xff\n", "flags/beta.segment.csv:3:1", "not UTF-8"),
        ("id\nu1\nu2\nu1\n", "flags/beta.segment.csv:4:1", '"u1" is on line 2, too'),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(text: str | bytes, where: str, message: str) -> None:
    made = composed({"flags/beta.segment.csv": text})
    (problem,) = made.problems
    assert str(problem).startswith(f"{where}: ")
    assert message in problem.message
    assert (made.missing, [*made.flag_set.flags]) == (("cart",), ["other"])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"file": "../beta.segment.csv", "column": "id"}, "without a folder"),
        ({"file": "/etc/beta.segment.csv", "column": "id"}, "without a folder"),
        ({"file": "beta.csv", "column": "id"}, "this is no list in a file"),
        ({"file": 1}, "this is no list in a file"),
        ({**CSV, "colour": "id"}, "this is no list in a file"),
        ({"file": "beta.segment.csv"}, "has columns"),
        ({**LINES, "column": "id"}, "has no columns"),
        ({"file": "bta.segment.csv", "column": "id"}, 'did you mean "beta.segment.csv"?'),
    ],
)
def test_what_is_wrong_in_the_rule_is_told_there(named: Any, message: str) -> None:
    made = composed({"flags/beta.segment.csv": "id\nu1\n", "beta.segment.csv": "id\nu1\n"}, named=named)
    (problem,) = made.problems
    assert problem.file == "flags/shop.json"
    assert problem.line > 1
    assert message in problem.message
    assert [*made.flag_set.flags] == ["other"]


def test_a_list_elsewhere_than_in_a_shared_rule_is_refused() -> None:
    rule = {"if": [{"in": [{"var": "targetingKey"}, CSV]}, "on"]}
    made = composed({"flags/beta.segment.csv": "id\nu1\n"}, rule=rule)
    assert ["in `$evaluators`" in problem.message for problem in made.problems] == [True]
    assert made.missing == ("cart",)


def test_a_symlink_in_place_of_a_list_refuses_the_revision() -> None:
    made = composed({}, skipped=("flags/beta.segment.csv: symlink, not followed",))
    assert not made.accepted
    assert str(made.problems[0]).startswith("flags/beta.segment.csv: error: symlink")


def test_flags_keep_the_last_good_list_by_reference() -> None:
    first = composed({"flags/beta.segment.csv": "id\nu1\n"})
    second = composed({"flags/beta.segment.csv": "no\nu2\n"}, previous=first.flag_set)
    assert second.held == ("cart",)
    assert second.flag_set.flags["cart"].targeting == {"if": [{"$ref": "beta"}, "on"]}
    assert variants(second.flag_set, "u1", "u2") == ["on", "off"]


def test_more_values_than_one_file_may_have_are_refused_with_the_line() -> None:
    text = "id\n" + "\n".join(f"u{number}" for number in range(MOST_VALUES + 1))
    (problem,) = composed({"flags/beta.segment.csv": text}).problems
    assert (problem.line, f"more than {MOST_VALUES} values" in problem.message) == (MOST_VALUES + 2, True)


def test_lists_that_are_too_many_together_are_refused_where_the_last_is_named() -> None:
    named = {"in": [{"var": "targetingKey"}, LINES]}
    shared = {f"e{number}": named for number in range(MOST_IN_ALL // MOST_VALUES + 1)}
    tree = {
        "shop.json": json.dumps({"flags": {}, "$evaluators": shared}).encode(),
        "beta.segment.txt": "\n".join(f"u{number}" for number in range(MOST_VALUES)).encode(),
    }
    made = compose(tree, ["."], provenance={}, previous=None)
    assert [problem.path for problem in made.problems] == ["$.$evaluators.e2.in[1]"]


def test_a_hundred_thousand_users_are_told_by_what_changed_and_no_trace_lists_them() -> None:
    users = [f"6f1c2d3e-0000-4000-8000-{number:012}" for number in range(100_000)]
    first = composed({"flags/beta.segment.txt": "\n".join(users)}, named=LINES).flag_set
    changed = [*users[1:50_000], "new-1", "new-2", *users[50_000:], "new-3"]
    second = composed({"flags/beta.segment.txt": "\n".join(changed)}, named=LINES, previous=first)
    assert changed_flags(first, second.flag_set, second.changed) == (
        "~ cart: targeting, by a rule of $evaluators: $.if[0].in[1]: 3 added (new-1, new-2, new-3), "
        "1 removed (6f1c2d3e-0000-4000-8000-000000000000)",
    )
    shown = explain(compile_flag_set(second.flag_set), "cart", None, {"targetingKey": "new-2"}, 0)
    assert shown.resolution.variant == "on"
    assert sum(len(str(step)) for step in shown.steps) < 1_000


def lines(start: int) -> dict[str, str | bytes]:
    text = "\n".join(f"u{number}" for number in range(start, start + 5_000))
    return {"flags/beta.segment.txt": text}


def test_a_flag_that_is_held_while_a_long_list_changes_refers_to_the_old_list() -> None:
    good, bad = {"if": [{"$ref": "beta"}, "on"]}, {"if": [{"$ref": "beta"}, "nothing"]}
    first = composed(lines(0), named=LINES, rule=good).flag_set
    second = composed(lines(1), named=LINES, rule=bad, previous=first)
    assert second.held == ("cart",)
    assert variants(second.flag_set, "u0", "u5000") == ["on", "off"]
    assert second.flag_set.flags["cart"].targeting == {"if": [{"$ref": "beta (held)"}, "on"]}
    third = composed(lines(2), named=LINES, rule=bad, previous=second.flag_set)
    assert variants(third.flag_set, "u0", "u5000") == ["on", "off"]
    assert [*third.flag_set.evaluators] == ["beta", "beta (held)"]
    fourth = composed(lines(2), named=LINES, rule=good, previous=third.flag_set)
    assert variants(fourth.flag_set, "u0", "u5000") == ["off", "on"]
    assert [*fourth.flag_set.evaluators] == ["beta"]


WORDS = st.text("ab,\";é' #", min_size=1, max_size=4).map(str.strip).filter(bool)


@given(
    st.lists(WORDS, min_size=1, max_size=5),
    WORDS,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([None, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.integers(0, 2),
)
def test_a_file_with_a_value_more_and_without_it_again_is_the_same_file(
    words: list[str], word: str, end: str, quoting: Any, ends: int
) -> None:
    assume(word not in words)
    column = None if quoting is None else "id"
    rows = io.StringIO()
    if quoting is None:
        rows.write("".join(f"{one}{end}" for one in words))
    else:
        csv.writer(rows, quoting=quoting, lineterminator=end).writerows([["id"], *([one] for one in words)])
    text = (rows.getvalue().removesuffix(end) + end * ends).encode()
    more = with_listed(text, column, word)
    lines = more.decode().splitlines()
    read = lines if column is None else [row[0] for row in csv.reader(lines) if row][1:]
    assert [line for line in read if line] == [*words, word]
    assert without_listed(more, column, word) == text
