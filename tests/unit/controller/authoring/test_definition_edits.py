"""Edits of one value in the text of definitions: everything else stays, byte for byte."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.authoring.definition_edits import (
    EditRefused,
    division,
    with_item,
    with_name,
    with_percent,
    with_value,
    without_value,
)
from evaluator.flags.document import read_document
from evaluator.flags.merge import parse
from evaluator.resolving.resolve import compile_flag_set, resolve

BLOCK = b"""\
# All flags.
flags:
  cart:
    state: ENABLED   # since May
    variants: {on: true, off: false}
    defaultVariant: 'off'  # careful
    targeting:
      if:
        - {"==": [{var: tier}, gold]}
        - on
  # The next one.
  other: {state: ENABLED, variants: {a: 1}, defaultVariant: a}
"""
SPREAD = b'{\n\t"flags": {\n\t\t"cart": {\n\t\t\t"state": "ENABLED",\n\t\t\t"x": {}\n\t\t}\n\t}\n}\n'


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        pytest.param(("state",), "DISABLED", b"state: ENABLED   #", b"state: DISABLED   #", id="plain"),
        pytest.param(("defaultVariant",), "on", b"'off'  # careful", b"'on'  # careful", id="quotes stay"),
        pytest.param(("targeting", "if", 1), "off", b"- on\n", b'- "off"\n', id="an item"),
        pytest.param(
            ("targeting",), {"if": [True, "on"]},
            b'targeting:\n      if:\n        - {"==": [{var: tier}, gold]}\n        - on\n',
            b'targeting: {if: [true, "on"]}\n', id="a block",
        ),
        pytest.param(
            ("metadata",), {"owner": "me"}, b"- on\n", b"- on\n    metadata: {owner: me}\n", id="a new entry"
        ),
    ],
)  # fmt: skip
def test_one_value_of_yaml_changes(path: tuple[Any, ...], value: Any, old: bytes, new: bytes) -> None:
    assert with_value(BLOCK, "a.yaml", ("flags", "cart", *path), value) == BLOCK.replace(old, new, 1)


def test_an_entry_is_added_within_braces() -> None:
    made = with_value(BLOCK, "a.yaml", ("flags", "other", "targeting"), {})
    assert made == BLOCK.replace(b"defaultVariant: a}", b"defaultVariant: a, targeting: {}}")


def test_json_keeps_its_form() -> None:
    made = with_value(SPREAD, "a.json", ("flags", "cart", "state"), "DISABLED")
    assert made == SPREAD.replace(b"ENABLED", b"DISABLED")
    made = with_value(SPREAD, "a.json", ("flags", "cart", "y"), "é")
    assert made == SPREAD.replace(b'"x": {}\n', '"x": {},\n\t\t\t"y": "é"\n'.encode())


def test_line_ends_and_byte_order_mark_stay() -> None:
    source = b"\xef\xbb\xbf" + BLOCK.replace(b"\n", b"\r\n")
    made = with_value(source, "a.yaml", ("flags", "cart", "metadata"), {"a": 1})
    assert made == source.replace(b"- on\r\n", b"- on\r\n    metadata: {a: 1}\r\n")


def test_what_other_flags_share_by_an_alias_is_not_changed() -> None:
    source = b"flags:\n  a: &a {state: ENABLED}\n  b: *a\n"
    with pytest.raises(EditRefused, match="cannot be changed in place"):
        with_value(source, "a.yaml", ("flags", "b", "state"), "DISABLED")


def test_a_broken_file_is_not_changed() -> None:
    with pytest.raises(EditRefused, match="has problems"):
        with_value(b"flags: {a: {}", "a.yaml", ("flags", "a", "state"), "ENABLED")


LIST = b"""\
$evaluators:
  team: # who may
    in:
      - {var: email}
      - - ann   # first
        - bob
  flow: {in: [{var: tier}, [gold, silver]]} # paid
  long:
    in: [{var: id}, [
      one, # the oldest
      two # the newest
    ]]
