from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controller.api.objects.meta import ObjectKey
from controller.sources.backend import Revision
from controller.sources.freshness import PATIENCE, PendingPushes

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
PUSHED = "ab" * 20
BEFORE = Revision("main", "sha1:" + "12" * 20)


def waiting() -> PendingPushes:
    expected = PendingPushes()
    expected.expect(KEY, PUSHED.upper(), NOW)
    return expected


def test_a_source_without_a_push_waits_for_its_turn() -> None:
    assert PendingPushes().next_look(KEY, BEFORE, NOW) is None


def test_a_commit_that_is_not_there_yet_is_looked_for_sooner_first_and_ever_less() -> None:
    expected = waiting()
    delays = [expected.next_look(KEY, BEFORE, NOW) for _ in range(8)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_a_source_that_cannot_be_read_is_looked_at_again() -> None:
    assert waiting().next_look(KEY, None, NOW) == 0.25


def test_a_commit_that_was_seen_is_expected_no_more() -> None:
    expected = waiting()
    assert expected.waits(KEY, NOW)
    assert expected.next_look(KEY, Revision("main", f"sha1:{PUSHED}"), NOW) is None
    assert not expected.waits(KEY, NOW)


@pytest.mark.parametrize("passed", [PATIENCE + 1, -8_640_000.0], ids=["late", "the clock was set back"])
def test_a_commit_that_never_comes_is_given_up(passed: float) -> None:
    expected = waiting()
    late = NOW + timedelta(seconds=passed)
    assert expected.next_look(KEY, BEFORE, late) is None
    assert not expected.waits(KEY, NOW)


def test_what_may_never_come_is_looked_for_less_often() -> None:
    expected, now, looks = waiting(), NOW, []
    while (delay := expected.next_look(KEY, BEFORE, now, sure=False)) is not None:
        looks.append(delay)
        now += timedelta(seconds=delay)
    assert looks == [0.25, 1.0, 4.0, 16.0]
    assert not expected.waits(KEY, now)


def test_a_source_that_cannot_be_opened_is_not_waited_for_without_end() -> None:
    expected = waiting()
    assert expected.waits(KEY, NOW + timedelta(seconds=PATIENCE))
    assert not expected.waits(KEY, NOW + timedelta(seconds=PATIENCE + 1))


def test_a_newer_push_is_what_is_waited_for() -> None:
    expected = waiting()
    expected.expect(KEY, "cd" * 20, NOW + timedelta(seconds=1))
    assert expected.next_look(KEY, Revision("main", f"sha1:{PUSHED}"), NOW) == 0.25


@pytest.mark.parametrize("forget", [True, False])
def test_a_source_that_is_gone_is_forgotten(forget: bool) -> None:
    expected = waiting()
    if forget:
        expected.forget(KEY)
    assert expected.waits(KEY, NOW) is not forget
