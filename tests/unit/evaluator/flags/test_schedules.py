"""Schedules: `{"between": [from, to, zone]}` in a rule is written out as comparisons of the time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evaluator.flags.layer import read_layer
from evaluator.flags.merge import Parsed, merge, parse
from evaluator.flags.schedules import ScheduleError, ScheduleWindow, read_schedule, windows
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.resolving.rule_words import clauses, sentence

CHRISTMAS = {"between": ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]}
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe",
    "Pacific/Apia", "America/Havana",
)  # fmt: skip


def parsed(rule: Any, **sections: Any) -> Parsed:
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off", "targeting": rule}
    return parse(json.dumps({"flags": {"banner": flag}, **sections}).encode(), file="flags.json")


def variant(found: Parsed, moment: datetime) -> str | None:
    return resolve(compile_flag_set(found.flag_set), "banner", None, {}, int(moment.timestamp())).variant


def refusal(*arguments: Any) -> str:
    (problem,) = parsed({"if": [{"between": list(arguments)}, "on"]}).problems
    assert problem.code == "bad-schedule"
    return problem.message


def test_a_flag_is_on_from_the_first_second_until_before_the_last_one() -> None:
    found = parsed({"if": [CHRISTMAS, "on"]})
    begin, end = datetime(2026, 12, 24, 17, tzinfo=UTC), datetime(2026, 12, 27, 5, tzinfo=UTC)
    second = timedelta(seconds=1)
    moments = (begin - second, begin, end - second, end)
    assert [variant(found, moment) for moment in moments] == ["off", "on", "on", "off"]


def test_the_rule_has_flagds_own_operators_alone() -> None:
    now = {"var": "$flagd.timestamp"}
    expected = [{"!!": ["Europe/Berlin"]}, {">=": [now, 1798131600]}, {"<": [now, 1798347600]}]
    found = parsed({"if": [CHRISTMAS, "on"]})
    assert found.flag_set.flags["banner"].targeting == {"if": [{"and": expected}, "on"]}
    assert not found.problems


@pytest.mark.parametrize(
    ("between", "states"),
    [
        pytest.param(["2026-12-24", None, "UTC"], ["off", "on"], id="no end"),
        pytest.param([None, "2026-12-24", "UTC"], ["on", "off"], id="no beginning"),
        pytest.param(["2026-12-24T00:00Z", None], ["off", "on"], id="an offset and no zone"),
    ],
)
def test_one_end_may_be_open(between: list[Any], states: list[str]) -> None:
    found = parsed({"if": [{"between": between}, "on"]})
    days = (datetime(2026, 12, day, tzinfo=UTC) for day in (23, 24))
    assert [variant(found, day) for day in days] == states


def test_shared_rules_and_layers_may_have_schedules() -> None:
    base = parsed({"if": [{"$ref": "christmas"}, "on"]}, **{"$evaluators": {"christmas": CHRISTMAS}})
    assert variant(base, datetime(2026, 12, 25, tzinfo=UTC)) == "on"
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}
    below = json.dumps({"flags": {"banner": flag}}).encode()
    above = json.dumps({"flags": {"banner": {"targeting": {"if": [CHRISTMAS, "on"]}}}}).encode()
    merged = merge([read_layer([("base.json", below)]), read_layer([("top.json", above)])])
    assert variant(merged, datetime(2026, 12, 25, tzinfo=UTC)) == "on"


def test_the_values_of_variants_are_left_alone() -> None:
    flag = {"state": "ENABLED", "variants": {"on": CHRISTMAS, "off": {}}, "defaultVariant": "on"}
    found = parse(json.dumps({"flags": {"banner": flag}}).encode(), file="flags.json")
    assert found.flag_set.flags["banner"].variants["on"] == CHRISTMAS


def test_a_problem_is_reported_with_its_line_and_the_flag_is_not_served() -> None:
    text = (
        b"flags:\n  banner:\n    state: ENABLED\n    variants: {on: true}\n    defaultVariant: on\n"
        b"    targeting:\n      if:\n        - between: [2026-12-24T18:00, null, Europe/Bern]\n        - on\n"
    )
    found = parse(text, file="flags.yaml")
    (problem,) = found.problems
    assert (problem.line, problem.code) == (8, "bad-schedule")
    assert found.bad == {"banner"}
    assert problem.message == '"Europe/Bern" is no known time zone; write one such as UTC or Europe/Berlin'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ["2026-10-25T02:30", None, "Europe/Berlin"], "twice, with the offsets +02:00 and +01:00"
        ),
        pytest.param(["2026-03-29T02:30", None, "Europe/Berlin"], 'never show "2026-03-29T02:30"'),
        pytest.param(["2026-12-24T18:00+02:00", None, "Europe/Berlin"], "it has +01:00"),
        pytest.param(["2026-12-24", "2026-12-23", "UTC"], '"2026-12-23" is not after "2026-12-24"'),
        pytest.param(["2026-12-24", "2026-12-24", "UTC"], "never true"),
        pytest.param(["2026-12-24T18:00", None], "neither a time zone nor an offset"),
        pytest.param(["tomorrow", None, "UTC"], '"tomorrow" is no time'),
        pytest.param([1798131600, None, "UTC"], "1798131600 is no time"),
        pytest.param(["1969-01-01", None, "UTC"], "is not between the years 1970 and 2514"),
        pytest.param(["0001-01-01", None, "Asia/Tokyo"], "is not between the years 1970 and 2514"),
        pytest.param(["2026-12-24T18:00:00.5", None, "UTC"], "has a part of a second"),
        pytest.param([None, None, "UTC"], "needs a time"),
        pytest.param(["2026-12-24", None, 1], 'takes a time zone such as "Europe/Berlin" last, not 1'),
        pytest.param(["2026-12-24", None, "../../etc/passwd"], "no known time zone"),
        pytest.param(["2026-12-24"], "takes two times and a time zone"),
    ],
)
def test_what_names_no_time_is_refused(arguments: list[Any], words: str) -> None:
    assert words in refusal(*arguments)


def test_the_offset_says_which_of_two_equal_times_is_meant() -> None:
    first = read_schedule(["2026-10-25T02:30+02:00", None, "Europe/Berlin"])
    second = read_schedule(["2026-10-25T02:30+01:00", None, "Europe/Berlin"])
    assert first.start is not None
    assert second.start == first.start + 3600


def test_people_read_local_time() -> None:
    found = parsed({"if": [CHRISTMAS, "on"]})
    rule = found.flag_set.flags["banner"].targeting
    words = "the time is between 2026-12-24 18:00 and 2026-12-27 06:00 Europe/Berlin"
    assert sentence(clauses(rule)) == f"if {words}: on; else the default"
    assert [window.words() for window in windows(rule)] == [words.removeprefix("the time ")]
    shown = explain(compile_flag_set(found.flag_set), "banner", None, {}, 1798131600 - 60)
    texts = [str(step) for step in shown.steps]
    assert (
        "targeting.if[0].and: false, since the time (2026-12-24 17:59) is not between 2026-12-24 18:00 and "
        "2026-12-27 06:00 Europe/Berlin" in texts
    )


def test_the_local_time_of_a_shared_rule_is_explained_too() -> None:
    found = parsed({"if": [{"$ref": "christmas"}, "on"]}, **{"$evaluators": {"christmas": CHRISTMAS}})
    shown = explain(compile_flag_set(found.flag_set), "banner", None, {}, 1798131600)
    assert any("since the time (2026-12-24 18:00) is between" in str(step) for step in shown.steps)


def test_a_rule_beyond_the_bounds_stays_an_error() -> None:
    rule: Any = CHRISTMAS
    for _ in range(60):
        rule = {"!": rule}
    assert [problem.code for problem in parsed(rule).problems] == ["rule-too-deep"]


local_times = st.integers(10**8, 4 * 10**9).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
)


@given(st.sampled_from(ZONES), local_times, local_times, local_times)
def test_the_comparisons_agree_with_arithmetic_over_times(
    zone: str, first: datetime, last: datetime, asked: datetime
) -> None:
    info = ZoneInfo(zone)
    try:
        window = read_schedule([first.isoformat(), last.isoformat(), zone])
    except ScheduleError:
        local = [moment.replace(tzinfo=info) for moment in (first, last)]
        other = [moment.replace(fold=1) for moment in local]
        unclear = [one.utcoffset() for one in local] != [one.utcoffset() for one in other]
        assert unclear or first.replace(tzinfo=info).timestamp() >= last.replace(tzinfo=info).timestamp()
        return
    found = parsed({"if": [{"between": [first.isoformat(), last.isoformat(), zone]}, "on"]})
    moment = asked.replace(tzinfo=UTC)
    inside = first.replace(tzinfo=info).astimezone(UTC) <= moment < last.replace(tzinfo=info).astimezone(UTC)
    assert variant(found, moment) == ("on" if inside else "off")
    assert list(windows(found.flag_set.flags["banner"].targeting)) == [window]


@given(st.sampled_from(ZONES), local_times)
def test_a_written_schedule_is_read_back(zone: str, moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    # Offsets with seconds were in use once.
    assume(aware.utcoffset() is not None and not (aware.utcoffset() or timedelta()).seconds % 60)
    text = aware.isoformat()
    found = parsed({"if": [{"between": [text, None, zone]}, "on"]})
    (window,) = windows(found.flag_set.flags["banner"].targeting)
    assert window == ScheduleWindow(int(aware.timestamp()), None, zone)
