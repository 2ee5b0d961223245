"""A provider's box: bounded, and the same after its status was read again."""

from __future__ import annotations

from datetime import timedelta

from controller.api.flagprovider import FlagProviderStatus
from controller.events.provider_outbox import (
    MOST_CHARACTERS,
    MOST_PENDING,
    MOST_RECENT,
    MOST_REPORTED,
    ProviderOutbox,
    Reported,
)
from tests.statuses import stored_fields
from tests.worlds.events import NOW, message
from tests.worlds.objects import thing


def test_outbox_is_the_same_after_its_status_is_read() -> None:
    box = ProviderOutbox()
    box.push(message("one", state="failing", metadata={"a": "b"}))
    box.push(message("two"))
    box.record_delivery("one", "2026-01-02T03:04:05Z")
    box.drop("two", "refused")
    box.push(message("three"))
    box.remember("all/FlagSet/flags", Reported(("BuildFailed",), "sha256:1"))
    box.tested = "t"
    again = ProviderOutbox.of(box.status())
    assert again.status() == box.status()
    assert again.of_subject("all/FlagSet/flags") == Reported(("BuildFailed",), "sha256:1")
    assert (again.dead, again.last_dead) == (1, "Applied of FlagSet/flags: refused")


def test_a_message_that_cannot_be_read_is_left_out() -> None:
    kept = thing("FlagProvider", "chat", status={"pending": [{"key": "x"}, 7], "reported": {"a": 7}})
    assert ProviderOutbox.of(FlagProviderStatus.of(kept)).status().waiting == 0


def test_messages_beyond_the_limit_are_dropped_and_counted() -> None:
    box = ProviderOutbox()
    box.push(message("incident", state="failing"))
    for number in range(10_000):
        box.push(message(f"k{number}"))
    assert len(box.pending) == MOST_PENDING
    assert box.dead == 10_001 - MOST_PENDING
    assert list(box.pending)[:2] == ["incident", f"k{10_001 - MOST_PENDING}"]


def test_waiting_messages_are_bounded_by_characters() -> None:
    box = ProviderOutbox()
    for number in range(MOST_PENDING):
        box.push(message(f"k{number}", message="x" * 2_000, metadata={"m": "y" * 4_000}))
    characters = sum(len(each.model_dump_json()) for each in box.pending.values())
    assert MOST_CHARACTERS / 2 < characters < MOST_CHARACTERS
    assert "k299" in box.pending


def test_oldest_report_without_an_incident_is_evicted() -> None:
    box = ProviderOutbox()
    box.remember("all/FlagSet/bad", Reported(("BuildFailed",)))
    for number in range(MOST_REPORTED):
        box.remember(f"all/FlagSet/{number}", Reported((), "d"))
    assert len(box.reported) == MOST_REPORTED
    assert "all/FlagSet/bad" in box.reported
    assert "all/FlagSet/0" not in box.reported


def test_recently_delivered_message_is_not_queued_again() -> None:
    box = ProviderOutbox()
    for number in range(MOST_RECENT + 1):
        box.push(message(f"{number:064}"[::-1]))
        box.record_delivery(f"{number:064}"[::-1], "t")
    box.push(message(f"{MOST_RECENT:064}"[::-1]))
    assert box.pending == {}
    assert len(box.status().recent or ()) == MOST_RECENT


def test_last_failure_is_kept_after_success_with_its_first_time() -> None:
    box = ProviderOutbox()
    box.record_failure("all", "DeliveryFailed", "503 of\nthe server", NOW)
    box.record_failure("all", "DeliveryFailed", "503 of\nthe server", NOW + timedelta(minutes=5))
    first = {"time": "2026-01-02T03:04:05Z", "reason": "DeliveryFailed", "message": "503 of the server"}
    assert stored_fields(box.status())["lastFailure"] == first
    box.push(message("one"))
    box.record_delivery("one", "2026-01-02T04:04:05Z")
    assert stored_fields(box.status())["lastFailure"] == first
    assert stored_fields(ProviderOutbox.of(box.status()).status())["lastFailure"] == first
    box.record_failure("all", "DeliveryFailed", "503 of the server", NOW + timedelta(hours=2))
    assert stored_fields(box.status())["lastFailure"] == first | {"time": "2026-01-02T05:04:05Z"}
