from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, Flag, FlagSet, State
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, FlagType, Resolution, flag_type
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve
from evaluator.targeting import compile_rule
from evaluator.targeting.compile import OPERATORS as COMPILERS

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000
VARIANTS = {"on": True, "off": False}


def compile_flags(**changes: Any) -> CompiledFlagSet:
    fields: dict[str, Any] = {"state": State.ENABLED, "variants": VARIANTS, "default_variant": "off"}
    flag = Flag(key="flag", **{**fields, **changes})
    return compile_flag_set(FlagSet(flags={"flag": flag}, evaluators={"known": {"var": "beta"}}))


def answer(wanted: FlagType | None = None, **changes: Any) -> Resolution:
    context = changes.pop("context", {})
    return resolve(compile_flags(**changes), "flag", wanted, context, NOW)


def outcome(resolution: Resolution) -> tuple[Any, ...]:
    return resolution.value, resolution.variant, str(resolution.reason), resolution.error_code


ERROR = (ABSENT, None, "ERROR")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, (False, "off", "STATIC", None), id="no targeting"),
        pytest.param({"targeting": {}}, (False, "off", "STATIC", None), id="empty targeting"),
        pytest.param({"targeting": None}, (False, "off", "DEFAULT", None), id="null targeting"),
        pytest.param({"targeting": "on"}, (True, "on", "TARGETING_MATCH", None), id="a literal"),
        pytest.param({"targeting": {"var": "gone"}}, (False, "off", "DEFAULT", None), id="null"),
        pytest.param({"default_variant": None}, (ABSENT, None, "DEFAULT", None), id="no default variant"),
        pytest.param({"default_variant": None, "targeting": None}, (ABSENT, None, "DEFAULT", None),
                     id="null and no default variant"),
        pytest.param(
            {"state": State.DISABLED, "targeting": "on"}, (ABSENT, None, "DISABLED", None), id="disabled"
        ),
        pytest.param({"targeting": "gone"}, (*ERROR, ErrorCode.GENERAL), id="no such variant"),
        pytest.param({"targeting": ["on"]}, (*ERROR, ErrorCode.GENERAL), id="a list"),
        pytest.param({"targeting": {"a": 1, "b": 2}}, (*ERROR, ErrorCode.GENERAL), id="an object"),
        pytest.param({"targeting": {"no": []}}, (*ERROR, ErrorCode.PARSE_ERROR), id="unknown"),
        pytest.param({"targeting": {"/": [1, 0]}}, (*ERROR, ErrorCode.PARSE_ERROR), id="an infinity"),
        pytest.param({"targeting": {"merge": [{"/": [1, 0]}]}}, (*ERROR, ErrorCode.PARSE_ERROR),
                     id="an infinity in a list"),
        pytest.param(
            {"targeting": {"$ref": "gone"}}, (*ERROR, ErrorCode.PARSE_ERROR), id="unknown reference"
        ),
        pytest.param({"targeting": {"if": [{"$ref": "known"}, "on"]}, "context": {"beta": 1}},
                     (True, "on", "TARGETING_MATCH", None), id="a reference"),
        pytest.param({"default_variant": "gone"}, (*ERROR, ErrorCode.TYPE_MISMATCH), id="default is gone"),
    ],
)  # fmt: skip
def test_a_flag_comes_to_its_outcome(changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert outcome(answer(**changes)) == expected


@pytest.mark.parametrize(
    ("result", "variant"),
    [
        pytest.param(True, "true", id="true"),
        pytest.param(False, "false", id="false"),
        pytest.param(1, "1", id="an integer"),
        pytest.param(1.0, "1", id="an integral float"),
        pytest.param(-1.5, "-1.5", id="a float"),
        pytest.param(1e21, "1e+21", id="a large float"),
        pytest.param(1e20, "100000000000000000000", id="a less large float"),
        pytest.param(2**63, "9223372036854776000", id="a large integer"),
        pytest.param(1e-7, "1e-7", id="a small float"),
        pytest.param("null", "null", id="the text null"),
        pytest.param(" on ", " on ", id="inner white space"),
        pytest.param('o"n', "o\\n", id="a quote leaves its backslash"),
        pytest.param("<b>", "\\u003cb\\u003e", id="what Go escapes"),
        pytest.param("a\nb", "a\\nb", id="a line feed"),
    ],
)
def test_a_result_names_a_variant_by_its_json_text(result: Any, variant: str) -> None:
    changes = {"variants": {variant: "found"}, "default_variant": variant, "targeting": result}
    assert outcome(answer(**changes))[:3] == ("found", variant, "TARGETING_MATCH")


@pytest.mark.parametrize("name", ["<b>", "a&b", 'a"b', "a\\b", "a\nb"])
def test_a_variant_whose_name_json_escapes_is_never_matched(name: str) -> None:
    resolution = answer(variants={name: 1}, default_variant=name, targeting=name)
    assert resolution.error_code is ErrorCode.GENERAL


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        pytest.param(True, FlagType.BOOLEAN, True, id="a boolean"),
        pytest.param(1, FlagType.BOOLEAN, ABSENT, id="a number is no boolean"),
        pytest.param("x", FlagType.STRING, "x", id="text"),
        pytest.param(1.9, FlagType.INTEGER, 1, id="truncated"),
        pytest.param(-1.9, FlagType.INTEGER, -1, id="truncated toward zero"),
        pytest.param(2**53 + 1, FlagType.INTEGER, 2**53, id="as a float64"),
        pytest.param(1e19, FlagType.INTEGER, ABSENT, id="beyond 64 bits"),
        pytest.param(2.0**63, FlagType.INTEGER, ABSENT, id="just beyond 64 bits"),
        pytest.param(-(2.0**63), FlagType.INTEGER, -(2**63), id="the least of 64 bits"),
        pytest.param(10**400, FlagType.FLOAT, ABSENT, id="beyond floats"),
        pytest.param(True, FlagType.INTEGER, ABSENT, id="a boolean is no integer"),
        pytest.param("1", FlagType.INTEGER, ABSENT, id="text is no integer"),
        pytest.param(1, FlagType.FLOAT, 1.0, id="widened"),
        pytest.param({"a": 1}, FlagType.OBJECT, {"a": 1}, id="an object"),
        pytest.param([1], FlagType.OBJECT, ABSENT, id="a list is no object"),
        pytest.param([1], None, [1], id="any type"),
        pytest.param(None, None, ABSENT, id="null is no value"),
    ],
)
def test_a_value_is_given_as_the_wanted_type(value: Any, wanted: FlagType | None, expected: Any) -> None:
    resolution = answer(wanted, variants={"off": value})
    assert resolution.value == expected
    assert type(resolution.value) is type(expected)
    mismatch = None if expected is not ABSENT else ErrorCode.TYPE_MISMATCH
    assert resolution.error_code is mismatch


