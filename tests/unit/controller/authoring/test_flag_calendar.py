"""The calendar of a change: times of schedules and dates of steps, in order, with their zones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.flag_calendar import (
    MOST_SHOWN,
    calendar_lines,
    schedule_entries,
    step_entry,
    to_come,
)
from evaluator.flags.merge import parse
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet

NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
GOLD: Final = {"==": [{"var": "tier"}, "gold"]}
CHRISTMAS: Final = {"between": ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]}
PERIOD: Final = "from 2026-12-24 18:00 to 2026-12-27 06:00 Europe/Berlin"


def flags(rules: dict[str, Any], evaluators: dict[str, Any] | None = None, **more: Any) -> FlagSet:
    variants = {"on": 1, "off": 0, "true": 1, "false": 0}
    made = {
        key: {"state": "ENABLED", "variants": variants, "defaultVariant": "off", "targeting": rule, **more}
        for key, rule in rules.items()
    }
    found = parse(json.dumps({"flags": made, "$evaluators": evaluators or {}}).encode(), file="f.json")
    assert not found.problems
    return found.flag_set


def lines(flag_set: FlagSet, now: datetime = NOW) -> list[str]:
    return [entry.line for entry in to_come(schedule_entries(flag_set, flag_set.flags), now)]


def test_schedules_are_told_in_order_with_zone_and_users() -> None:
    since = {"between": ["2026-12-01T08:00-05:00", None, "America/New_York"]}
    until = {"between": [None, "2026-12-10", "UTC"]}
    rules = {
        "banner": {"if": [{"and": [CHRISTMAS, GOLD]}, "on"]},
        "price": {"if": [since, {"fractional": [["on", 1], ["off", 3]]}]},
        "sale": until,
    }
    assert lines(flags(rules)) == [
        "from 2026-12-01 08:00 America/New_York on: price: on for 25 % and off for 75 %, by user",
        "until 2026-12-10 00:00 UTC: sale: true",
        f"{PERIOD}: banner, for users whose tier is gold: on",
    ]


def test_what_has_passed_is_left_out_and_what_is_so_now_is_told_by_its_end() -> None:
    begun = {"between": ["2026-11-01", "2026-12-25", "UTC"]}
    rules = {
        "a": {"between": ["2025-12-24", "2025-12-27", "UTC"]},
        "b": {"if": [begun, "on"]},
        "c": CHRISTMAS,
    }
    assert lines(flags(rules)) == [
        f"{PERIOD}: c: true",
        "from 2026-11-01 00:00 to 2026-12-25 00:00 UTC: b: on",
    ]
    assert lines(flags({"a": {"between": ["2025-12-24", None, "UTC"]}})) == []


def test_schedule_in_a_shared_rule_is_of_each_flag_that_uses_it() -> None:
    rule = {"if": [{"$ref": "christmas"}, "on"]}
    told = lines(flags({"a": rule, "b": rule}, {"christmas": CHRISTMAS}))
    assert told == [f"{PERIOD}: a: on", f"{PERIOD}: b: on"]


def test_comparisons_that_all_hold_are_one_time() -> None:
    time = {"var": "$flagd.timestamp"}
    rule = {"if": [{"and": [{">=": [time, 1_798_131_600]}, GOLD, {"<": [time, 1_798_347_600]}]}, "on"]}
    assert lines(flags({"a": rule})) == [
        "from 2026-12-24 17:00 to 2026-12-27 05:00 UTC: a, for users whose tier is gold: on"
    ]


def test_time_in_a_condition_that_holds_at_others_too_is_told_with_all_of_it() -> None:
    words = PERIOD.replace("from", "between").replace("to", "and")
    rules = {"a": {"if": [{"or": [CHRISTMAS, GOLD]}, "on"]}, "b": {"if": [{"!": [CHRISTMAS]}, "on"]}}
    assert lines(flags(rules)) == [
        f"{PERIOD}: a, if the time is {words} or tier is gold: on",
        f"{PERIOD}: b, if the time is not {words}: on",
    ]


def test_flag_that_is_disabled_has_no_calendar_and_a_secret_no_words() -> None:
    rule = {"x": {"if": [{"and": [CHRISTMAS, GOLD]}, "on"]}}
    assert lines(flags(rule, state="DISABLED")) == []
    assert lines(flags(rule, metadata={"flagstaff.dev/secret": True})) == [
        f"{PERIOD}: x: another value, which is secret"
    ]


def test_steps_are_told_with_the_offset_of_their_date() -> None:
    entries = [
        step_entry("checkout", "2/2", "50%", "2026-12-03T08:00:00Z"),
        step_entry("checkout", "1/2", "audience", "2026-12-01T08:00:00+01:00"),
        step_entry("old", "1/1", "10%", "2026-11-01T08:00:00Z"),
    ]
    assert [entry.line for entry in to_come(entries, NOW)] == [
        "from 2026-12-01 08:00+01:00 on: FlagRollout checkout, step 1/2: the new definition for an audience",
        "from 2026-12-03 08:00+00:00 on: FlagRollout checkout, step 2/2: the new definition for 50% of users",
    ]


def test_people_are_shown_a_bounded_number() -> None:
    made = flags({f"f{number:02}": CHRISTMAS for number in range(MOST_SHOWN + 3)})
    shown = [*calendar_lines(to_come(schedule_entries(made, made.flags), NOW))]
    assert len(shown) == MOST_SHOWN + 1
    assert shown[-1] == "… and 3 more"
    many = {"if": [{"or": [{"between": [f"{year}-01-01", None, "UTC"]} for year in range(2027, 2100)]}, "on"]}
    assert len(lines(flags({"f": many}))) == MOST_SHOWN


days = st.integers(1, 60).map(lambda day: NOW.replace(hour=0) + timedelta(days=day))


@given(st.tuples(days, days), st.tuples(days, days), st.booleans(), days)
def test_users_get_what_the_calendar_says_while_it_says_so(
    one: tuple[datetime, datetime], other: tuple[datetime, datetime], gold: bool, asked: datetime
) -> None:
    first, second = (
        {"between": [f"{min(pair):%Y-%m-%d}", f"{max(pair) + timedelta(days=1):%Y-%m-%d}", "UTC"]}
        for pair in (one, other)
    )
    made = flags({"f": {"if": [{"and": [first, GOLD]}, "on", second, "on"]}})
    entries = to_come(schedule_entries(made, ["f"]), NOW)
    moment = f"{asked:%Y-%m-%dT%H:%M:%SZ}"
    told = any(
        (entry.start or "") <= moment < (entry.end or "9") and (gold or not entry.who) for entry in entries
    )
    context = {"tier": "gold"} if gold else {}
    assert (
        resolve(compile_flag_set(made), "f", None, context, int(asked.timestamp())).variant == "on"
    ) is told
