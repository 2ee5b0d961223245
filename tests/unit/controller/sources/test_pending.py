from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controller.api.meta import ObjectKey
from controller.sources.freshness import PATIENCE, PendingPushes

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
PUSHED = "ab" * 20
BEFORE = "12" * 20


def waiting_pushes() -> PendingPushes:
    expected = PendingPushes()
    expected.expect(KEY, PUSHED.upper(), NOW)
    return expected


def test_a_source_without_a_push_waits_for_its_turn() -> None:
    assert PendingPushes().seconds_to_retry(KEY, BEFORE, NOW) is None


def test_a_commit_that_is_not_there_yet_is_polled_for_with_growing_delays() -> None:
    expected = waiting_pushes()
    delays = [expected.seconds_to_retry(KEY, BEFORE, NOW) for _ in range(8)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_a_source_that_cannot_be_read_is_polled_again() -> None:
    assert waiting_pushes().seconds_to_retry(KEY, "", NOW) == 0.25


def test_a_commit_that_was_seen_is_expected_no_more() -> None:
    expected = waiting_pushes()
    assert expected.is_waiting(KEY, NOW)
    assert expected.seconds_to_retry(KEY, PUSHED, NOW) is None
    assert not expected.is_waiting(KEY, NOW)


@pytest.mark.parametrize("passed", [PATIENCE + 1, -8_640_000.0], ids=["late", "the clock was set back"])
def test_a_commit_that_never_comes_is_given_up(passed: float) -> None:
    expected = waiting_pushes()
    late = NOW + timedelta(seconds=passed)
    assert expected.seconds_to_retry(KEY, BEFORE, late) is None
    assert not expected.is_waiting(KEY, NOW)


def test_what_may_never_come_is_polled_for_less_often() -> None:
    expected, now, polls = waiting_pushes(), NOW, []
    while (delay := expected.seconds_to_retry(KEY, BEFORE, now, sure=False)) is not None:
        polls.append(delay)
        now += timedelta(seconds=delay)
    assert polls == [0.25, 1.0, 4.0, 16.0]
    assert not expected.is_waiting(KEY, now)


def test_a_source_that_cannot_be_opened_is_not_waited_for_without_end() -> None:
    expected = waiting_pushes()
    assert expected.is_waiting(KEY, NOW + timedelta(seconds=PATIENCE))
    assert not expected.is_waiting(KEY, NOW + timedelta(seconds=PATIENCE + 1))


def test_a_newer_push_is_what_is_waited_for() -> None:
    expected = waiting_pushes()
    expected.expect(KEY, "cd" * 20, NOW + timedelta(seconds=1))
    assert expected.seconds_to_retry(KEY, PUSHED, NOW) == 0.25


@pytest.mark.parametrize("forget", [True, False])
def test_a_source_that_is_gone_is_forgotten(forget: bool) -> None:
    expected = waiting_pushes()
    if forget:
        expected.forget(KEY)
    assert expected.is_waiting(KEY, NOW) is not forget
