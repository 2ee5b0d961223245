"""Texts of instants and durations, read in the time zone of another machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.host import times

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("in_tokyo")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T12:00:00Z", NOON),
        ("2026-01-02T14:00:00+02:00", NOON),
        ("2026-01-02T12:00:00", None),
        ("2026-01-02", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (12, None),
    ],
)
def test_a_time_has_a_zone(text: object, moment: datetime | None) -> None:
    assert times.parse_time(text) == moment
    if moment is None:
        with pytest.raises(ValueError, match=r"zone|isoformat|range|year"):
            times.read_time(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Fri, 02 Jan 2026 12:00:00 GMT", NOON),
        ("Fri, 02 Jan 2026 12:00:00 -0000", NOON),
        ("Fri, 02 Jan 2026 12:00:00", NOON),
        ("Fri, 02 Jan 2026 14:00:00 +0200", NOON),
        ("soon", None),
        ("", None),
    ],
)
def test_a_date_of_a_header_without_a_zone_is_in_utc(text: str, moment: datetime | None) -> None:
    assert times.parse_http_date(text) == moment


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1)), st.integers(-14, 14))  # noqa: DTZ001
def test_what_is_written_is_read_again(naive: datetime, hours: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert times.read_time(times.micro_timestamp(moment)) == moment
    assert times.read_time(times.precise_timestamp(moment)) <= moment
    assert times.read_time(times.timestamp(moment)) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.0001, "1ms"), (0.038, "38ms"), (0.5, "500ms"), (0.996, "1s"), (1, "1s"), (1.23, "1.2s"),
        (12.4, "12s"), (59.6, "1m"), (90, "1m30s"), (250, "4m10s"), (3_600, "1h"), (3_601, "1h1s"),
        (5_400, "1h30m"), (90_000, "25h"),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_in_a_spec(seconds: float, text: str) -> None:
    assert times.duration_text(seconds) == text


@given(st.floats(0, 1e6))
def test_a_written_duration_is_read_with_its_two_digits(seconds: float) -> None:
    read = times.parse_duration(times.duration_text(seconds))
    assert read == pytest.approx(seconds, rel=0.06, abs=0.001)
