"""GO Feature Flag's files: cases by what its evaluation does, and what has no exact form here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.importers.formats import import_files
from controller.importers.reading import ImportOptions, UnreadableFile
from tests.unit.controller.importers.suites import CODE, compiled, imported, moved_share, value_of

NOW = 1_700_000_000
CASES = frozenset({"case-sensitive"})
USERS = [f"user-{number}" for number in range(1000)]


def day(number: int) -> str:
    return (datetime.fromtimestamp(NOW, UTC) + timedelta(days=number)).isoformat()


def flag_of(*rules: dict[str, Any], default: Any = "off", **fields: Any) -> dict[str, Any]:
    rule = default if isinstance(default, dict) else {"variation": default}
    return {"variations": {"on": True, "off": False}, "targeting": list(rules), "defaultRule": rule, **fields}


def rule_of(query: str = 'plan eq "1"', variation: str = "on", **fields: Any) -> dict[str, Any]:
    return {"query": query, "variation": variation, **fields}


def answer(
    flag: dict[str, Any], context: dict[str, Any] | None = None, *, days: int = 0, **options: Any
) -> Any:
    what = imported("go-feature-flag", {"f": flag}, **options)
    assert not what.refusals, what.refusals
    return value_of(compiled(what), "f", context or {}, now=NOW + days * 86_400)


def share(flag: dict[str, Any], value: Any, *, days: int = 0) -> float:
    """The share of users with this value."""
    flags = compiled(imported("go-feature-flag", {"f": flag}))
    now = NOW + days * 86_400
    values = [value_of(flags, "f", {"targetingKey": user}, now=now) for user in USERS]
    return values.count(value) / len(values)


def message(flag: Any, **options: Any) -> str:
    """Why the flag is refused."""
    refusals = imported("go-feature-flag", {"f": flag}, **options).refusals
    assert refusals
    return refusals[0].message


@pytest.mark.parametrize(
    ("query", "context", "expected"),
    [
        ("a eq 5", {"a": 5}, True),
        ("a eq 5", {"a": 5.7}, True),
        ("a eq 5", {"a": "5"}, False),
        ("a eq 0", {}, False),
        ("a eq 0", {"a": -0.5}, True),
        ("a eq 1", {"a": True}, False),
        ("a ne 5", {"a": 5.7}, False),
        ("a ne 5", {"a": "x"}, False),
        ("a ne 5", {}, False),
        ("a gt 5", {"a": 5.7}, False),
        ("a gt 5", {"a": 6}, True),
        ("a lt -4", {"a": -4.5}, False),
        ("a le -4", {"a": -4.5}, True),
        ("a ge -4", {"a": -4.5}, True),
        ("a eq 5.0", {"a": 5}, True),
        ("a gt 5.0", {"a": 5.7}, True),
        ("a != 1.5", {"a": 2}, True),
        ("a <= 1.5", {"a": 1.5}, True),
        ("a in [1, 2]", {"a": 2}, True),
        ("a in [1,2]", {"a": 2.5}, False),
        ("a in [1.5, 2.0]", {"a": 2}, True),
        ('a in ["x", "Y"]', {"a": "Y"}, True),
        ('a in ["x", "Y"]', {"a": "y"}, False),
        ("a eq true", {"a": True}, True),
        ("a eq true", {"a": "true"}, False),
        ("a ne true", {"a": False}, True),
        ("a ne true", {}, False),
        ("anonymous eq false", {}, True),
        ("anonymous eq false", {"anonymous": "yes"}, True),
        ("anonymous ne false", {"anonymous": True}, True),
        ("anonymous pr", {}, True),
        ("a eq null", {}, True),
        ("a ne null", {"a": ""}, True),
        ("a pr", {"a": ""}, True),
        ("a pr", {"a": None}, False),
        ("not (a pr)", {}, True),
        ("NOT ( a eq 1 )", {"a": 1}, False),
        ('a eq "1"', {"a": "1"}, True),
        ('a eq "1"', {"a": 1}, False),
        ('a ne "1"', {"a": "2"}, True),
        ('a ne "1"', {}, False),
        ('a ne "1"', {"a": 2}, False),
        ('a sw "1"', {"a": "123"}, True),
        ('a ew "3"', {"a": "123"}, True),
        ('a co "2"', {"a": "123"}, True),
        ('a co "2"', {"a": ["2"]}, False),
        (r'a eq "1\"2"', {"a": '1"2'}, False),
        (r'a eq "1\"2"', {"a": r"1\"2"}, True),
        ('key eq "1"', {"targetingKey": "1"}, True),
        ('key ne "1"', {}, True),
        ('targetingKey eq ""', {}, True),
        ("a gt 1.2.3", {"a": "1.10.0"}, True),
        ("a gt 1.2.3", {"a": "1.10"}, False),
        ("a gt 1.2.3", {"a": "v1.10.0"}, False),
        ("a lt 1.2.3", {"a": "1.2.3-rc.1"}, True),
        ("a ne 1.2.3", {}, False),
        ("a.b eq 1", {"a": {"b": 1}}, True),
        ("a.b eq 1", {"a": "x"}, False),
        ("a eq 1 or b eq 1 and c eq 1", {"a": 1}, False),
        ("a eq 1 and b eq 1 or c eq 1", {"c": 1}, True),
        ("a eq 1 or (b eq 1 and c eq 1)", {"a": 1}, True),
        ("not (a eq 1) and b eq 1", {"b": 1}, True),
        ('{"==": [{"var": "key"}, "1"]}', {"targetingKey": "1"}, True),
        ('{"in": [{"var": "a"}, ["x"]]}', {"a": "x"}, True),
        ('{"!": {"var": "anonymous"}}', {"anonymous": "yes"}, True),
        ('{"var": "a"}', {"a": []}, False),
        ('{"some": [{"var": "a"}, {"==": [{"var": "key"}, 1]}]}', {"a": [{"key": 1}]}, True),
        ('{"==": [{"var": ["a", {"var": "key"}]}, "1"]}', {"targetingKey": "1"}, True),
    ],
)
def test_a_query_is_true_where_go_feature_flag_finds_it_true(
    query: str, context: dict[str, Any], expected: bool
) -> None:
    assert answer(flag_of(rule_of(query)), context) is expected


def test_texts_with_letters_need_leave_since_their_case_does_not_matter() -> None:
    flag = flag_of(rule_of('email ew "@acme.com"'))
    assert "other cases" in message(flag)
    assert answer(flag, {"email": "a@acme.com"}, allowed=CASES) is True


@pytest.mark.parametrize(
    "query", ["b eq 1 and a.b eq 1", "not (a.b eq 1)", "a.b eq null", "a.b in [1]", "a.b eq 1 or a.c eq 1"]
)
def test_nested_attributes_need_leave_where_a_missing_object_has_another_value(query: str) -> None:
    flag = flag_of(rule_of(query))
    assert "a.b" in message(flag)
    answer(flag, {}, allowed={"nested-attributes"})


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ('a eq "1" OR b eq "2"', "in capitals"),
        ("a  eq 1", "one space"),
        ("a eq 1 and", "one space"),
        ("(a eq 1)and(b eq 1)", "one space"),
        ("a>=1", "one space"),
        ("a eq '1'", "one space"),
        ("in eq 1", "one space"),
        ("a in []", "one space"),
        ("a in [1, 2.5]", "one space"),
        ("a eq 1.2.3.4", "one space"),
        ("a eq 1 and\nb eq 1", "several lines"),
        ("(" * 30 + "a eq 1" + ")" * 30, "parentheses"),
        ("a eq 1 or " * 2000 + "a eq 1", "longer"),
        ('a gt "1"', "compares texts"),
        ("a co 1", "never true"),
        ("a eq [1]", "never true"),
        ('a in "1"', "never true"),
        ("a gt null", "with null"),
        ("a eq 99999999999999999999", "too large"),
        ("{", "nor JSON"),
        ('{"==": [1]', "nor JSON"),
        ('{"fractional": []}', "no operator"),
        ('{"a": 1, "b": 2}', "no operator"),
        ("{}", "no operator"),
        ('{"var": ""}', "whole context"),
        ('{"var": {"var": "a"}}', "whole context"),
        ('{"missing": ["key"]}', "never missing"),
        ('{"!":' * 2000 + "1" + "}" * 2000, "nor JSON"),
        ('{"!":' * 500 + "1" + "}" * 500, "too deep"),
        ('{"!":' * 60 + "1" + "}" * 60, "of ours"),
        ("", "no query"),
    ],
)
def test_a_query_without_an_exact_form_is_refused(query: str, part: str) -> None:
    assert part in message(flag_of(rule_of(query)))


def test_the_first_rule_that_applies_decides_and_rules_that_are_off_are_passed() -> None:
    rules = [rule_of("a eq 1", disable=True), rule_of("a eq 1", "off"), rule_of("a pr", "on")]
    assert answer(flag_of(*rules), {"a": 1}) is False
    assert answer(flag_of(*rules), {"a": 2}) is True


def test_a_flag_that_is_off_gives_the_value_in_the_code() -> None:
    what = imported("go-feature-flag", {"f": flag_of(rule_of(), disable=True)})
    assert value_of(compiled(what), "f", {"plan": "1"}) == CODE
    assert what.flags[0].targeting[""].rules


def test_percentages_are_weights_and_count_before_a_variation() -> None:
    flag = flag_of(default={"variation": "off", "percentage": {"on": 30, "off": 90}})
    assert 0.2 < share(flag, True) < 0.3
    assert share(flag, False) == pytest.approx(1 - share(flag, True))
    assert moved_share(imported("go-feature-flag", {"f": flag}), "f") == pytest.approx(0.375)


def test_users_without_a_key_get_the_value_in_the_code_from_a_flag_that_divides() -> None:
    divides = rule_of("a eq 2", percentage={"on": 50, "off": 50})
    assert answer(flag_of(divides), {"a": 1}) == CODE
    assert answer(flag_of(divides), {"a": 1, "targetingKey": "u"}) is False
    assert answer(flag_of(), {"a": 1}) is False
    later = [{"date": day(5), "targeting": [divides]}]
    assert answer(flag_of(scheduledRollout=later)) == CODE


def test_a_bucketing_key_has_to_be_a_text_even_where_nothing_divides() -> None:
    flag = flag_of(default="on", bucketingKey="team.id")
    assert answer(flag, {"targetingKey": "u"}) == CODE
    assert answer(flag, {"team": {"id": 5}}) == CODE
    assert answer(flag, {"team": {"id": ""}}) is True
    divided = flag_of(default={"percentage": {"on": 50, "off": 50}}, bucketingKey="team")
    assert answer(divided, {"team": ""}) == CODE
    flags = compiled(imported("go-feature-flag", {"f": divided}))
    values = [value_of(flags, "f", {"team": user, "targetingKey": "u"}) for user in USERS]
    assert 400 < values.count(True) < 600


@pytest.mark.parametrize(("days", "expected"), [(-1, CODE), (0, True), (2, True), (3, CODE)])
def test_an_experiment_gives_the_value_in_the_code_before_and_after_it(days: int, expected: Any) -> None:
    flag = flag_of(default="on", experimentation={"start": day(0), "end": day(2)})
    assert answer(flag, days=days) == expected


def test_an_experiment_ends_after_its_last_second() -> None:
    flags = compiled(
        imported("go-feature-flag", {"f": flag_of(default="on", experimentation={"end": day(0)})})
    )
    assert value_of(flags, "f", {}, now=NOW) is True
    assert value_of(flags, "f", {}, now=NOW + 1) == CODE


@pytest.mark.parametrize(("days", "expected"), [(-1, 0), (0, 0.2), (5, 0.4), (10, 0.6), (11, 0.6)])
def test_a_progressive_rollout_grows_evenly_between_its_dates(days: int, expected: float) -> None:
    ramp = {
        "initial": {"variation": "off", "percentage": 20, "date": day(0)},
        "end": {"variation": "on", "percentage": 60, "date": day(10)},
    }
    default = {"variation": "off", "percentage": {"off": 100}, "progressiveRollout": ramp}
    assert share(flag_of(default=default), True, days=days) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("percentage", [0, 150])
def test_a_progressive_rollout_ends_with_all_where_its_percentage_is_none(percentage: int) -> None:
    ramp = {
        "initial": {"variation": "off", "date": day(0)},
        "end": {"variation": "on", "percentage": percentage, "date": day(1)},
    }
    rule = {"query": "key pr", "progressiveRollout": ramp}
    assert share(flag_of(rule), True, days=1) == 1
    assert share(flag_of(rule), True, days=-1) == 0
    assert moved_share(imported("go-feature-flag", {"f": flag_of(rule)}), "f") == 0.5


def step(days: int, *rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"date": day(days), "targeting": list(rules), **fields}


def test_steps_change_rules_by_name_and_a_rule_that_is_added_is_gone_with_the_next_step() -> None:
    steps = [
        step(1, {"name": "one", "variation": "off"}, rule_of("b eq 1")),
        step(2, {"name": "one", "query": "a eq 2"}),
    ]
    flag = flag_of(rule_of("a eq 1", name="one"), scheduledRollout=steps)
    rows = [({"a": 1}, [True, False, False]), ({"b": 1}, [False, True, False])]
    for context, expected in rows:
        assert [answer(flag, context, days=days) for days in (0, 1, 2)] == expected
    steps[1]["targeting"][0]["variation"] = "on"
    assert [answer(flag, {"a": 2}, days=days) for days in (1, 2)] == [False, True]


def test_steps_are_applied_in_their_order_whatever_their_dates() -> None:
    steps = [step(2, defaultRule={"variation": "on"}), step(1, defaultRule={"variation": "off"})]
    flag = flag_of(default="on", scheduledRollout=steps)
    assert [answer(flag, days=days) for days in (0, 1, 2)] == [True, False, False]


def test_steps_change_values_percentages_and_the_switch() -> None:
    steps = [
        step(1, variations={"on": "new"}),
        step(2, disable=True),
        step(3, disable=False, defaultRule={"percentage": {"on": -1, "off": 5}}),
        {"disable": True},
    ]
    flag = flag_of(default={"percentage": {"on": 100}}, scheduledRollout=steps)
    flag["variations"] = {"on": "old", "off": "off"}
    user = {"targetingKey": "u"}
    assert [answer(flag, user, days=days) for days in (0, 1, 2, 3)] == ["old", "new", CODE, "off"]


def test_names_that_yaml_reads_as_booleans_or_numbers_are_texts() -> None:
    text = """
