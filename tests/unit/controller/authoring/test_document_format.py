"""The canonical layout of definitions: it says the same, keeps comments, and is the same the second time."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.document_format import FormatRefused, LeftAlone, format_document
from evaluator.flags.diff import same
from evaluator.flags.document import read_document

WORDS = st.sampled_from(
    ["on", "no", "1.10", "2026-12-31", "0x1f", "1_000", "null", "", "a: b", "# no comment", "it's",
     'say "x"', "two\nlines\n", "two\n  lines", "\n first", "end  ", "é", "a\\b", "x" * 60, "{{ x }}", "- a",
     "*a", "%", "~"]
)  # fmt: skip
LOOSE = """\
# All flags.

flags: # by team
    cart:   # the new one
      # What it may be.
      variants: {on: true, off: false}
      state: ENABLED   # since May
      metadata:
          version: 1.2.0
          since: 2026-05-01
          note: |
              two
                lines


      targeting:
        if:
        - {"==": [{var: tier}, gold]}
        - yes
        # Others?
      defaultVariant: 'off'
      # That was the cart.



    # The next one.
    pay: {key: pay, variants: {a: 1, b: }, state: ENABLED, targeting: {if: [{"in": [{var: email}, \
[ann@example.com]]}, a]}}
    ids: [one, # the oldest
          two]
"""
LAID_OUT = """\
# All flags.

flags: # by team
  cart: # the new one
    state: ENABLED # since May
    # What it may be.
    variants: {"on": true, "off": false}
    defaultVariant: "off"

    targeting:
      if:
        - {"==": [{var: tier}, gold]}
        - "yes"
      # Others?
    metadata:
      version: 1.2.0
      since: "2026-05-01"
      note: |
        two
          lines
    # That was the cart.

  # The next one.
  pay: {
    key: pay,
    state: ENABLED,
    variants: {a: 1, b: null},
    targeting: {if: [{"in": [{var: email}, [ann@example.com]]}, a]}
  }
  ids: [
    one, # the oldest
    two
  ]
