"""When steps may be taken, by clocks of time zones that are set forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.flagrollout import Freeze, Window
from controller.rollouts.gates import is_open, next_opening

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def window(days: str, begin: str, end: str, zone: str = "Europe/Berlin") -> Window:
    return Window.model_validate({"days": days.split(), "from": begin, "to": end, "timeZone": zone})


def freeze(begin: str, end: str) -> Freeze:
    return Freeze.model_validate({"from": begin, "to": end})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("windows", "moment", "opens"),
    [
        ([], "2026-03-02T03:00Z", "2026-03-02T03:00Z"),
        ([window("Mon", "08:00", "16:00")], "2026-03-02T06:59Z", "2026-03-02T07:00Z"),
        ([window("Mon", "08:00", "16:00")], "2026-03-02T14:59Z", "2026-03-02T14:59Z"),
        ([window("Mon", "08:00", "16:00")], "2026-03-02T15:00Z", "2026-03-09T07:00Z"),
        # Summer time begins on 29 March 2026 at 2:00, so a window of the next day opens an hour earlier.
        ([window("Mon", "08:00", "16:00")], "2026-03-24T00:00Z", "2026-03-30T06:00Z"),
        # The clocks leave out 2:00 to 3:00: what would open then opens at 3:00, or not at all.
        ([window("Sun", "02:30", "05:00")], "2026-03-28T12:00Z", "2026-03-29T01:00Z"),
        ([window("Sun", "02:10", "02:50")], "2026-03-28T12:00Z", "2026-04-05T00:10Z"),
        # They repeat 2:00 to 3:00 on 25 October: it opens twice.
        ([window("Sun", "02:10", "02:50")], "2026-10-25T00:00Z", "2026-10-25T00:10Z"),
        ([window("Sun", "02:10", "02:50")], "2026-10-25T00:50Z", "2026-10-25T01:10Z"),
        # Over midnight, into a day that is not listed.
        ([window("Fri", "22:00", "04:00")], "2026-03-06T20:59Z", "2026-03-06T21:00Z"),
        ([window("Fri", "22:00", "04:00")], "2026-03-07T02:59Z", "2026-03-07T02:59Z"),
        ([window("Fri", "22:00", "04:00")], "2026-03-07T03:00Z", "2026-03-13T21:00Z"),
        # All day.
        ([window("Sat", "00:00", "00:00", "UTC")], "2026-03-06T12:00Z", "2026-03-07T00:00Z"),
        # The first of several.
        (
            [
                window("Wed", "09:00", "10:00", "America/New_York"),
                window("Tue", "23:00", "23:30", "Asia/Tokyo"),
            ],
            "2026-03-02T00:00Z",
            "2026-03-03T14:00Z",
        ),
    ],
)  # fmt: skip
def test_a_window_opens_by_the_clocks_of_its_time_zone(
    windows: list[Window], moment: str, opens: str
) -> None:
    assert next_opening(windows, [], at(moment)) == at(opens)


def test_a_freeze_counts_over_windows() -> None:
    weekdays = [window("Mon Tue", "08:00", "16:00", "UTC")]
    holidays = [
        freeze("2026-03-02T09:00:00Z", "2026-03-02T20:00:00Z"),
        freeze("2026-03-03T08:00:00Z", "2026-03-03T08:30:00+00:00"),
    ]
    assert next_opening(weekdays, holidays, at("2026-03-02T10:00Z")) == at("2026-03-03T08:30Z")
    assert not is_open(weekdays, holidays, at("2026-03-02T10:00Z"))
    assert next_opening([], holidays, at("2026-03-02T10:00Z")) == at("2026-03-02T20:00Z")


def test_a_freeze_until_the_end_of_the_calendar_never_opens() -> None:
    ever = [freeze("2026-03-02T00:00:00Z", "9999-12-31T23:59:59Z")]
    assert next_opening([window("Mon", "08:00", "16:00")], ever, at("2026-03-02T10:00Z")) is None


CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from((0, 15, 30, 59)))
WINDOWS = st.builds(
    lambda days, begin, end, zone: window(" ".join(sorted(days)), begin, end, zone),
    st.sets(st.sampled_from(DAYS), min_size=1),
    CLOCKS,
    CLOCKS,
    st.sampled_from(("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu")),
)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(st.lists(WINDOWS, min_size=1, max_size=3), MOMENTS, st.data())
def test_the_next_opening_is_open_and_nothing_is_before(
    windows: list[Window], moment: datetime, data: Any
) -> None:
    opens = next_opening(windows, [], moment)
    assert opens is not None
    assert is_open(windows, [], opens)
    seconds = int((opens - moment).total_seconds())
    before = moment + timedelta(seconds=data.draw(st.integers(0, max(seconds - 1, 0))))
    assert before >= opens or not is_open(windows, [], before)