@pytest.mark.parametrize(
    ("rule", "context", "message"),
    [
        pytest.param({"if": [{"var": "beta"}, "on", "onn"]}, {},
                     'targeting returned "onn", which is not a variant (on, off)', id="a text of the rule"),
        pytest.param({"var": "tier"}, {"tier": "secret"},
                     "targeting returned text, which is not a variant (on, off)",
                     id="a text of the context is not quoted"),
        pytest.param({"var": "tier"}, {"tier": 7},
                     "targeting returned a number, which is not a variant (on, off)", id="a number"),
        pytest.param(
            {"map": [[1], 1]}, {}, "targeting returned a list, which is not a variant (on, off)", id="a list"
        ),
    ],
)  # fmt: skip
def test_an_outcome_that_is_no_variant_is_reported_with_the_variants(
    rule: Any, context: Any, message: str
) -> None:
    assert answer(targeting=rule, context=context).error_message == message


def test_a_message_lists_few_of_many_variants() -> None:
    names = {f"v{number}": 1 for number in range(9)}
    message = answer(variants=names, targeting="x" * 100).error_message
    assert message == f'targeting returned "{"x" * 64}", which is not a variant (v0, v1, v2, v3, v4, …)'


def test_an_unknown_key_is_not_found() -> None:
    resolution = resolve(compile_flags(), "other", None, {}, NOW)
    assert outcome(resolution) == (*ERROR, ErrorCode.FLAG_NOT_FOUND)


@pytest.mark.parametrize(
    "targeting", [ABSENT, "on", {"if": [{"var": "x"}, "on", None]}, {"no": []}, "gone", "a<b"], ids=str
)
def test_equal_questions_get_the_very_same_answer(targeting: Any) -> None:
    flags = compile_flags(targeting=targeting, variants={**VARIANTS, "a\\u003cb": True})
    first, second = (resolve(flags, "flag", FlagType.BOOLEAN, {"x": 1}, NOW) for _ in range(2))
    assert first is second


def test_the_flags_own_properties_replace_the_clients() -> None:
    rule = {"cat": [{"var": "$flagd.flagKey"}, "-", {"var": "$flagd.timestamp"}]}
    name = f"flag-{NOW}"
    context = {"$flagd": {"flagKey": "forged", "timestamp": 1}}
    resolution = answer(targeting=rule, variants={name: 1}, default_variant=None, context=context)
    assert resolution.variant == name
    assert context == {"$flagd": {"flagKey": "forged", "timestamp": 1}}


