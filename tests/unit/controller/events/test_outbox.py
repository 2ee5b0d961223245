"""Which messages wait after Events, after restarts and after changes without an Event."""

from __future__ import annotations

import gc
import json
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagprovider import FlagProviderStatus
from controller.api.meta import ObjectKey
from controller.events.alert_messages import event_json
from controller.events.outbox import MOST_EARLY
from controller.events.provider_outbox import MOST_REPORTED
from controller.runtime.shards import Shard
from tests.statuses import stored_fields
from tests.worlds.events import CHAT, Desk, alert, event, failure_event, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.runtime.event import Event


def test_a_failure_with_changing_texts_is_reported_once_and_so_is_its_end() -> None:
    desk = Desk(alert())
    reported = desk.accept(*(failure_event(message=f"request {number} failed") for number in range(50)))
    assert reported == ["BuildFailed"]
    assert desk.accept(event("Recovered"), event("Recovered")) == ["BuildFailed", "Recovered"]
    assert [each.state for each in desk.box.pending.values()] == ["failing", "recovered"]


@pytest.mark.parametrize("given", [event("Applied", after=status(digest="new")), failure_event()])
def test_a_change_that_an_event_reported_is_not_reported_again_by_its_status(given: Event) -> None:
    desk = Desk(alert(), thing("Namespace", "shop"))
    desk.learn("flags", status(digest="old"))
    desk.compare()
    once = desk.accept(given)
    assert once == [given.reason]
    # A namespace with other labels may be one whose objects an alert is about, so all are compared.
    desk.objects.learn(thing("Namespace", "shop", resourceVersion="2"))
    assert desk.compare() == once
    assert desk.woken[-1] == (CHAT, 10.0)
    desk.now += timedelta(seconds=10)
    desk.learn("flags", status("BuildFailed") if given.reason == "BuildFailed" else status(digest="new"))
    assert desk.compare() == once


def test_each_provider_that_an_alert_names_has_the_message_wait() -> None:
    desk = Desk(alert(providerRefs=[{"name": "phone"}]), thing("FlagProvider", "phone", {"type": "generic"}))
    phone = desk.outbox.open(ObjectKey("FlagProvider", "shop", "phone"), FlagProviderStatus())
    assert desk.accept(failure_event()) == ["BuildFailed"]
    assert [each.reason for each in phone.pending.values()] == ["BuildFailed"]


def test_an_alert_for_flags_is_of_events_that_change_them() -> None:
    desk = Desk(alert(flags=["checkout-*"]))
    assert desk.accept(replace(event("Applied"), flags=("banner",))) == []
    assert desk.accept(replace(event("Applied", "more"), flags=("banner", "checkout-v2"))) == ["Applied"]


def test_each_reason_is_reported_once_of_an_incident_and_again_in_the_next() -> None:
    desk = Desk(alert())
    flapping = (failure_event("FetchFailed"), failure_event("BuildFailed")) * 3
    assert desk.accept(*flapping) == ["FetchFailed", "BuildFailed"]
    again = failure_event("FetchFailed", "another day")
    assert desk.accept(event("Recovered"), again)[2:] == ["Recovered", "FetchFailed"]


def test_an_alert_on_errors_alone_receives_their_end() -> None:
    desk = Desk(alert(eventSeverity="error", exclusionList=["again"]))
    assert desk.accept(event("Applied"), failure_event(), event("Recovered", "it works again")) == [
        "BuildFailed", "Recovered",
    ]  # fmt: skip


def test_a_warning_that_is_no_failure_is_no_error() -> None:
    events = (event("Applied"), event("DriftCorrected", warning=True), failure_event())
    assert Desk(alert()).accept(*events) == ["Applied", "DriftCorrected", "BuildFailed"]
    assert Desk(alert(eventSeverity="warning")).accept(*events) == ["DriftCorrected", "BuildFailed"]
    assert Desk(alert(eventSeverity="error")).accept(*events) == ["BuildFailed"]
    desk = Desk(alert(eventSeverity="warning"))
    desk.accept(*events)
    message = next(iter(desk.box.pending.values()))
    assert message.severity == "warning"
    # Flux's Events know no third severity.
    assert event_json(message, "shop", "controller-0")["severity"] == "error"


def test_an_alert_on_warnings_receives_their_end() -> None:
    began, ended = event("Lagging", warning=True), replace(event("Propagated"), ends=True)
    assert Desk(alert(eventSeverity="warning")).accept(began, ended) == ["Lagging", "Propagated"]
    assert Desk(alert(eventSeverity="error")).accept(began, ended) == []


def test_the_end_of_a_failure_that_was_not_reported_is_not_reported() -> None:
    assert Desk(alert()).accept(event("Recovered")) == []
    assert Desk(alert(exclusionList=["words"])).accept(failure_event(), event("Recovered")) == []