"""


def test_a_file_is_laid_out_in_one_way() -> None:
    assert format_document(LOOSE, "a.yaml") == LAID_OUT
    assert format_document(LAID_OUT, "a.yaml") == LAID_OUT
    assert format_document(LOOSE.replace("\n", "\r\n"), "a.yaml") == LAID_OUT.replace("\n", "\r\n")


def test_json_keeps_the_lines_of_what_is_spread() -> None:
    text = '{"flags": {\n"a": {"variants": {"on":true}, "state":\t"ENABLED"},\n\n  "b": [\n1e0]}}'
    spread = """\
{
  "flags": {
    "a": {"state": "ENABLED", "variants": {"on": true}},

    "b": [
      1e0
    ]
  }
}
"""
    assert format_document(text, "a.json") == spread


def test_tests_have_their_fields_in_one_order() -> None:
    text = "tests:\n  - {expect: {variant: a}, flag: f, name: n}\n"
    made = "tests:\n  - {name: n, flag: f, expect: {variant: a}}\n"
    assert format_document(text, "a.flagtest.yaml") == made


def test_an_anchor_stays_before_its_alias() -> None:
    text = "flags:\n  a:\n    metadata: &m {x: 1}\n    state: *m\n"
    assert format_document(text, "a.yaml") == text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        pytest.param("a: |\n  x", "a: |-\n  x\n", id="a block without an end"),
        pytest.param("a: |+\n   x\n\n", "a: |+\n  x\n\n", id="blank lines that count"),
        pytest.param("a: >2-\n    x\n   y\n", "a: >2-\n    x\n   y\n", id="an indicator of indentation"),
        pytest.param("---   # d\na: 1\n...\n# f\n", "--- # d\na: 1\n# f\n", id="marks of a document"),
        pytest.param("x: [a: 1, b]\n", "x: [{a: 1}, b]\n", id="a pair in a list"),
        pytest.param("-\n    a: 1\n-   - b\n", "- a: 1\n- - b\n", id="behind a dash"),
        pytest.param("x:\n- a\n# y\ny: 1\n", "x:\n  - a\n# y\ny: 1\n", id="a list that is not indented"),
        pytest.param("? a\n: b\n", "a: b\n", id="a key with a mark"),
        pytest.param("<<: {a: 1}\n1: no\n", '<<: {a: 1}\n"1": "no"\n', id="keys"),
        pytest.param("a: !!str on\nb: &x 'y'\n", "a: !!str on\nb: &x 'y'\n", id="tags and anchors"),
        pytest.param("a: '\"'\nb: 'c'\n", 'a: \'"\'\nb: "c"\n', id="quotes"),
        pytest.param("\ufeffa: [1,]\n\n\n", "a: [1]\n", id="the ends of a file"),
    ],
)
def test_forms_of_yaml(text: str, made: str) -> None:
    assert format_document(text, "a.yaml") == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", 'a.yaml:2:1: error: the key "a"'),
        ("a: {}}\n", "a.yaml:1:6: error: the YAML is broken here"),
        ("just text\n", "it has no object"),
        ("a: 1\n---\n", "it has a form that cannot be laid out otherwise"),
    ],
)
def test_what_has_an_error_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FormatRefused, match=re.escape(message)):
        format_document(text, "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flags: {{ .Values.flags }}\n", "it is a template"),
        ("flags: {}\nsops: {mac: x}\n", "sops encrypted it"),
        ("a: 1\n---\nb: 2\n", "it has several documents"),
    ],
)
def test_a_text_for_another_program_is_left_alone(text: str, message: str) -> None:
    with pytest.raises(LeftAlone, match=message):
        format_document(text, "a.yaml")


VALUES = st.recursive(
    st.one_of(WORDS, st.booleans(), st.none(), st.integers(-9, 99), st.sampled_from([0.5, 1e21])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=8,
)
FIELDS = ("state", "variants", "defaultVariant", "targeting", "metadata", "other")
FLAG = st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), max_size=5).map(dict)
DOCUMENTS = st.fixed_dictionaries({"flags": st.dictionaries(WORDS, FLAG, max_size=3)}, optional={"x": VALUES})


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str]:
    """A text of a document with comments and blank lines wherever they change nothing, and its name."""
    document = draw(DOCUMENTS)
    if draw(st.booleans()):
        return json.dumps(document, indent=draw(st.sampled_from([None, 1, 4, "\t"]))), "a.json"
    text = yaml.safe_dump(
        document,
        default_flow_style=draw(st.sampled_from([None, True, False])),
        indent=draw(st.integers(1, 6)),
        width=draw(st.sampled_from([20, 80, 1000])),
        sort_keys=False,
        allow_unicode=True,
        default_style=draw(st.sampled_from([None, None, "'", '"', "|", ">"])),
    )
    for number in range(draw(st.integers(0, 6))):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        if draw(st.booleans()):
            indent = " " * draw(st.integers(0, 8))
            lines.insert(at, draw(st.sampled_from(["", f"{indent}# c{number}."])))
        else:
            lines[at] += f" # c{number}."
        changed = "\n".join(lines)
        if says(changed) == says(text):
            text = changed
    return text, "a.yaml"


def says(text: str, name: str = "a.yaml") -> str:
    """What a text says, in its order."""
    read = read_document(text.encode(), file=name)
    return repr((read.value, read.findings))


@given(written())
def test_a_layout_says_the_same_keeps_comments_and_is_final(source: tuple[str, str]) -> None:
    text, name = source
    made = format_document(text, name)
    before, after = (read_document(one.encode(), file=name).value for one in (text, made))
    assert same(before, after)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert [*before] == [*after]
    assert [*before["flags"]] == [*after["flags"]]
    assert sorted(re.findall(r"# c\d\.", made)) == sorted(re.findall(r"# c\d\.", text))
    assert format_document(made, name) == made
    assert made.endswith("\n")


def test_a_comment_behind_the_header_of_a_key_that_is_a_block_stays() -> None:
    text = '"flags":\n  ? | # two lines\n    two\n    lines\n  : {}\n'
    assert "  # two lines\n" in format_document(text, "a.yaml")