def test_the_whole_context_holds_the_flags_properties() -> None:
    rule = {"if": [{"==": [{"var": {"cat": ["$flagd", ".timestamp"]}}, NOW]}, "on"]}
    assert answer(targeting=rule).variant == "on"


WINDOW = [{"from": NOW - 10, "to": NOW + 10}]
PAST = [{"from": NOW - 20, "to": NOW - 10}]
WITHIN = {
    "and": [
        {"<=": [{"var": "from"}, {"var": "$flagd.timestamp"}]},
        {"<": [{"var": "$flagd.timestamp"}, {"var": "to"}]},
    ]
}
OF_THIS_FLAG = {"==": [{"var": "$flagd.flagKey"}, "flag"]}
FORGED = {"$flagd": {"flagKey": "forged", "timestamp": NOW - 15}}


@pytest.mark.parametrize("context", [{}, FORGED], ids=["no $flagd", "a forged $flagd"])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param({"some": [WINDOW, WITHIN]}, True, id="some"),
        pytest.param({"some": [PAST, WITHIN]}, False, id="some, past"),
        pytest.param({"!": [{"none": [WINDOW, WITHIN]}]}, True, id="none"),
        pytest.param({"!": [{"none": [PAST, WITHIN]}]}, False, id="none, past"),
        pytest.param({"filter": [WINDOW, WITHIN]}, True, id="filter"),
        pytest.param({"filter": [PAST, WITHIN]}, False, id="filter, past"),
        pytest.param({"some": [[1], OF_THIS_FLAG]}, True, id="the flag's key in some"),
        pytest.param({"filter": [[1], OF_THIS_FLAG]}, True, id="the flag's key in filter"),
        pytest.param({"some": [[[1]], {"some": [{"var": ""}, OF_THIS_FLAG]}]}, True, id="within each other"),
        pytest.param({"filter": [WINDOW, {"some": [[1], OF_THIS_FLAG]}]}, True, id="some in filter"),
        pytest.param(
            {"some": [[1], {"==": [{"var": {"cat": ["$flagd", ".flagKey"]}}, "flag"]}]}, True, id="computed"
        ),
        pytest.param({"some": [[1], {"$ref": "of-this-flag"}]}, True, id="a reference"),
        pytest.param({"all": [[1], OF_THIS_FLAG]}, False, id="all sees the element alone"),
        pytest.param({"==": [{"map": [[1], {"var": "$flagd.flagKey"}]}, "x"]}, False, id="map too"),
        pytest.param({"!": [{"missing": ["$flagd.timestamp"]}]}, True, id="missing"),
        pytest.param({"missing_some": [1, ["$flagd.other"]]}, True, id="missing_some"),
        pytest.param(
            {"in": [NOW, {"map": [{"merge": [{"var": ""}]}, {"var": "$flagd.timestamp"}]}]},
            True,
            id="all of it",
        ),
    ],
)
def test_loops_and_references_read_the_flags_own_properties(rule: Any, expected: bool, context: Any) -> None:
    flag = Flag("flag", State.ENABLED, VARIANTS, None, targeting={"if": [rule, "on", "off"]})
    flags = compile_flag_set(FlagSet(flags={"flag": flag}, evaluators={"of-this-flag": OF_THIS_FLAG}))
    assert resolve(flags, "flag", None, context, NOW).variant == ("on" if expected else "off")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"==": [{"var": "tier"}, "gold"]}, False),
        ({"some": [{"var": "teams"}, {"==": [{"var": ""}, "red"]}]}, False),
        ({"some": [{"var": "teams"}, {"==": [{"var": ".name"}, "red"]}]}, False),
        ({"some": [{"var": "teams"}, {"==": [{"var": [""]}, "red"]}]}, True),
        ({"missing": ["tier", "email"]}, False),
        ({"missing_some": [1, ["tier"]]}, False),
        ({"missing_some": [1, {"var": "names"}]}, True),
        ({"cat": [{"var": "$flagd.flagKey"}, {"var": "email"}]}, False),
        ({"var": ""}, True),
        ({"var": {"var": "name"}}, True),
    ],
    ids=str,
)
def test_the_context_is_copied_only_for_rules_that_may_read_the_flags_properties(
    rule: Any, expected: bool
) -> None:
    assert compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag").reads_flagd is expected