f: {variations: {True: 1, False: 2, 5: 3}, defaultRule: {variation: True},
    targeting: [{query: a eq 1, variation: 5}]}
"""
    flags = compiled(import_files("go-feature-flag", [("", "f.yaml", text.encode())], ImportOptions()))
    assert value_of(flags, "f", {}) == 1
    assert value_of(flags, "f", {"a": 1}) == 3


def test_the_version_and_metadata_are_kept() -> None:
    flag = flag_of(version="1.2", metadata={"description": "what", "n": 1, "list": ["a", "b"], "o": {}})
    (imported_flag,) = imported("go-feature-flag", {"f": flag}).flags
    assert imported_flag.metadata == {"version": "1.2", "description": "what", "n": 1, "list": "a, b"}
    assert dict(imported_flag.variants) == {"on": True, "off": False}


@pytest.mark.parametrize(
    ("flag", "part"),
    [
        (5, "no variations"),
        ({"true": True, "false": False, "percentage": 5}, "no variations"),
        (flag_of(default="other"), 'no variation "other"'),
        (flag_of(default={"variation": True}), 'no variation "True"'),
        (flag_of(default={}), "is missing"),
        (flag_of(variations={"on": None, "off": 1}), 'no variation "on"'),
        (flag_of(default={"percentage": {"other": 5}}), 'no variation "other"'),
        (flag_of(default={"percentage": {"on": -5}}), "no percentage"),
        (flag_of(default={"percentage": {"on": 1e99}}), "no percentage"),
        (flag_of(default={"percentage": {"on": 0}}), "sum"),
        (flag_of(default={"percentage": {"on": "5"}}), "has a text"),
        (flag_of(rule_of(name="x"), rule_of(name="x")), "one name"),
        (flag_of({"variation": "on"}), "no query"),
        (flag_of(bucketingKey="a..b"), "no attribute"),
        (flag_of(disable="yes"), "has a text"),
        (flag_of(experimentation={"start": "soon"}), "no date"),
        (flag_of(experimentation={"start": "2026-01-01T00:00:00"}), "no date"),
        (flag_of(default={"progressiveRollout": {}}), "no date"),
        (flag_of(scheduledRollout=[step(number) for number in range(101)]), "100 steps"),
        (flag_of(scheduledRollout=[step(1, variations=[])]), "has a list"),
    ],
)
def test_a_flag_with_a_fault_is_refused(flag: Any, part: str) -> None:
    assert part in message(flag)


@pytest.mark.parametrize(
    ("first", "last", "days", "part"),
    [(60, 20, 9, "has to grow"), (0, 100, -1, "has to grow"), (0.123, 99.999, 900, "too long")],
)
def test_a_progressive_rollout_without_an_exact_form_is_refused(
    first: float, last: float, days: int, part: str
) -> None:
    ramp = {
        "initial": {"variation": "off", "percentage": first, "date": day(0)},
        "end": {"variation": "on", "percentage": last, "date": day(days)},
    }
    assert part in message(flag_of(default={"progressiveRollout": ramp}))


@pytest.mark.parametrize("content", [[], "x", 5])
def test_a_file_of_another_kind_is_unreadable(content: Any) -> None:
    with pytest.raises(UnreadableFile):
        imported("go-feature-flag", content)


TOML = """
[f.variations]
on = true
off = false
[f.defaultRule]
variation = "off"
[f.experimentation]
start = 2024-01-01T00:00:00Z
[[f.targeting]]
query = 'plan eq "1"'
variation = "on"
"""
YAML = """
f:
  variations: {on: true, off: false}
  defaultRule: {variation: off}
  experimentation: {start: 2024-01-01}
  targeting:
  - query: plan eq "1"
    variation: on
