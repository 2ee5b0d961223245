"""A dispute about drift, and a clock that is set back meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from controller.flagsets.delivery import AT_ONCE, DriftRecord

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_a_clock_that_is_set_back_holds_up_no_correction() -> None:
    dispute = DriftRecord()
    for _ in range(AT_ONCE):
        dispute.record_correction("flags was changed", NOW)
    assert dispute.pause(NOW) > 0
    assert dispute.pause(NOW - timedelta(days=100)) == 0
    assert not dispute.open(NOW - timedelta(days=100))