def test_concurrent_evaluations_of_a_flag_do_not_share_a_budget() -> None:
    """Each spends more than half of a budget; they take turns at every element."""
    together = threading.Barrier(2)

    class Turns(list[int]):
        """A list that lets the other evaluation go on before each of its elements."""

        def __iter__(self) -> Iterator[int]:
            for element in super().__iter__():
                together.wait(30)
                yield element

    flags = compile_flags(targeting={"if": [{"map": [{"var": "rows"}, {"!": [False]}]}, "on", "off"]})
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(resolve, flags, "flag", None, {"rows": Turns(range(4_000))}, NOW) for _ in range(2)
        ]
        assert [outcome(each.result())[:3] for each in answers] == [(True, "on", "TARGETING_MATCH")] * 2


def test_set_metadata_is_patched_by_the_flags_own() -> None:
    plain = Flag("plain", State.ENABLED, VARIANTS, "on")
    own = Flag("own", State.ENABLED, VARIANTS, "on", metadata={"version": 2})
    flag_set = FlagSet(flags={"plain": plain, "own": own}, metadata={"version": 1, "team": "a"})
    flags = compile_flag_set(flag_set)
    found = {key: resolve(flags, key, None, {}, NOW).metadata for key in flags.keys_in_order}
    assert found == {"plain": {"version": 1, "team": "a"}, "own": {"version": 2, "team": "a"}}


def test_the_generation_of_bucketing_is_named_when_asked_for() -> None:
    flag_set = compile_flags().flag_set
    flags = compile_flag_set(flag_set, bucketing=Bucketing.V3, expose_bucketing=True)
    assert resolve(flags, "flag", None, {}, NOW).metadata == {BUCKETING_KEY: "v3"}


@pytest.mark.parametrize(
    ("pinned", "expected"), [("v3", Bucketing.V3), ("v2", Bucketing.V2), ("v9", Bucketing.V2)]
)
def test_a_set_may_pin_its_generation_of_bucketing(pinned: str, expected: Bucketing) -> None:
    other = Bucketing.V3 if expected is Bucketing.V2 and pinned == "v2" else Bucketing.V2
    flags = compile_flag_set(FlagSet(metadata={BUCKETING_KEY: pinned}), bucketing=other)
    assert flags.bucketing is expected


def test_flags_are_in_key_order() -> None:
    flags = {key: Flag(key, State.ENABLED, VARIANTS, "on") for key in ("b", "a", "c")}
    found = compile_flag_set(FlagSet(flags=flags))
    assert list(found.keys_in_order) == ["a", "b", "c"] == list(found)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, FlagType.BOOLEAN), ("x", FlagType.STRING), (1, FlagType.FLOAT), (0.5, FlagType.FLOAT),
        ({}, FlagType.OBJECT), ([], None), (None, None),
    ],
    ids=str,
)  # fmt: skip
def test_a_flag_has_the_type_of_its_default_variant(value: Any, expected: FlagType | None) -> None:
    assert flag_type(Flag("flag", State.ENABLED, {"only": value}, "only")) is expected


def test_a_flag_without_a_default_variant_has_no_type() -> None:
    assert flag_type(Flag("flag", State.ENABLED, VARIANTS)) is None


def test_a_rule_too_deep_once_expanded_is_a_parse_error() -> None:
    rule: Any = True
    for _ in range(60):
        rule = {"!": [rule]}
    assert answer(targeting=rule).error_code is ErrorCode.PARSE_ERROR


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
OPERATORS = st.sampled_from([*sorted(COMPILERS), "nonsense"])
RULES = st.recursive(
    JSON | st.sampled_from([{"var": "a"}, {"var": ""}, {"var": "b.0"}, {"var": "current"}]),
    lambda inner: st.builds(
        lambda name, values: {name: values}, OPERATORS, st.lists(inner, max_size=4) | inner
    ),
    max_leaves=12,
)


@given(rule=RULES, a=JSON, b=JSON, key=JSON, bucketing=st.sampled_from(Bucketing))
def test_no_rule_and_no_context_raise_an_error(
    rule: Any, a: Any, b: Any, key: Any, bucketing: Bucketing
) -> None:
    flag = Flag("flag", State.ENABLED, VARIANTS, "off", targeting=rule)
    flags = compile_flag_set(FlagSet(flags={"flag": flag}), bucketing=bucketing)
    context = {"a": a, "b": b, "targetingKey": key}
    resolution = resolve(flags, "flag", FlagType.BOOLEAN, context, NOW)
    assert (resolution.reason is EvaluationReason.ERROR) is (resolution.error_code is not None)
