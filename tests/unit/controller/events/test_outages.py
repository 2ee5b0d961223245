"""An outage of what is watched, one of the provider, and kills in between; and tenants."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from controller.api.flagprovider import FlagProviderStatus
from controller.api.meta import ObjectKey, Resource
from controller.events.alert_reconciler import FlagAlertReconciler
from controller.events.deliverer import Again, Dead, verdict
from controller.events.senders import PostResult
from controller.runtime.setbacks import Waiting
from tests.worlds.events import NOW, Desk, alert, event, failure_event, message, status

PAGER = ObjectKey("FlagProvider", "other", "pager")


def sent_messages(desk: Desk, *, recorded: bool = True) -> list[tuple[str, str]]:
    """(reason, key) of what a provider that is up is sent; `recorded`: no kill comes before it is written."""
    desk.box.mark_stored(desk.box.pending)
    found = [(each.reason, each.key) for each in desk.box.sendable(desk.now)]
    for _, key in found if recorded else ():
        desk.box.record_delivery(key, str(desk.now))
    return found


def test_ten_minutes_of_errors_with_a_provider_down_and_two_kills_are_one_alert_and_one_recovery() -> None:
    desk = Desk(alert())
    arrived: list[tuple[str, str]] = []
    for second in range(600):
        desk.now += timedelta(seconds=1)
        desk.accept(failure_event(message=f"request {second:x} failed at {desk.now}"))
        desk.learn("flags", status("BuildFailed"))
        if second >= 300:
            arrived += sent_messages(desk, recorded=second > 400)
        if second in {150, 400}:
            desk = desk.restart()
            desk.compare()
    desk.learn("flags", status())
    desk.accept(event("Recovered"))
    arrived += sent_messages(desk)
    assert list(dict.fromkeys(reason for reason, _ in arrived)) == ["BuildFailed", "Recovered"]
    # What was sent again because nobody had written that it arrived has the same key.
    assert len({key for _, key in arrived}) == 2
    assert [reason for reason, _ in arrived].count("Recovered") == 1
    assert desk.box.dead == 0


def test_an_hour_without_the_provider_gives_nothing_up() -> None:
    now, tries, waiting = NOW, 0, message()
    while now < NOW + timedelta(hours=1):
        tries += 1
        again = verdict(waiting, PostResult(0, "connection refused"), tries, 0.5, now, "generic")
        assert isinstance(again, Again)
        now += timedelta(seconds=again.delay)
    assert 12 <= tries <= 40
    assert now < NOW + timedelta(hours=1, minutes=6)
    assert not isinstance(verdict(waiting, PostResult(204, ""), tries, 0.5, now, "generic"), Again | Dead)


async def test_a_provider_of_another_namespace_is_not_found_and_sent_nothing() -> None:
    pager = Resource(PAGER, "pager", 1, "1", spec={"type": "generic"})
    given = alert(providerRef={"name": "pager"})
    desk = Desk(given, pager)
    result = await FlagAlertReconciler(desk.objects, desk.outbox).reconcile(given, NOW)
    assert isinstance(result.outcome, Waiting)
    assert "FlagProvider pager not found" in result.outcome.message
    box = desk.outbox.open(PAGER, FlagProviderStatus())
    assert desk.accept(failure_event()) == []
    assert box.pending == {}
    assert desk.woken == []


def test_an_event_of_another_namespace_reaches_no_provider_here() -> None:
    elsewhere = replace(failure_event(), object=ObjectKey("FlagSet", "other", "flags"))
    desk = Desk(alert())
    assert desk.accept(elsewhere) == []
    assert desk.accept(failure_event()) == ["BuildFailed"]