"""


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param(("team", "in", 1, 2), b"- bob\n", b"- bob\n        - new\n", id="behind a block"),
        pytest.param(("team", "in", 1, 0), b"- - ann", b"- - new\n        - ann", id="before a block"),
        pytest.param(("flow", "in", 1, 2), b"silver]", b"silver, new]", id="behind brackets"),
        pytest.param(("flow", "in", 1, 0), b"[gold", b"[new, gold", id="before brackets"),
        pytest.param(
            ("long", "in", 1, 2), b"two # the newest\n", b"two, # the newest\n      new\n", id="behind lines"
        ),
    ],
)
def test_an_item_is_added_as_the_list_is_written(path: tuple[Any, ...], old: bytes, new: bytes) -> None:
    assert with_item(LIST, "a.yaml", ("$evaluators", *path), "new") == LIST.replace(old, new, 1)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param(("team", "in", 1, 1), b"        - bob\n", b"", id="of a block"),
        pytest.param(("flow", "in", 1, 0), b"gold, ", b"", id="the first in brackets"),
        pytest.param(("flow", "in", 1, 1), b", silver", b"", id="the last in brackets"),
        pytest.param(("flow",), b"  flow: {in: [{var: tier}, [gold, silver]]} # paid\n", b"", id="an entry"),
    ],
)
def test_what_is_removed_leaves_no_trace(path: tuple[Any, ...], old: bytes, new: bytes) -> None:
    assert without_value(LIST, "a.yaml", ("$evaluators", *path)) == LIST.replace(old, new, 1)


def test_a_removed_flag_takes_the_comments_above_it_and_one_blank_line_along() -> None:
    source = (
        b"flags: # all\n  a: {x: 1}\n\n  # About b.\n  b:\n    x: 1\n    # still b\n\n  # About c.\n  c: {}\n"
    )
    made = without_value(source, "a.yaml", ("flags", "b"))
    assert made == b"flags: # all\n  a: {x: 1}\n\n  # About c.\n  c: {}\n"
    made = without_value(without_value(made, "a.yaml", ("flags", "a")), "a.yaml", ("flags", "c"))
    assert made == b"flags: {} # all\n"


def test_a_flag_is_added_with_a_line_for_each_field() -> None:
    flag = {"state": "ENABLED", "variants": {"on": True}}
    spread = '    state: ENABLED\n    variants: {"on": true}\n'
    made = with_value(BLOCK, "a.yaml", ("flags", "new"), flag, spread=True)
    assert made == BLOCK + f"  new:\n{spread}".encode()
    apart = b"flags:\n    a: {}\n\n    # b\n    b: {}\n"
    made = with_value(apart, "a.yaml", ("flags", "new"), flag, spread=True)
    assert made == apart + b'\n    new:\n        state: ENABLED\n        variants: {"on": true}\n'
    made = with_value(b"flags: {} # none yet\n", "a.yaml", ("flags", "new"), flag, spread=True)
    assert made == f"flags: # none yet\n  new:\n{spread}".encode()
    made = with_value(SPREAD, "a.json", ("flags", "new"), flag, spread=True)
    added = b',\n\t\t"new": {\n\t\t\t"state": "ENABLED",\n\t\t\t"variants": {"on": true}\n\t\t}'
    assert made == SPREAD.replace(b"\n\t\t}\n", b"\n\t\t}" + added + b"\n")


def value_of(text: bytes, file: str) -> Any:
    return read_document(text, file=file).value


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=8
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
flags = st.dictionaries(texts, st.dictionaries(texts, values, min_size=1, max_size=3), min_size=1, max_size=3)


def block(key: str, flag: Any, *, flow: bool | None, number: int) -> str:
    """One flag in the text of a file, with a comment before it."""
    text = yaml.safe_dump({key: flag}, allow_unicode=True, default_flow_style=flow, width=10_000)
    return "".join(f"  {line}\n" for line in (f"# comment {number}", *text.splitlines()))


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(flags, st.booleans(), st.data())
def test_other_flags_and_comments_stay_byte_for_byte(
    drawn: dict[str, Any], flow: bool, data: st.DataObject
) -> None:
    blocks = [block(key, flag, flow=flow, number=at) for at, (key, flag) in enumerate(drawn.items())]
    source = ("flags:\n" + "".join(blocks)).encode()
    read = read_document(source, file="a.yaml")
    assume(not read.findings and read.value == {"flags": drawn})
    at = data.draw(st.integers(0, len(drawn) - 1))
    key = list(drawn)[at]
    field = data.draw(st.sampled_from([*drawn[key], "new"]))
    value = data.draw(values)
    made = with_value(source, "a.yaml", ("flags", key, field), value)
    wanted = {"flags": {**drawn, key: {**drawn[key], field: value}}}
    assert read_document(made, file="a.yaml").value == wanted
    assert made.startswith(("flags:\n" + "".join(blocks[:at])).encode())
    assert made.endswith("".join(blocks[at + 1 :]).encode())


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(flags, st.sampled_from([False, None]), st.data())
def test_a_flag_is_added_removed_and_renamed_between_others_that_stay(
    drawn: dict[str, Any], flow: bool | None, data: st.DataObject
) -> None:
    blocks = [block(key, flag, flow=flow, number=at) for at, (key, flag) in enumerate(drawn.items())]
    source = ("flags:\n" + "".join(blocks)).encode()
    read = read_document(source, file="a.yaml")
    name = data.draw(texts)
    assume(not read.findings and read.value == {"flags": drawn} and name not in drawn)
    at = data.draw(st.integers(0, len(drawn) - 1))
    key = list(drawn)[at]
    before, after = "".join(blocks[:at]), "".join(blocks[at + 1 :])
    renamed = with_name(source, "a.yaml", ("flags", key), name)
    assert renamed.startswith(f"flags:\n{before}".encode())
    assert renamed.endswith(after.encode())
    flags = {name if each == key else each: flag for each, flag in drawn.items()}
    assert list(value_of(renamed, "a.yaml")["flags"].items()) == list(flags.items())
    added = with_value(source, "a.yaml", ("flags", name), drawn[key], spread=True)
    assert added.startswith(source)
    # The comment above the flag that was added is that of no other.
    assert without_value(added, "a.yaml", ("flags", name)) == source
    removed = without_value(source, "a.yaml", ("flags", key))
    assert removed == (f"flags:\n{before}{after}".encode() if len(drawn) > 1 else b"flags: {}\n")


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(st.lists(values, max_size=5), st.sampled_from([None, 1, "\t"]), values, st.data())
def test_an_item_is_added_to_any_list_of_json_and_removed_again(
    drawn: list[Any], indent: Any, value: Any, data: st.DataObject
) -> None:
    source = json.dumps({"flags": {}, "list": drawn}, indent=indent, ensure_ascii=False).encode()
    at = data.draw(st.integers(0, len(drawn)))
    made = with_item(source, "a.json", ("list", at), value)
    assert value_of(made, "a.json")["list"] == [*drawn[:at], value, *drawn[at:]]
    if drawn:
        assert without_value(made, "a.json", ("list", at)) == source


def yaml_list(items: list[Any], *, form: str, data: st.DataObject) -> str:
    """A list as the value of `in`, with comments between its items where the form allows these."""
    texts = [
        yaml.safe_dump(item, default_flow_style=True, width=10_000, allow_unicode=True) for item in items
    ]
    lines = [text.removesuffix("\n").removesuffix("\n...") for text in texts]
    if form == "brackets":
        return f"[{', '.join(lines)}]"
    remarks = [data.draw(st.sampled_from(["", " # behind it"])) for _ in items]
    leads = [data.draw(st.sampled_from(["", "      # above it\n"])) for _ in items]
    if form == "block":
        parts = zip(leads, lines, remarks, strict=True)
        return "\n" + "".join(f"{lead}      - {line}{remark}\n" for lead, line, remark in parts).rstrip("\n")
    commas = [","] * (len(items) - 1) + [""]
    rows = zip(leads, lines, commas, remarks, strict=True)
    return (
        "[\n"
        + "".join(f"{lead}      {line}{comma}{remark}\n" for lead, line, comma, remark in rows)
        + "    ]"
    )


@settings(derandomize=True, deadline=None, database=None, max_examples=200)
@given(
    st.lists(values, min_size=1, max_size=5),
    st.sampled_from(["block", "brackets", "lines"]),
    values,
    st.data(),
)
def test_an_item_is_added_to_any_list_of_yaml_and_removed_again(
    drawn: list[Any], form: str, value: Any, data: st.DataObject
) -> None:
    before = "# Who may.\n$evaluators:\n  team: # the first\n    in: "
    after = "\n  # The next one.\n  other: {in: [{var: tier}, [gold]]}\n\nflags: {}\n"
    source = f"{before}{yaml_list(drawn, form=form, data=data)}{after}".encode()
    read = read_document(source, file="a.yaml")
    assume(not read.findings and value_of(source, "a.yaml")["$evaluators"]["team"] == {"in": drawn})
    at = data.draw(st.integers(0, len(drawn)))
    path = ("$evaluators", "team", "in", at)
    made = with_item(source, "a.yaml", path, value)
    assert value_of(made, "a.yaml")["$evaluators"]["team"] == {"in": [*drawn[:at], value, *drawn[at:]]}
    assert made.startswith(before.encode())
    assert made.endswith(after.encode())
    assert without_value(made, "a.yaml", path) == source


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(flags, st.sampled_from([None, 1, "\t"]), st.data())
def test_any_json_takes_any_value(drawn: dict[str, Any], indent: Any, data: st.DataObject) -> None:
    source = json.dumps({"flags": drawn}, indent=indent, ensure_ascii=False).encode()
    key = data.draw(st.sampled_from(list(drawn)))
    field = data.draw(st.sampled_from([*drawn[key], "new"]))
    value = data.draw(values)
    made = with_value(source, "a.json", ("flags", key, field), value)
    wanted = {"flags": {**drawn, key: {**drawn[key], field: value}}}
    assert read_document(made, file="a.json").value == wanted


def moved(before: list[list[Any]], after: list[list[Any]]) -> Fraction:
    """The share of all users whose variant differs."""
    sides = [_ends(before), _ends(after)]
    edges = sorted({Fraction(0), *(end for side in sides for _, end in side)})
    differing = Fraction(0)
    for low, high in pairwise(edges):
        one, other = (next(name for name, end in side if low < end) for side in sides)
        if one != other:
            differing += high - low
    return differing


def _ends(buckets: list[list[Any]]) -> list[tuple[str, Fraction]]:
    total = sum(int(weight) for _, weight in buckets)
    ends = accumulate(Fraction(int(weight), total) for _, weight in buckets)
    return [(str(name), end) for (name, _), end in zip(buckets, ends, strict=True)]


@settings(derandomize=True, deadline=None, database=None, max_examples=200)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=5), st.integers(0, 4), st.integers(0, 10_000))
def test_a_percentage_moves_no_more_users_than_its_share_changes(
    weights: list[int], at: int, hundredths: int
) -> None:
    assume(at < len(weights) and sum(weights) > 0)
    before = [[f"v{number}", weight] for number, weight in enumerate(weights)]
    after = with_percent(before, f"v{at}", hundredths / 100)
    share = Fraction(hundredths, 10_000)
    assert Fraction(after[at][1], sum(int(weight) for _, weight in after)) == share
    assert moved(before, after) == abs(share - Fraction(weights[at], sum(weights)))


def test_of_real_users_only_those_move_who_must() -> None:
    def variants(buckets: list[list[Any]]) -> list[str | None]:
        flag = {
            "state": "ENABLED",
            "variants": {"a": 1, "b": 2, "c": 3},
            "targeting": {"fractional": buckets},
        }
        compiled = compile_flag_set(
            parse(json.dumps({"flags": {"f": flag}}).encode(), file="f.json").flag_set
        )
        users = ({"targetingKey": f"user-{number}"} for number in range(20_000))
        return [resolve(compiled, "f", None, user, 0).variant for user in users]

    before = [["a", 1], ["b", 1], ["c", 1]]
    after = with_percent(before, "b", 62.5)
    old, new = variants(before), variants(after)
    changed = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    assert {new for _, new in changed} == {"b"}
    assert len(changed) == new.count("b") - old.count("b")


def test_the_only_division_of_a_rule_is_found() -> None:
    shares = [["on", 1], ["off", 1]]
    assert division({"if": [True, {"fractional": shares}]}) == (("if", 1, "fractional"), shares)
    assert division({"if": [True, "on"]}) is None
    with pytest.raises(EditRefused, match="several places"):
        division({"if": [True, {"fractional": shares}, {"fractional": shares}]})


@pytest.mark.parametrize(
    ("buckets", "words"),
    [
        ([["a", {"var": "x"}], ["b", 1]], "plain numbers"),
        ([["a", 1], ["b", 1], ["a", 1]], "several buckets"),
        ([["a", 1]], "no other bucket"),
    ],
)
def test_other_divisions_are_left_to_the_author(buckets: list[Any], words: str) -> None:
    with pytest.raises(EditRefused, match=words):
        with_percent(buckets, "a", 50)
