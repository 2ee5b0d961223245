"""Variables in definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.preparation import Allowance, Steps
from controller.flagsets.substitution import Variables
from evaluator.flags.document import read_document
from evaluator.flags.model import EMPTY
from tests.worlds.flagsets import document, flag

VALUES = {
    "WORD": "blue", "YES": "true", "NUMBER": "12", "FRACTION": "1.50", "ZEROS": "007", "QUOTED": '"1.10"',
    "EMPTY": "", "OBJECT": '{"a": 1}', "NULL": "null", "TOKEN": "s3cr3t",
    "PATH_": "team/alpha.tar.gz", "LOUD": "GRÖßE", "MINUS": "-2", "STARS": "*b*",
}  # fmt: skip
VARIABLES = Variables(VALUES, frozenset({"TOKEN"}))
CODES = {"unknown-variable", "broken-variable"}
PROVENANCE = provenance_of("main@sha1:1")


def replace_variables(value: Any, file: str = "a.json") -> tuple[Any, list[str]]:
    """What becomes of a value, and the codes of what is wrong."""
    read = read_document(json.dumps({"v": value}).encode(), file=file)
    made = VARIABLES(read, Allowance()).document
    assert isinstance(made.value, dict)
    return made.value["v"], [each.code for each in made.findings]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("${WORD}", "blue"),
        ("a-${WORD}-${NUMBER}", "a-blue-12"),
        ("${YES}", True),
        ("${NUMBER}", 12),
        ("${FRACTION}", 1.5),
        ("${ZEROS}", "007"),
        ("${QUOTED}", "1.10"),
        ("${OBJECT}", '{"a": 1}'),
        ("${NULL}", "null"),
        ("${EMPTY}", ""),
        ("${EMPTY:=full}", "full"),
        ("${EMPTY=full}", ""),
        ("${NONE:=3}", 3),
        ("${NONE:-a b}", "a b"),
        ("${NONE-}", ""),
        ("$${WORD}", "${WORD}"),
        ("$$${WORD}", "$blue"),
        ("a $$ b", "a $ b"),
        ("$${NONE:=${WORD}}", "${NONE:=blue}"),
        ("${NONE:=${WORD}}", "blue"),
        ("${NONE:=a-${NONE-${NUMBER}}-$$}", "a-12-$$"),
        ("${WORD:=${NONE}}", "blue"),
        ("${#WORD}", 4),
        ("${PATH_^} ${PATH_^^}", "Team/alpha.tar.gz TEAM/ALPHA.TAR.GZ"),
        ("${LOUD,} ${LOUD,,}", "gRÖßE größe"),
        ("${LOUD^^}", "GRÖßE"),
        ("${WORD:1} ${WORD:1:2} ${WORD:0:-1} ${WORD:9}|${WORD:3:-3}|${WORD:${MINUS}}", "lue lu blu ||ue"),
        ("${NUMBER:0:1}", 1),
        ("${PATH_#*.} ${PATH_##*.} ${PATH_%.*} ${PATH_%%.*}", "tar.gz gz team/alpha.tar team/alpha"),
        ("${PATH_#?e[a-c]m/} ${PATH_%[^.]z} ${PATH_#x}", "alpha.tar.gz team/alpha.tar. team/alpha.tar.gz"),
        ("${WORD#*}${WORD##*}", "lue"),
        ("${WORD#[z-a]}${WORD#[^z-a]}", "bluelue"),
        ("${STARS#\\*}", "b*"),
        ("${PATH_/a/A} ${PATH_//a/A} ${PATH_//a/}", "teAm/alpha.tar.gz teAm/AlphA.tAr.gz tem/lph.tr.gz"),
        (
            "${PATH_/#team/x} ${PATH_/%gz/x} ${PATH_/#a/x}",
            "x/alpha.tar.gz team/alpha.tar.x team/alpha.tar.gz",
        ),
        ("${PATH_//\\//-} ${WORD//${WORD:0:1}/${NUMBER}}", "team-alpha.tar.gz 12lue"),
        ("${WORD//${EMPTY}/x}", "blue"),
        ("$WORD $ {WORD} $", "$WORD $ {WORD} $"),
        (["${WORD}", {"var": "${WORD}"}, 1, None], ["blue", {"var": "blue"}, 1, None]),
        ({"${WORD}": 1}, {"${WORD}": 1}),
    ],
)
def test_variables_are_replaced_in_values_and_nowhere_else(text: Any, made: Any) -> None:
    value, codes = replace_variables(text)
    assert (value, type(value), codes) == (made, type(made), [])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("${NONE}", "unknown-variable"),
        ("a ${WORD} ${NONE}", "unknown-variable"),
        ("${WORD", "broken-variable"),
        ("${}", "broken-variable"),
        ("${1A}", "broken-variable"),
        ("${WORD:?why}", "broken-variable"),
        ("${WORD:+x}", "broken-variable"),
        ("${WORD/b}", "broken-variable"),
        ("${WORD:one}", "broken-variable"),
        ("${WORD:1:}", "broken-variable"),
        ("${WORD^b}", "broken-variable"),
        ("${WORD#[a}", "broken-variable"),
        ("${WORD#[]}", "broken-variable"),
        ("${WORD#a\\}", "broken-variable"),
        (f"${{WORD#{'a' * 257}}}", "broken-variable"),
        ("${NONE:={1}", "broken-variable"),
        ("${#WORD:1}", "broken-variable"),
        ("${NONE:=" * 11 + "}" * 11, "broken-variable"),
        ("${NONE^^}", "unknown-variable"),
        ("${NONE//a/b}", "unknown-variable"),
        ("${NONE:=${NONE}}", "unknown-variable"),
    ],
)
def test_what_cannot_be_replaced_is_an_error_and_stays_as_it_is(text: str, code: str) -> None:
    assert replace_variables(text) == (text, [code])


def of_files(files: dict[str, str], variables: Variables) -> Composition:
    content = {name: text.encode() for name, text in files.items()}
    return compose(
        content, list(files), provenance=PROVENANCE, previous=None, steps=Steps(variables=variables)
    )


@pytest.mark.parametrize("files", [1, 20])
def test_values_take_no_more_of_all_files_than_a_document_may(files: int) -> None:
    variables = Variables({"BIG": "x" * 1_000_000})
    texts = {f"{number}": f"${{BIG}}{number}" for number in range(20 // files)}
    named = {
        f"{number}.json": document(**{f"f{number}": flag("0", variants=texts)}) for number in range(files)
    }
    made = of_files(named, variables)
    assert {each.code for each in made.problems} == {"variables-too-large"}
    assert (made.accepted, made.flag_set.flags) == (False, EMPTY)


@pytest.mark.parametrize(
    ("value", "uses"), [("v", 1_500), ("v" * 900_000, 3)], ids=["many patterns", "long values"]
)
def test_patterns_take_no_more_work_than_as_many_characters(value: str, uses: int) -> None:
    variables = Variables({"VALUE": value, "PATTERN": "*a" + "?" * 254})
    texts = {f"{number}": "${VALUE##${PATTERN}}" for number in range(uses)}
    made = of_files({"a.json": document(f=flag("0", variants=texts))}, variables)
    assert {each.code for each in made.problems} == {"variables-too-large"}


def test_a_replacement_takes_no_more_than_a_document_may_before_it_is_made() -> None:
    variables = Variables({"BIG": "a" * 1_000_000})
    made = of_files({"a.json": document(f=flag("0", variants={"0": "${BIG//a/${BIG}}"}))}, variables)
    assert {each.code for each in made.problems} == {"variables-too-large"}


def test_a_pattern_takes_time_in_proportion_to_the_value() -> None:
    variables = Variables({"BIG": "a" * 1_000_000})
    made = of_files({"a.json": document(f=flag("0", variants={"0": f"${{BIG%%{'*a' * 100}b}}"}))}, variables)
    assert not made.problems


@given(st.text("${}AB:=-^,#%/*?[]\\0 ", max_size=24))
def test_whatever_a_text_is_it_is_replaced_or_an_error(text: str) -> None:
    read = read_document(json.dumps({"v": text}).encode(), file="a.json")
    made = Variables({"A": "aA/.b", "B": ""})(read, Allowance()).document
    assert isinstance(made.value, dict)
    assert not made.findings or (made.value["v"] == text and {each.code for each in made.findings} <= CODES)


def test_variables_without_a_value_are_reported_up_to_the_limit_of_problems() -> None:
    broken = flag(variants={f"v{number}": "${NONE}" for number in range(600)})
    made = of_files({f"{key}.json": document(**{key: broken}) for key in "abc"}, VARIABLES)
    assert not made.accepted
    codes = [each.code for each in made.problems]
    assert (codes.count("unknown-variable"), codes.count("variables-too-large")) == (999, 1)


def compose_text(text: str, variables: Variables = VARIABLES, file: str = "flags.json") -> Composition:
    return compose(
        {file: text.encode()}, [file], provenance=PROVENANCE, previous=None, steps=Steps(variables=variables)
    )  # fmt: skip


def test_a_bad_variable_holds_its_flag_alone_and_names_the_line() -> None:
    text = document(
        a=flag(variants={"on": "${NONE}", "off": "x"}), b=flag(variants={"on": "${WORD}", "off": "x"})
    )
    made = compose_text(text)
    assert (made.missing, dict(made.flag_set.flags["b"].variants)) == (("a",), {"on": "blue", "off": "x"})
    (problem,) = made.problems
    line = text.split("\n").index('    "on": "${NONE}",') + 1
    assert (problem.file, problem.line, problem.flag) == ("flags.json", line, "a")
    assert "NONE" in problem.message


def test_no_variable_stands_for_a_flag_s_key() -> None:
    made = compose_text('{"flags": [{"key": "${WORD}", "state": "ENABLED", "variants": {"on": 1}}]}')
    assert [each.code for each in made.problems] == ["variable-place"]
    assert not made.accepted


def test_without_steps_dollars_are_text() -> None:
    text = document(a=flag(variants={"on": "${NONE}", "off": "x"}))
    made = compose({"flags.json": text.encode()}, ["flags.json"], provenance=PROVENANCE, previous=None)
    assert made.flag_set.flags["a"].variants["on"] == "${NONE}"


def test_a_flag_with_a_value_of_a_secret_is_marked_and_others_are_not() -> None:
    a, c = (flag(variants={"on": text, "off": "x"}) for text in ("${TOKEN}", "${WORD}"))
    made = compose_text(document(a=a, b=flag(), c=c))
    marks = {key: dict(each.metadata) for key, each in made.flag_set.flags.items()}
    assert marks == {"a": {"flagstaff.dev/secret": True}, "b": EMPTY, "c": EMPTY}


def test_what_is_made_of_a_secret_is_marked_too() -> None:
    texts = ["${TOKEN:0:1}", "${#TOKEN}", "${NONE:=${TOKEN}}", "${WORD/b/${TOKEN}}"]
    for text in texts:
        made = compose_text(document(a=flag(variants={"on": f"is {text}", "off": "x"})))
        assert dict(made.flag_set.flags["a"].metadata) == {"flagstaff.dev/secret": True}
    made = compose_text(document(a=flag(variants={"on": "${WORD:=${TOKEN}}", "off": "x"})))
    assert made.flag_set.flags["a"].metadata == EMPTY


def test_a_secret_in_a_shared_rule_marks_every_flag() -> None:
    text = json.dumps({"flags": {"a": flag(), "b": flag()}, "$evaluators": {"x": {"==": ["${TOKEN}", 1]}}})
    made = compose_text(text)
    assert all(each.metadata["flagstaff.dev/secret"] is True for each in made.flag_set.flags.values())


def test_a_secret_in_metadata_of_the_set_is_refused() -> None:
    made = compose_text(json.dumps({"flags": {"a": flag()}, "metadata": {"flagSetId": "${TOKEN}"}}))
    assert (made.accepted, [each.code for each in made.problems]) == (False, ["secret-place"])


@pytest.mark.parametrize(
    "bad",
    [
        flag("${TOKEN}"),
        flag(state="${TOKEN}"),
        flag(targeting={"if": [True, "${TOKEN}"]}),
        flag(targeting={"if": [True, "x-${TOKEN}"]}),
        flag(variants="${TOKEN}"),
        flag(targeting={"if": [True, "${WORD:${TOKEN}}"]}),
        flag(targeting={"if": [True, "${WORD#[${TOKEN}}"]}),
    ],
)
def test_no_message_repeats_a_value_of_a_secret(bad: dict[str, Any]) -> None:
    made = compose_text(document(a=bad, b=flag()))
    assert made.problems
    assert "s3cr3t" not in repr(made.problems)
    assert all(each.line for each in made.problems)