def test_a_warning_that_is_no_failure_of_the_object_is_reported_each_time() -> None:
    desk = Desk(alert())
    drift = [event("DriftCorrected", f"field {number}", warning=True) for number in range(3)]
    assert desk.accept(*drift) == ["DriftCorrected"] * 3


def test_the_same_event_waits_once_and_is_not_sent_again_after_a_kill() -> None:
    desk = Desk(alert())
    desk.accept(event("Applied"), event("Applied"))
    (key,) = desk.box.pending
    desk.box.record_delivery(key, "2026-01-02T03:04:05Z")
    assert desk.restart().accept(event("Applied")) == []


def test_what_waited_has_the_same_key_after_a_kill() -> None:
    desk = Desk(alert())
    desk.accept(failure_event())
    again = desk.restart()
    assert again.box.pending == desk.box.pending
    assert list(again.box.sendable()) == list(desk.box.pending.values())


def test_only_what_the_api_server_keeps_may_be_sent() -> None:
    desk = Desk(alert())
    sendable: list[ObjectKey] = []
    desk.outbox.sendable = sendable.append
    desk.accept(event("Applied"))
    assert list(desk.box.sendable()) == []
    kept = stored_fields(desk.box.status())
    desk.objects.learn(replace(desk.provider, status=kept, resource_version="2"))
    assert [each.reason for each in desk.box.sendable()] == ["Applied"]
    assert sendable == [CHAT]


def test_two_alerts_of_a_provider_send_with_keys_of_their_own() -> None:
    desk = Desk(alert("one"), alert("two"))
    desk.accept(event("Applied"))
    assert [each.alert for each in desk.box.pending.values()] == ["one", "two"]


def test_a_suspended_alert_or_one_of_another_object_sends_nothing() -> None:
    assert Desk(alert(suspend=True)).accept(event("Applied")) == []
    assert Desk(alert(about="other")).accept(event("Applied")) == []
    assert Desk(alert(kind="FlagSource")).accept(event("Applied")) == []
    desk = Desk(alert())
    desk.objects.learn(
        replace(desk.provider, spec={"type": "generic", "suspend": True}, resource_version="2")
    )
    assert desk.accept(event("Applied")) == []


def test_what_comes_before_the_box_was_read_is_in_it_afterwards() -> None:
    desk = Desk(alert())
    desk.outbox.begin()
    desk.outbox.accept(event("Applied"))
    assert desk.woken == [(CHAT, 0.0)]
    assert [each.reason for each in desk.outbox.open(CHAT, FlagProviderStatus()).pending.values()] == [
        "Applied"
    ]


def test_nothing_waits_where_another_replica_leads() -> None:
    desk = Desk(alert())
    desk.outbox.end()
    desk.outbox.accept(event("Applied"))
    assert desk.waiting_reasons() == []
    assert desk.woken == []


def test_whatever_goes_wrong_an_event_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(alert())

    def fail(key: ObjectKey, delay: float) -> None:
        raise RuntimeError(key, delay)

    desk.outbox.wake = fail
    desk.outbox.accept(event("Applied"))
    assert "an Event cannot be matched with alerts" in caplog.text


# -- changes without an Event --------------------------------------------------------------------------------


def flag_set(
    reason: str = "Succeeded", digest: str = "", version: str = "1", *, waits: bool = False
) -> object:
    return thing("FlagSet", "flags", status=status(reason, digest, waits=waits), resourceVersion=version)


def learn(desk: Desk, found: object) -> None:
    desk.objects.learn(found)  # type: ignore[arg-type]


def test_an_alert_that_is_made_later_reports_what_fails_and_then_its_end() -> None:
    desk = Desk(alert())
    learn(desk, flag_set("BuildFailed"))
    assert desk.compare() == ["BuildFailed"]
    assert desk.compare() == ["BuildFailed"]
    assert desk.accept(event("Recovered")) == ["BuildFailed", "Recovered"]


def test_a_failure_and_its_end_that_a_killed_leader_did_not_keep_are_reported_by_the_next() -> None:
    before = Desk(alert())
    learn(before, flag_set("BuildFailed"))
    desk = before.restart()
    assert desk.compare() == ["BuildFailed"]
    learn(desk, flag_set(version="2"))
    after = desk.restart()
    assert after.compare() == ["BuildFailed", "Recovered"]
    assert after.restart().compare() == ["BuildFailed", "Recovered"]


def test_what_fails_no_more_after_it_waited_has_recovered() -> None:
    desk = Desk(alert())
    learn(desk, flag_set("BuildFailed"))
    desk.accept(failure_event())
    learn(desk, flag_set("SourceNotReady", version="2", waits=True))
    assert desk.waiting_reasons() == ["BuildFailed"]
    learn(desk, flag_set(version="3"))
    assert desk.waiting_reasons() == ["BuildFailed", "Recovered"]


