"""Bytes to a value with places: JSON and YAML, whole or broken."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.document import Syntax, format_of, read_document
from evaluator.flags.model import ABSENT
from evaluator.flags.text import Bounds, normal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.problems import Document

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip
DOCUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)


def read(content: str | bytes, file: str = "flags.json", **bounds: int) -> Document:
    source = content.encode() if isinstance(content, str) else content
    return read_document(source, file=file, bounds=Bounds(**bounds))


def faults(content: str | bytes, file: str = "flags.json", **bounds: int) -> list[tuple[Any, ...]]:
    return [(p.code, p.line, p.column) for p in read(content, file, **bounds).problems]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a.json", Syntax.JSON), ("b/a.yaml", Syntax.YAML), ("a.YML", Syntax.YAML), ("a.txt", None),
        ("json", None),
    ],
)  # fmt: skip
def test_the_extension_names_the_format(file: str, expected: Syntax | None) -> None:
    assert format_of(file) is expected


BROKEN_JSON = {
    "nothing": ("", "empty-document", 0, 0),
    "white space": (" \n", "empty-document", 0, 0),
    "cut off in a mapping": ('{"flags": {\n"a": 1,', "broken-json", 1, 11),
    "cut off in a text": ('{"flags": {\n"a', "broken-json", 2, 1),
    "a comma too many": ('{"flags": {},\n}', "broken-json", 1, 13),
    "two values": ("{}\n{}", "broken-json", 2, 1),
    "not UTF-8": (b'{\n"\xc3\xa4\xff": 1}', "not-utf-8", 2, 3),
    "half a character": ('{\n"a": "\\ud800"}', "lone-surrogate", 2, 7),
    "half a character after a whole one": ('["\\ud83d\\ude00 \\\\ud800 \\ud83d"]', "lone-surrogate", 1, 24),
    "half a character in a key": ('{"\\uDC00": 1}', "lone-surrogate", 1, 3),
}


@pytest.mark.parametrize(("content", "code", "line", "column"), BROKEN_JSON.values(), ids=BROKEN_JSON)
def test_broken_json_has_no_value_and_one_problem_with_its_place(
    content: str | bytes, code: str, line: int, column: int
) -> None:
    document = read(content)
    assert document.value is ABSENT
    assert [(p.code, p.line, p.column) for p in document.problems] == [(code, line, column)]


def test_a_problem_about_bytes_names_the_byte_and_the_line() -> None:
    (problem,) = read(b'{\n"a": "\xff"}').problems
    assert "0xff" in problem.message
    assert "line 2" in problem.message


def test_a_byte_order_mark_is_passed_over_and_counts_no_column() -> None:
    document = read(b'\xef\xbb\xbf{"a": [1]}')
    assert document.value == {"a": [1]}
    assert document.place(("a",)) == (1, 7)


@pytest.mark.parametrize("file", ["a.json", "a.yaml"])
def test_a_document_over_size_is_refused_before_it_is_read(file: str) -> None:
    assert faults(b"\xff" * 101, file, document_bytes=100) == [("too-large", 0, 0)]


@pytest.mark.parametrize("file", ["a.json", "a.yaml"])
@pytest.mark.parametrize("closed", [True, False])
def test_nesting_10000_deep_is_an_error_at_the_bound(file: str, closed: bool) -> None:
    content = "[" * 10_000 + "]" * 10_000 * closed
    assert faults(content, file) == [("too-deep", 1, 101)]


def test_block_nesting_10000_deep_is_an_error_too() -> None:
    content = "".join(f"{' ' * level}a:\n" for level in range(3_000))
    assert faults(content, "a.yaml") == [("too-deep", 101, 101)]


@pytest.mark.parametrize("file", ["a.json", "a.yaml"])
def test_nesting_is_read_up_to_the_bound_and_no_deeper(file: str) -> None:
    assert faults("[" * 100 + "]" * 100, file) == []
    assert faults("[" * 101 + "]" * 101, file) == [("too-deep", 1, 101)]


def test_brackets_within_texts_are_no_nesting() -> None:
    assert read(json.dumps({"a": '\\"[' * 500})).value == {"a": '\\"[' * 500}


@pytest.mark.parametrize("count", [1, 499, 500, 501, 1_200])
@pytest.mark.parametrize("text", ['"[[{"', '"\\\\\\"]"', '""'], ids=["opened", "closed", "empty"])
def test_nesting_beside_many_texts_is_read_up_to_the_bound(count: int, text: str) -> None:
    texts = f"{text}," * count
    assert faults(f"[{texts}{'[' * 99}{']' * 99}]") == []
    assert faults(f"[{texts}{'[' * 100}{']' * 100}]") == [("too-deep", 1, len(texts) + 101)]


@pytest.mark.parametrize("count", [1, 500, 1_200])
def test_a_text_without_an_end_is_reported_where_it_begins(count: int) -> None:
    texts = '"[",' * count
    assert faults(f'[{texts}"[[') == [("broken-json", 1, len(texts) + 2)]


@pytest.mark.parametrize("file", ["a.json", "a.yaml"])
def test_more_values_than_the_bound_are_an_error(file: str) -> None:
    assert faults("[" + "1," * 60 + "1]", file, nodes=50) == [("too-large", 0, 0)]


DUPLICATES = {
    "json": ("a.json", '{"a": {"x": 1,\n "x": 2}}', 2, 2),
    "an escaped key": ("a.json", '{"a": {"x": 1,\n "\\u0078": 2}}', 2, 2),
    "in a list": ("a.json", '[0, {"x": 1,\n "x": 2}]', 2, 2),
    "yaml": ("a.yaml", "a:\n  x: 1\n  x: 2\n", 3, 3),
}


@pytest.mark.parametrize(("file", "content", "line", "column"), DUPLICATES.values(), ids=DUPLICATES)
def test_a_repeated_key_is_an_error_that_names_both_places(
    file: str, content: str, line: int, column: int
) -> None:
    (problem,) = read(content, file).problems
    assert (problem.code, problem.line, problem.column) == ("duplicate-key", line, column)
    first = 1 if file == "a.json" else 2
    assert f"first on line {first}, column" in problem.message


NUMBERS = {
    "NaN": ("a.json", "NaN"),
    "an infinity": ("a.json", "-Infinity"),
    "beyond floats": ("a.json", "1e400"),
    "an integer of 400 digits": ("a.json", "9" * 400),
    "an integer of a million digits": ("a.json", "9" * 1_000_000),
    "YAML's infinity": ("a.yaml", "-.inf"),
    "YAML's not a number": ("a.yaml", ".NaN"),
    "a long one in YAML": ("a.yaml", "9" * 100_000),
    "a long one in base 16": ("a.yaml", "0x" + "f" * 100_000),
}


@pytest.mark.parametrize(("file", "literal"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_no_float_holds_is_an_error_with_its_place(file: str, literal: str) -> None:
    content = f'{{"a": [1, {literal}]}}' if file == "a.json" else f"a:\n - 1\n - {literal}\n"
    (problem,) = read(content, file).problems
    assert (problem.code, problem.path) == ("unusable-number", "$.a[1]")
    assert len(problem.message) < 200


CORE_SCHEMA: dict[str, Any] = {
    "on": "on", "off": "off", "no": "no", "Yes": "Yes", "y": "y", "NO": "NO",
    "true": True, "True": True, "FALSE": False, "tRue": "tRue",
    "null": None, "~": None, "": None, "Null": None, "nUll": "nUll",
    "010": 10, "0o17": 15, "0x1F": 31, "-7": -7, "+7": 7, "0b1": "0b1", "1_000": "1_000",
    "1.5": 1.5, ".5": 0.5, "1.": 1, "1e3": 1000, "1.2.3": "1.2.3", "1e": "1e",
    "2024-01-01": "2024-01-01", "12:30:00": "12:30:00", "'on'": "on", '"1"': "1", "'~'": "~",
    "!!str 1": "1", "! 1": "1", "!!int 3": 3, "!!float 3": 3, "٣": "٣",
}  # fmt: skip


@pytest.mark.parametrize("written", CORE_SCHEMA)
def test_yaml_scalars_follow_the_core_schema_of_1_2(written: str) -> None:
    document = read(f"a: {written}\n", "a.yaml")
    assert (repr(document.value), document.problems) == (repr({"a": CORE_SCHEMA[written]}), ())


def test_yaml_keys_are_text_as_written() -> None:
    assert read("true: 1\n010: 2\nno: 3\n~: 4\n1.0: 5\n", "a.yaml").value == {
        "true": 1, "010": 2, "no": 3, "~": 4, "1.0": 5,
    }  # fmt: skip


YAML_FAULTS = {
    "a tag of one's own": ("a: !mine 1\n", "unknown-tag", 1, 4),
    "binary": ("a: !!binary aGk=\n", "unknown-tag", 1, 4),
    "a tagged mapping": ("a: !!set {x}\n", "unknown-tag", 1, 4),
    "a tag of another type": ("a: !!int x\n", "unknown-tag", 1, 4),
    "a merge of no mapping": ("b: &b [1]\na:\n  <<: *b\n", "merge-key", 3, 3),
    "two documents": ("a: 1\n---\nb: 1\n", "several-documents", 2, 1),
    "a mapping as a key": ("? {x: 1}\n: 2\n", "complex-key", 1, 3),
    "a template's value": ("a:\n  b: {{ x }}\n", "complex-key", 2, 6),
    "a template's condition": ("{{- if .x }}\na: 1\n", "complex-key", 1, 1),
    "an alias as a key": ("a: &x y\n*x : 2\n", "complex-key", 2, 1),
    "an alias to nothing": ("a: *x\n", "unknown-alias", 1, 4),
    "an alias to itself": ("a: &x [*x]\n", "unknown-alias", 1, 8),
    "a tab": ("a:\n\t- b\n", "broken-yaml", 2, 1),
    "a bracket left open": ("a: [1,\n", "broken-yaml", 2, 1),
    "a control character": ("a: \x01\n", "broken-yaml", 0, 0),
    "comments alone": ("# nothing\n", "empty-document", 0, 0),
}


@pytest.mark.parametrize(("content", "code", "line", "column"), YAML_FAULTS.values(), ids=YAML_FAULTS)
def test_what_json_cannot_say_is_an_error_in_yaml(content: str, code: str, line: int, column: int) -> None:
    assert faults(content, "a.yaml") == [(code, line, column)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a:\n\tb: 1\n", "YAML is not indented by tabs; use spaces"),
        ("a: @x\n", "no value begins with this character; put it in quotes"),
        ("a: b: c\n", "`:` does not fit here; check the indentation, or put the text in quotes"),
        ("a:\n  b: 1\n c: 2\n", "a key was expected; check the indentation"),
        ("a: *.json\n", "a name was expected after `*` or `&`; put the text in quotes"),
        ("a: x\n- y\n", "a key was expected; check the indentation"),
    ],
)
def test_broken_yaml_is_explained_to_its_author(content: str, message: str) -> None:
    (problem,) = read(content, "a.yaml").problems
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("b: &b {x: 1, y: 2}\na: {<<: *b, y: 3}", {"x": 1, "y": 3}),
        ("b: &b {x: 1, y: 2}\na: {y: 3, <<: *b}", {"x": 1, "y": 3}),
        ("b: &b {x: 1}\nc: &c {x: 2, z: 3}\na: {<<: [*b, *c], y: 4}", {"x": 1, "z": 3, "y": 4}),
        ("b: &b {x: 1}\nc: &c {<<: *b, z: 3}\na: {<<: *c}", {"x": 1, "z": 3}),
        ("a: {<<: {x: 1}, <<: {y: 2}}", {"x": 1, "y": 2}),
        ("b: &b {x: {deep: 1}}\na: {<<: *b}", {"x": {"deep": 1}}),
    ],
)
def test_merge_keys_fill_what_a_mapping_lacks_as_flagd_has_it(text: str, value: dict[str, Any]) -> None:
    document = read(text, "a.yaml")
    assert isinstance(document.value, dict)
    assert (document.findings, document.value["a"]) == ((), value)
    assert document.place(("a", "y" if "y" in value else "x")) != (1, 1)


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert read('"<<": 1\n', "a.yaml").value == {"<<": 1}


def test_an_alias_stands_for_its_anchor() -> None:
    document = read("a: &x {b: 1}\nc: *x\n", "a.yaml")
    assert document.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.place(("c", "b")) == (1, 11)


def test_a_billion_laughs_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (problem,) = read("\n".join(lines), "a.yaml").problems
    assert problem.code == "alias-bomb"
    assert problem.line == 5


def test_aliases_that_nest_deeper_than_the_bound_are_refused() -> None:
    lines = ["a0: &a0 []", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 120))]
    assert [code for code, *_ in faults("\n".join(lines), "a.yaml")] == ["too-deep"]


@pytest.mark.parametrize(
    ("path", "key", "place"),
    [
        ((), False, (1, 1)),
        (("flags", "a"), True, (2, 2)),
        (("flags", "a"), False, (2, 8)),
        (("flags", "a", 1), False, (3, 3)),
        (("flags", "a", 7), False, (2, 8)),
        (("flags", "none", "deeper"), True, (1, 11)),
    ],
)
def test_a_place_is_that_of_the_value_its_key_or_the_nearest_that_exists(
    path: tuple[str | int, ...], key: bool, place: tuple[int, int]
) -> None:
    content = '{"flags": {\n "a" : [1,\n  "two"]}}'
    assert read(content).place(path, key=key) == place


def test_a_document_without_a_value_has_no_places() -> None:
    assert read("{").place(("flags",)) == (0, 0)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield path, value
    if isinstance(value, dict | list):
        for step, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(part, (*path, step))


@given(DOCUMENTS, st.sampled_from([None, 1]), st.booleans())
def test_the_place_of_any_path_is_where_its_value_starts(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    document, lines = read(text), text.split("\n")
    for path, part in _paths(value):
        line, column = document.place(path)
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == part


@given(DOCUMENTS)
def test_json_round_trips(value: Any) -> None:
    document = read(json.dumps(value))
    assert (document.value, document.problems) == (normal(value), ())


@given(DOCUMENTS)
def test_yaml_with_quoted_texts_reads_like_json(value: Any) -> None:
    text = yaml.dump(value, Dumper=_Quoting, allow_unicode=True, default_flow_style=None)
    document = read(text.encode(), "a.yaml")
    assert document.problems == ()
    assert _close(document.value, normal(value))


class _Quoting(yaml.SafeDumper):
    """Double quotes for every text; no anchors, which parts used twice would get."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def _close(one: Any, other: Any) -> bool:
    """Equal, floats as YAML writes them."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return math.isclose(one, other) if isinstance(other, float) else bool(one == other)


@given(st.binary(max_size=60) | st.text("[]{}\"\\:,-&*! \n\tae1.'<|>#?%", max_size=60))
def test_no_bytes_make_reading_raise(content: bytes | str) -> None:
    for file in ("a.json", "a.yaml"):
        document = read(content, file)
        assert (document.value is ABSENT) <= bool(document.problems)
        assert document.place(("flags", 0, "x")) >= (0, 0)


UNCLOSED = {
    "a list of YAML": ("flags:\n  a: {x: [1,\n  b: 2\nmetadata: {}\n", "a.yaml", 2, 10, "`[` is opened here"),
    "a text of YAML": ('a: "x\nb: 1\n', "a.yaml", 1, 4, '`"` is opened here and not closed'),
    "a list of JSON": ('{"a": 1,\n "b": [1, 2\n', "a.json", 2, 7, "`[` is opened here and not closed"),
    "a text of JSON": ('{"a": 1,\n "b": "x', "a.json", 2, 7, "a text starts here"),
}


@pytest.mark.parametrize("case", UNCLOSED)
def test_what_is_not_closed_is_placed_where_it_is_opened(case: str) -> None:
    text, file, line, column, message = UNCLOSED[case]
    (problem,) = read(text, file).problems
    assert (problem.line, problem.column) == (line, column)
    assert problem.message.startswith(message)
