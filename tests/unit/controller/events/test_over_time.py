"""Failures that must last before they are reported, reports that repeat, and messages that become one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagalert import FlagAlertSpec
from controller.api.flagprovider import FlagProviderStatus
from controller.api.meta import ObjectKey
from controller.events.alert_messages import with_waiting_time
from controller.events.provider_outbox import ProviderOutbox
from tests.worlds.events import CHAT, NOW, Desk, alert, event, failure_event, message, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.flagprovider import Message


def failing_status(reason: str = "BuildFailed") -> dict[str, Any]:
    """A status that fails from now on."""
    found = status(reason)
    found["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    return found


def test_failure_is_reported_after_for() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    assert desk.accept(failure_event()) == []
    desk.learn("flags", failing_status())
    assert desk.box.status().failing == {"all/FlagSet/flags": "2026-01-02T03:09:05Z"}
    assert desk.box.seconds_to_next(NOW) == 300
    assert desk.later(minutes=4) == []
    assert desk.later(minutes=1) == ["BuildFailed"]
    assert desk.box.status().failing is None
    assert desk.later(hours=9) == ["BuildFailed"]
    assert desk.accept(event("Recovered")) == ["BuildFailed", "Recovered"]


def test_failure_shorter_than_for_is_not_reported() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.accept(event("Recovered")) == []
    desk.learn("flags", status())
    assert desk.later(minutes=10) == []
    assert desk.box.seconds_to_next(desk.now) is None


def test_other_messages_do_not_end_for() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.accept(event("DriftCorrected", warning=True)) == ["DriftCorrected"]
    assert desk.later(minutes=5) == ["DriftCorrected", "BuildFailed"]


def test_for_continues_over_a_restart() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    again = desk.restart()
    assert again.compare() == []
    assert again.later(minutes=4) == []
    assert again.later(minutes=2) == ["BuildFailed"]
    third = again.restart()
    third.learn("flags", status())
    assert third.compare() == ["BuildFailed", "Recovered"]


def test_a_failure_that_goes_on_is_reported_again_with_a_key_that_a_kill_does_not_change() -> None:
    desk = Desk(alert(repeatInterval="1h"))
    assert desk.accept(failure_event()) == ["BuildFailed"]
    desk.learn("flags", failing_status())
    assert desk.later(minutes=59) == ["BuildFailed"]
    killed = desk.restart()
    killed.compare()
    assert desk.later(minutes=1) == killed.later(minutes=1) == ["BuildFailed"] * 2
    assert list(desk.box.pending) == list(killed.box.pending)
    assert {each.state for each in desk.box.pending.values()} == {"failing"}
    assert desk.later(minutes=61) == ["BuildFailed"] * 3
    desk.accept(event("Recovered"))
    desk.learn("flags", status())
    assert desk.later(hours=3) == [*["BuildFailed"] * 3, "Recovered"]


def test_without_a_repeat_interval_a_failure_is_reported_once() -> None:
    desk = Desk(alert())
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.later(hours=20) == ["BuildFailed"]
    assert desk.box.seconds_to_next(desk.now) is None


def test_messages_within_group_wait_are_joined() -> None:
    desk = Desk(alert(groupWait="30s", groupBy=["reason"]))
    several = [event("Applied", f"change {number}", name=f"set-{number}") for number in range(3)]
    assert desk.accept(*several, event("DriftCorrected", warning=True)) == ["Applied", "DriftCorrected"]
    assert desk.accept(*several) == ["Applied", "DriftCorrected"]
    grouped = next(iter(desk.box.pending.values()))
    assert grouped.message.split("\n") == [f"FlagSet/set-{number}: change {number}" for number in range(3)]
    assert len(grouped.others) == 2
    desk.box.mark_stored(desk.box.pending)
    assert list(desk.box.sendable(NOW)) == []
    assert desk.box.seconds_to_next(NOW) == 30
    desk.later(seconds=30)
    assert [each.reason for each in desk.box.sendable(desk.now)] == ["Applied", "DriftCorrected"]


def test_a_grouped_message_that_arrived_is_not_sent_again_after_a_kill() -> None:
    desk = Desk(alert(groupWait="30s"))
    both = event("Applied", "one"), event("Applied", "two")
    desk.accept(*both)
    (key,) = desk.box.pending
    assert list(desk.restart().box.pending.values()) == list(desk.box.pending.values())
    desk.box.record_delivery(key, "2026-01-02T03:04:35Z")
    assert desk.restart().accept(*both) == []


def test_message_after_group_wait_is_separate() -> None:
    desk = Desk(alert(groupWait="30s"))
    desk.accept(event("Applied", "one"))
    late = replace(event("Applied", "two"), time=NOW.replace(minute=5))
    assert desk.accept(late) == ["Applied", "Applied"]


def test_no_message_overtakes_another_of_its_object() -> None:
    desk = Desk(alert(groupWait="30s", groupBy=["reason"]))
    desk.accept(event("Applied", "one"), failure_event(), event("Applied", "two"))
    assert [each.message for each in desk.box.pending.values()] == ["one", "words", "two"]


def test_no_message_overtakes_another_of_its_object_that_became_one_with_an_earlier() -> None:
    desk = Desk(alert(groupWait="30s"))
    steps = [("c", False), ("a", False), ("c", True), ("a", True), ("a", False)]
    for number, (name, works) in enumerate(steps):
        words = f"{name} {'works' if works else 'fails'}"
        found = event("Recovered", words, name=name) if works else None
        found = found or replace(failure_event(message=words), object=ObjectKey("FlagSet", "shop", name))
        desk.accept(replace(found, key=f"{number}" * 64))
        desk = desk.restart()
    texts = [
        [line.partition(": ")[2] or line for line in each.message.split("\n")]
        for each in desk.box.pending.values()
    ]
    assert texts == [["c fails", "a fails"], ["c works", "a works"], ["a fails"]]


@pytest.mark.parametrize(("type_", "count"), [("slack", 1), ("pagerduty", 2), ("opsgenie", 2)])
def test_a_service_that_groups_incidents_itself_gets_a_message_for_each_object(
    type_: str, count: int
) -> None:
    desk = Desk(alert(groupWait="30s"))
    desk.objects.learn(replace(desk.provider, spec={"type": type_}, resource_version="9"))
    desk.box = desk.outbox.open(CHAT, FlagProviderStatus())
    one, other = (
        failure_event(),
        replace(failure_event(), object=ObjectKey("FlagSet", "shop", "others"), key="f" * 64),
    )
    desk.accept(one, other)
    assert len(desk.box.pending) == count


def test_a_group_of_many_names_some_and_counts_the_rest() -> None:
    spec = FlagAlertSpec.model_validate({**alert().spec, "groupWait": "1m"})
    box = ProviderOutbox()
    for number in range(70):
        box.push(with_waiting_time(message(f"{number:064}"[::-1], message=f"m{number}"), spec, "generic"))
    grouped: Message = next(iter(box.pending.values()))
    assert len(box.pending) == 1
    lines = grouped.message.split("\n")
    assert (len(lines), lines[-1]) == (20, "… and 51 more")


def test_group_wait_and_repeat_interval_are_bounded() -> None:
    spec = {**alert().spec, "groupWait": "9h", "repeatInterval": "1s"}
    found = FlagAlertSpec.model_validate(spec)
    assert (found.group_wait, found.repeat_interval) == (3_600, 60)


def test_deleted_object_is_not_rechecked() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    desk.objects.forget(thing("FlagSet", "flags").key)
    assert desk.later(minutes=6) == []
    assert desk.box.status().failing is None


# -- a clock that is set back --------------------------------------------------------------------------------


def test_a_failure_that_lasts_is_reported_though_the_clock_was_set_back() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.later(minutes=4) == []
    assert desk.later(hours=-9) == ["BuildFailed"]


def test_a_clock_that_is_set_back_a_little_makes_a_failure_last_no_longer_than_thrice() -> None:
    desk = Desk(alert(**{"for": "5m"}))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.later(minutes=-4) == []
    left = desk.box.seconds_to_next(desk.now)
    assert left == 540
    assert desk.later(seconds=left) == ["BuildFailed"]


def test_a_failure_is_reported_by_a_leader_whose_clock_was_set_back() -> None:
    desk = Desk(alert())
    desk.learn("flags", failing_status())
    desk.now -= timedelta(hours=9)
    assert desk.compare() == ["BuildFailed"]


def test_a_failure_is_reported_again_though_the_clock_was_set_back() -> None:
    desk = Desk(alert(repeatInterval="1h"))
    desk.accept(failure_event())
    desk.learn("flags", failing_status())
    assert desk.later(hours=-9) == ["BuildFailed"] * 2
    assert desk.later(minutes=59) == ["BuildFailed"] * 2
    assert desk.later(minutes=1) == ["BuildFailed"] * 3


def test_a_group_is_sent_though_the_clock_was_set_back() -> None:
    desk = Desk(alert(groupWait="30s"))
    desk.accept(event("Applied"))
    desk.box.mark_stored(desk.box.pending)
    assert list(desk.box.sendable(NOW)) == []
    earlier = NOW - timedelta(hours=9)
    assert [each.reason for each in desk.box.sendable(earlier)] == ["Applied"]
    assert desk.box.seconds_to_next(earlier) is None