"""


@pytest.mark.parametrize(("name", "text"), [("flags.toml", TOML), ("flags.goff.yaml", YAML)])
def test_files_are_toml_or_yaml_as_well(name: str, text: str) -> None:
    flags = compiled(import_files("go-feature-flag", [("", name, text.encode())], ImportOptions()))
    assert value_of(flags, "f", {"plan": "1"}, now=1_704_067_200) is True
    assert value_of(flags, "f", {"plan": "1"}, now=1_704_067_199) == CODE


@pytest.mark.parametrize("data", [b"= 1", b"\xff", b"a = " + b"[" * 9000, b"a = 99999999999999999999999"])
def test_bad_toml_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableFile):
        import_files("go-feature-flag", [("", "flags.toml", data)], ImportOptions())


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.data())
def test_wrong_types_anywhere_are_refused_and_never_an_error(data: st.DataObject) -> None:
    ramp = {
        "initial": {"variation": "off", "percentage": 20, "date": day(0)},
        "end": {"variation": "on", "percentage": 60, "date": day(10)},
    }
    flag = flag_of(
        rule_of(name="one", percentage={"on": 5, "off": 95}),
        rule_of("a.b eq 1", progressiveRollout=ramp, disable=False),
        scheduledRollout=[step(1, {"name": "one", "progressiveRollout": ramp}, variations={"new": True})],
        experimentation={"start": day(-5), "end": day(5)},
        bucketingKey="team",
        metadata={"description": "what"},
    )
    content: Any = {"f": flag}
    part = content
    while isinstance(part, dict | list) and part:
        key = data.draw(st.sampled_from(list(part) if isinstance(part, dict) else list(range(len(part)))))
        if not isinstance(part[key], dict | list) or data.draw(st.booleans()):
            part[key] = data.draw(JSON)
            break
        part = part[key]
    compiled(imported("go-feature-flag", content))
