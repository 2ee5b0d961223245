"""Places in definition files that are being written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.cursor import Spot, spots

FLAGS = """\
$evaluators:
  staff: {"in": [{"var": "team"}, [a, b]]}
flags:
  cart:
    state: ENABLED
    variants: {"on": true, "off": false}  # two
    defaultVariant: "off"
    metadata:
      description: "it's, [not] {closed"
    targeting:
      if:
        - {"==": [{"var": "tier"}, "gold"]}
        - on
        - fractional:
            - [on, 10]
            - ["off", 90]
"""
AS_JSON = json.dumps(
    {
        "flags": {
            "cart": {
                "state": "ENABLED",
                "variants": {"on": {"a": [1, '\u00e9"']}, "off": None},
                "targeting": {"if": [{"flag": ["pay", "on"]}, "on", {"fractional": [["on", 1], ["off", 2]]}]},
            }
        }
    },
    indent=1,
)


def at(text: str, file: str = "flags.yaml") -> list[Spot]:
    """What can be meant at `|`."""
    before, _, after = text.partition("|")
    return spots(before + after, len(before), file)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("flags:\n  a:\n    defaultVariant: |", "flags a defaultVariant"),
        ("flags:\n  a:\n    defaultVariant: o|n\n    state: ", "flags a defaultVariant"),
        ("flags:\n  a:\n    defaultVariant: 'o|\n    state: x", "flags a defaultVariant"),
        ('flags:\n  a: {targeting: {"if": [{"flag": [|', "flags a targeting if 0 flag 0"),
        ('flags:\n  a: {targeting: {"if": [1, {"flag": ["b", "|"]}, ', "flags a targeting if 1 flag 1"),
        ("flags:\n  a:\n    targeting:\n      if:\n        - {x: 1}\n        - |", "flags a targeting if 1"),
        ("tests:\n- name: x\n  expect: {variant: |}\n", "tests 0 expect variant"),
        ("a: &x {b: 1}\nc: *x\nd: |", "d"),
        ("a: 1\n---\nb:\n  c: |", "b c"),
    ],
)
def test_a_value_is_found_by_its_path(text: str, path: str) -> None:
    spot = at(text)[0]
    assert " ".join(map(str, spot.path)) == path
    assert not spot.is_key


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"flags": {"a": {"defaultVariant": |', "flags a defaultVariant"),
        ('{"flags": {"a": {"x": [1, {}, "|"', "flags a x 2"),
        (
            '{"flags": {"a": {"x": 1, "y": {"z": 2}, "defaultVariant": "o|n"}, "b": {',
            "flags a defaultVariant",
        ),
        ('{"k\\u00e9\\"y": |', 'k\u00e9"y'),
        ('{"a": "b,\n "c": |', "c"),
    ],
)
def test_a_value_of_json_is_found_by_its_path(text: str, path: str) -> None:
    (spot,) = at(text, "flags.json")
    assert " ".join(map(str, spot.path)) == path
    assert not spot.is_key


@pytest.mark.parametrize(
    ("text", "file", "path", "has_colon"),
    [
        ("flags:\n  a:\n    sta|te: x", "f.yaml", ("flags", "a"), True),
        ("flags:\n  a: {x: 1, |}", "f.yaml", ("flags", "a"), False),
        ('flags:\n  a: {"|', "f.yaml", ("flags", "a"), False),
        ('{"flags": {"a": {"|', "f.json", ("flags", "a"), False),
        ('{"flags": {"a|": {', "f.json", ("flags",), True),
        ('{"flags": {"a": {"x": [{}, {}], |', "f.json", ("flags", "a"), False),
    ],
)
def test_a_key_is_found_in_its_object(text: str, file: str, path: tuple[str, ...], has_colon: bool) -> None:
    spot = at(text, file)[-1]
    assert (spot.path, spot.is_key, spot.has_colon) == (path, True, has_colon)


def test_a_line_that_has_just_begun_may_be_a_value_or_a_key() -> None:
    found = at("flags:\n  a:\n    |\n")
    assert [(spot.path, spot.is_key) for spot in found] == [(("flags", "a"), False), (("flags", "a"), True)]


def test_the_word_at_a_place_is_known_without_its_quotes() -> None:
    text = 'flags:\n  a: {defaultVariant: "o|n", state: ENABLED}'
    (spot,) = at(text)
    assert (spot.word, spot.begun) == ("on", "o")
    assert text.replace("|", "")[spot.start : spot.end] == '"on"'


def test_a_quote_that_is_not_closed_ends_at_the_place() -> None:
    (spot,) = at('flags:\n  a: {targeting: {"flag": ["ca|, "on"]}}')
    assert (spot.word, spot.path[-1]) == ("ca", 0)


def test_what_stands_before_a_place_is_known() -> None:
    (spot,) = at("tests:\n  - flag: cart\n    matrix: {a: [1]}\n    expect: {variant: |}")
    assert spot.at(("tests", 0, "flag")) == "cart"
    assert spot.at(("tests", 0, "matrix", "a", 0)) == "1"
    assert spot.at(("tests", 1, "flag")) is None


def test_in_a_large_file_the_entry_around_a_place_is_read() -> None:
    entry = "  f{}:\n    state: ENABLED\n    variants: {{a: 1}}\n"
    many = "# flags\nflags:\n" + "".join(map(entry.format, range(2000)))
    for end, path in (
        (
            "  last:\n    variants: {b: 1}\n    # none\n    defaultVariant: |\n",
            ("flags", "last", "defaultVariant"),
        ),
        ("  last:\n    targeting:\n      if:\n      - flag:\n        - x\n        - |", None),
    ):
        spot = at(many + end)[0]
        assert spot.path == (path or ("flags", "last", "targeting", "if", 0, "flag", 1))
        assert isinstance(spot.before, dict)
        assert list(spot.before["flags"]) == ["last"]


@pytest.mark.parametrize("text", ["a: [}\nb: |", "'a: |", "a: b\n c: |", "\ud800: |", "]|", "\x00|"])
def test_where_the_text_before_is_broken_nothing_is_known(text: str) -> None:
    assert [spot for spot in at(text) if spot.path] == []
    assert [spot for spot in at(text, "f.json") if spot.path] == []


@given(st.sampled_from((FLAGS, AS_JSON)), st.data(), st.sampled_from(("f.yaml", "f.json")))
def test_no_cut_text_is_too_broken(text: str, data: st.DataObject, file: str) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    cut = text[:start] + data.draw(st.text("{}[]\"':,- \n\\a", max_size=5)) + text[end:]
    offset = data.draw(st.integers(0, len(cut)))
    for spot in spots(cut, offset, file):
        assert spot.start <= offset <= spot.end
        spot.at(spot.path)


@given(st.data())
def test_each_value_of_a_whole_text_is_found_where_it_stands(data: st.DataObject) -> None:
    shapes = st.recursive(
        st.integers() | st.text("ab, :{[\"'\u00e9\U0001f600", max_size=4) | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc :", max_size=3), inner, max_size=3)
        ),
    )
    value = data.draw(st.dictionaries(st.text("abc", max_size=2), shapes, min_size=1, max_size=3))
    text = json.dumps({**value, "last": {"here": "x"}})
    (spot,) = spots(text, text.rindex("x"), "f.json")
    assert spot.path == ("last", "here")
    assert spot.before == {**value, "last": {}}
