from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.api.meta import REQUESTED_AT, ObjectKey, Resource
from controller.sources.freshness import SHARED, PollSchedule

NOW = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
SEEN = {"observedGeneration": 2}


def since(
    status: dict[str, Any] | None = None, *, turns: PollSchedule | None = None, **more: Any
) -> timedelta:
    """The greatest age of a listing that the source may use."""
    resource = Resource(KEY, "uid", 2, "1", status=SEEN if status is None else status, **more)
    freshness = (turns or PollSchedule()).freshness(resource, NOW)
    assert freshness.now == NOW
    assert freshness.scheduled is (freshness.since == NOW - SHARED)
    return NOW - freshness.since


def test_a_scheduled_reconcile_uses_the_listing_of_another_source() -> None:
    assert since() == SHARED


def test_a_changed_spec_wants_the_newest() -> None:
    assert since({"observedGeneration": 1}) == timedelta(0)


@pytest.mark.parametrize(
    ("handled", "age"), [("then", SHARED), ("before", timedelta(0)), (None, timedelta(0))]
)
def test_a_request_wants_the_newest_until_it_is_done(handled: str | None, age: timedelta) -> None:
    status = {**SEEN, **({"lastHandledReconcileAt": handled} if handled else {})}
    assert since(status, annotations={REQUESTED_AT: "then"}) == age


@pytest.mark.parametrize("status", [{}, {"observedGeneration": -1}])
@pytest.mark.parametrize(
    ("created", "age"),
    [
        ("2026-01-02T03:04:03Z", timedelta(seconds=1.6)),
        ("2026-01-02T03:04:05Z", timedelta(0)),
        ("2026-01-02T03:05:00Z", timedelta(0)),
        ("2026-01-02T03:04:03", timedelta(0)),
        ("", timedelta(0)),
    ],
    ids=["earlier", "in this second", "clocks differ", "no zone", "never"],
)
def test_a_new_source_uses_a_listing_made_since_its_creation(
    status: dict[str, Any], created: str, age: timedelta
) -> None:
    assert since(status, created=created) == age


@pytest.mark.parametrize(("seconds", "age"), [(1, timedelta(0)), (0, SHARED), (-1, SHARED)])
def test_a_source_woken_before_its_turn_wants_the_newest(seconds: int, age: timedelta) -> None:
    turns = PollSchedule()
    turns.set_due(KEY, NOW + timedelta(seconds=seconds))
    assert since(turns=turns) == age


def test_a_turn_is_over_once_it_was_taken_or_the_source_is_gone() -> None:
    turns = PollSchedule()
    turns.set_due(KEY, NOW + timedelta(seconds=9))
    assert [since(turns=turns), since(turns=turns)] == [timedelta(0), SHARED]
    turns.set_due(KEY, NOW + timedelta(seconds=9))
    turns.forget(KEY)
    assert since(turns=turns) == SHARED