def test_an_object_that_is_deleted_ends_its_incident() -> None:
    desk = Desk(alert())
    learn(desk, flag_set("BuildFailed"))
    desk.accept(failure_event())
    desk.objects.forget(ObjectKey("FlagSet", "shop", "flags"))
    assert desk.waiting_reasons() == ["BuildFailed", "Deleted"]
    assert desk.box.reported == {}


def test_an_object_that_was_deleted_without_a_leader_ends_its_incident() -> None:
    before = Desk(alert())
    before.accept(failure_event())
    desk = before.restart()
    assert desk.compare() == ["BuildFailed", "Deleted"]


def test_content_that_nobody_reported_is_reported_by_the_next_leader() -> None:
    desk = Desk(alert())
    learn(desk, flag_set(digest="sha256:1"))
    assert desk.compare() == []
    learn(desk, flag_set(digest="sha256:2", version="2"))
    again = desk.restart()
    assert again.compare() == ["Succeeded"]
    (reported,) = again.box.pending.values()
    assert reported.metadata["flagstaff.dev/revision"] == "main@sha256:2"
    assert again.restart().compare() == ["Succeeded"]


def test_content_that_an_event_reported_is_not_reported_again() -> None:
    desk = Desk(alert())
    learn(desk, flag_set(digest="sha256:1"))
    desk.compare()
    desk.accept(event("Applied", after=status(digest="sha256:2")))
    learn(desk, flag_set(digest="sha256:2", version="2"))
    assert desk.restart().compare() == ["Applied"]


def test_content_that_an_alert_excludes_is_not_reported_later_either() -> None:
    desk = Desk(alert(exclusionList=["words", "so:"]))
    learn(desk, flag_set(digest="sha256:1"))
    desk.compare()
    desk.accept(event("Applied", after=status(digest="sha256:2")))
    learn(desk, flag_set(digest="sha256:2", version="2"))
    assert desk.restart().compare() == []


def test_the_reports_of_a_deleted_alert_are_forgotten() -> None:
    before = Desk(alert())
    before.accept(failure_event())
    before.objects.forget(ObjectKey("FlagAlert", "shop", "all"))
    desk = before.restart()
    desk.compare()
    assert desk.box.reported == {}


def test_more_than_fit_before_the_box_was_read_are_counted_as_dead() -> None:
    desk = Desk(alert())
    desk.outbox.begin()
    for number in range(MOST_EARLY + 7):
        desk.outbox.accept(event("Applied", f"revision {number}"))
    box = desk.outbox.open(CHAT, FlagProviderStatus())
    assert box.dead == MOST_EARLY + 7 - len(box.pending)
    assert box.last_dead == "7 Events: more Events came before the provider was read than may"


def burst(numbers: range) -> list[Event]:
    return [event("Applied", f"{number}: {'x' * 500}", name=f"set-{number}") for number in numbers]


def growth(accept: Callable[[], object]) -> int:
    """Bytes by which memory has grown after this."""
    tracemalloc.start()
    try:
        accept()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_of_a_burst_little_waits_and_the_rest_is_counted() -> None:
    desk = Desk(alert())
    desk.accept(*burst(range(9_000)))
    last = burst(range(9_000, 10_000))
    # All that waits is another by then.
    assert growth(lambda: desk.accept(*last)) < 1_500_000
    status = desk.box.status()
    assert status.waiting + status.dead == 10_000
    assert str(status.last_dead).endswith(": more messages waited than may")
    assert len(desk.box.reported) == MOST_REPORTED
    assert len(json.dumps(status.fields())) < 600_000


def test_of_a_burst_before_the_box_was_read_little_is_kept() -> None:
    desk = Desk(alert())
    desk.outbox.begin()
    desk.accept(*burst(range(1_000)))
    assert growth(lambda: desk.accept(*burst(range(1_000, 3_000)))) < 4_000_000


def test_failure_end_and_news_of_another_shard_s_object_are_told_by_its_status() -> None:
    """No Event of it comes to the default controller, which sends all alerts."""
    desk = Desk(alert(), shard=Shard.of("!shard", ()))
    learned = iter(range(2, 9))

    def learn(found: dict[str, Any], **labels: str) -> list[str]:
        version = str(next(learned))
        desk.objects.learn(thing("FlagSet", "flags", status=found, resourceVersion=version, labels=labels))
        return desk.waiting_reasons()

    desk.outbox.settled = True
    assert learn(status(digest="sha256:aaaa"), shard="a") == []
    assert learn(status("BuildFailed"), shard="a") == ["BuildFailed"]
    assert learn(status("BuildFailed"), shard="a") == ["BuildFailed"]
    assert learn(status(digest="sha256:aaaa"), shard="a") == ["BuildFailed", "Recovered"]
    assert len(learn(status(digest="sha256:bbbb"), shard="a")) == 3
    # Of its own objects it has the Events.
    assert len(learn(status(digest="sha256:cccc"))) == 3
