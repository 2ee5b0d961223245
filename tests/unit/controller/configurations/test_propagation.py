"""What a status says of who serves a flag set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagreceipt import Laggard, UnsavedMember
from controller.api.status import Condition
from controller.configurations.propagation import ObjectPropagation, propagation, propagation_events
from controller.delivery.fleet_members import Count
from tests.statuses import stored_fields

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
WHAT = "main@sha1:new"
NOBODY = "NobodySubscribed"
NOTHING, A = ConfigurationStatus(), ConfigurationStatus(digest="a")


def laggard(name: str, **fields: Any) -> Laggard:
    return Laggard(name=name, serves="main@sha1:old", since="2026-01-01T12:00:00Z", **fields)


def propagation_of(
    count: Count, *, false_for: float | None = None, reason: str = "Progressing"
) -> ObjectPropagation:
    since = None if false_for is None else NOW - timedelta(seconds=false_for)
    before = ConfigurationStatus()
    if since is not None:
        stamp = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        before = ConfigurationStatus(conditions=(Condition("Propagated", "False", reason, since=stamp),))
    return propagation(count, WHAT, before, NOW)


def test_when_all_serve_it_it_is_propagated() -> None:
    found = propagation_of(Count(served=412, total=412, slowest=0.13))
    assert stored_fields(found.status) == {
        "served": "412/412", "total": 412, "servedWithin": "130ms",
    }  # fmt: skip
    assert (found.details[0].status, found.details[0].reason) == ("True", "Served")
    assert found.details[0].message == "412 of 412 evaluators serve main@sha1:new"


def test_while_some_are_to_follow_it_progresses_and_is_looked_at_when_patience_ends() -> None:
    found = propagation_of(Count(served=2, total=3, laggards=(laggard("shop/c"),)))
    assert (found.details[0].status, found.details[0].reason) == ("False", "Progressing")
    assert found.details[0].message == "2 of 3 evaluators serve main@sha1:new; 1 still updating"
    assert found.again == 15.0


@pytest.mark.parametrize(
    ("count", "false_for", "reason"),
    [
        pytest.param(Count(served=2, total=3), 4.0, "Progressing", id="soon"),
        pytest.param(Count(served=2, total=3), 16.0, "Lagging", id="after its patience"),
        pytest.param(Count(served=2, total=3, silent=1), 0.0, "Lagging", id="one is silent"),
        pytest.param(Count(served=2, total=3), -8_640_000.0, "Lagging", id="the clock was set back"),
    ],
)
def test_it_lags_once_an_evaluator_is_silent_or_does_not_follow(
    count: Count, false_for: float, reason: str
) -> None:
    assert propagation_of(count, false_for=false_for).details[0].reason == reason


def test_what_lags_does_not_progress_again_before_it_is_there() -> None:
    assert (
        propagation_of(Count(served=2, total=3), false_for=1.0, reason="Lagging").details[0].reason
        == "Lagging"
    )


def test_laggards_are_named_with_what_they_serve() -> None:
    laggards = (
        laggard("shop/a", silent=True),
        laggard("shop/b"),
        Laggard(name="shop/c"),
        laggard("shop/d", reason="OrderNotGranted"),
    )
    found = propagation_of(Count(served=1, total=9, silent=1, laggards=laggards))
    assert found.details[0].message == (
        "1 of 9 evaluators serve main@sha1:new; shop/a (silent, last served main@sha1:old), "
        "shop/b (serves main@sha1:old), shop/c (serves nothing), "
        "shop/d (keeps main@sha1:old: OrderNotGranted), 4 more"
    )
    assert stored_fields(found.status)["laggards"][0] == {
        "name": "shop/a", "serves": "main@sha1:old", "since": "2026-01-01T12:00:00Z", "silent": True,
    }  # fmt: skip


def test_no_more_laggards_are_named_than_a_person_reads() -> None:
    many = tuple(laggard(f"shop/p{number:02}", silent=True) for number in range(40))
    found = propagation_of(Count(served=0, total=400, silent=400, laggards=many))
    assert len(stored_fields(found.status)["laggards"]) == 20
    assert found.details[0].message.endswith("395 more")


def test_without_receipts_it_is_unknown() -> None:
    found = propagation_of(Count(delivered=7))
    assert (found.details[0].status, found.details[0].reason) == ("Unknown", NOBODY)
    assert stored_fields(found.status) == {"served": "0/0", "total": 0, "delivered": 7}


def events_of(before: tuple[str, str], after: tuple[str, str], reported: str = "") -> list[tuple[str, bool]]:
    """(reason, whether it ends something) of the Events from one (digest, reason) to the next."""
    texts = {
        "Served": "3 of 3 evaluators serve new",
        "Lagging": "2 of 3 evaluators serve new; shop/c (silent)",
    }
    known = ConfigurationStatus(digest=before[0], conditions=(Condition("Propagated", "", before[1]),))
    status = ConfigurationStatus(digest=after[0], served_within="130ms")
    details = [Condition("Propagated", "", after[1], texts.get(after[1], "none"))] if after[1] else []
    found = propagation_events(known, status, details, reported)
    return [(each.reason, each.ends) for each in found]


@pytest.mark.parametrize(
    ("before", "after", "reported", "found"),
    [
        pytest.param(("a", "Served"), ("b", "Served"), "a", [("Propagated", False)], id="at once"),
        pytest.param(("b", "Progressing"), ("b", "Served"), "a", [("Propagated", False)], id="in time"),
        pytest.param(("b", "Progressing"), ("b", "Served"), "b", [], id="another evaluator came"),
        pytest.param(("b", "Served"), ("b", "Served"), "b", [], id="nothing new"),
        pytest.param(("b", "Progressing"), ("b", "Lagging"), "a", [("Lagging", False)], id="one lags"),
        pytest.param(("b", "Lagging"), ("b", "Lagging"), "a", [], id="it still does not"),
        pytest.param(("b", "Lagging"), ("c", "Lagging"), "a", [("Lagging", False)], id="nor to the next"),
        pytest.param(("b", "Lagging"), ("b", "Served"), "b", [("Propagated", True)], id="it follows again"),
        pytest.param(("b", "Lagging"), ("b", NOBODY), "a", [(NOBODY, True)], id="all left"),
        pytest.param(("b", "Lagging"), ("b", ""), "a", [(NOBODY, True)], id="no proxy is left"),
        pytest.param(("b", "Served"), ("b", NOBODY), "b", [], id="nobody, and none lagged"),
    ],
)  # fmt: skip
def test_propagation_is_reported_once_for_each_digest_and_lagging_until_it_ends(
    before: tuple[str, str], after: tuple[str, str], reported: str, found: list[tuple[str, bool]]
) -> None:
    assert events_of(before, after, reported) == found


def test_the_event_gives_the_time_that_it_took_or_names_the_laggards() -> None:
    served = propagation_of(Count(served=412, total=412, slowest=0.13))
    (event,) = propagation_events(NOTHING, served.status | A, served.details, "")
    assert event.message == "412 of 412 evaluators serve main@sha1:new within 130ms"
    late = propagation_of(Count(served=2, total=3, laggards=(laggard("shop/c"),)), false_for=20.0)
    (event,) = propagation_events(NOTHING, late.status | A, late.details, "")
    assert (event.reason, event.warning) == ("Lagging", True)
    assert event.message == "2 of 3 evaluators serve main@sha1:new; shop/c (serves main@sha1:old)"


def unsaved_count(*names: str, more: int = 0) -> Count:
    members = tuple(UnsavedMember(name=name, message="No space left on device") for name in names)
    return Count(served=3, total=3, unsaved=len(names) + more, unsaved_members=members)


def test_pods_that_cannot_save_their_flags_are_named_in_a_condition_that_is_there_only_then() -> None:
    served, not_saved = propagation_of(unsaved_count("shop/a", "shop/b", more=7)).details
    assert (served.type, served.status) == ("Propagated", "True")
    assert (not_saved.type, not_saved.status, not_saved.reason) == ("LastGoodSaved", "False", "NotSaved")
    assert not_saved.message == (
        "a restart may bring back older flags in shop/a (No space left on device), "
        "shop/b (No space left on device), 7 more; make room on their state volumes"
    )
    assert [condition.type for condition in propagation_of(unsaved_count()).details] == ["Propagated"]


def test_that_pods_cannot_save_their_flags_is_reported_once_and_so_is_its_end() -> None:
    full, well = propagation_of(unsaved_count("shop/a")), propagation_of(unsaved_count())
    stood = A.model_copy(update={"conditions": full.details})
    events = [
        [(event.reason, event.warning, event.ends) for event in propagation_events(before, A, details, "a")]
        for before, details in ((A, full.details), (stood, full.details), (stood, well.details))
    ]
    assert events == [[("LastGoodNotSaved", True, False)], [], [("LastGoodNotSaved", False, True)]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1ms"), (0.038, "38ms"), (0.5, "500ms"), (1.23, "1.2s"), (12.4, "12s"), (250.0, "4m10s")],
)
def test_a_time_has_two_digits(seconds: float, text: str) -> None:
    assert propagation_of(Count(served=1, total=1, slowest=seconds)).status.served_within == text
