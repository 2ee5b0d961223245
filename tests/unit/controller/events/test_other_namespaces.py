"""Alerts about objects of other namespaces, which these let in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.events.alert_stage import FLAG_ALERTS, FLAG_PROVIDERS
from controller.runtime.cache import Change
from controller.runtime.watches import keys_to_wake
from tests.worlds.events import CHAT, Desk, alert, event, failure_event, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.runtime.event import Event

TEAM = {"team": "checkout"}
THERE = ObjectKey("FlagSet", "other", "flags")
FLAGS = {"group": "flagstaff.dev", "kind": "FlagSet"}


def namespace(name: str = "other", version: str = "1", **labels: str) -> Resource:
    return thing("Namespace", name, namespace="", resourceVersion=version, labels=labels or TEAM)


def grant(
    to: dict[str, Any] | None = None, from_namespace: str = "shop", kind: str = "FlagAlert"
) -> Resource:
    source = {"group": "flagstaff.dev", "kind": kind, "namespace": from_namespace}
    return thing("FlagGrant", "alerts", {"from": [source], "to": [to or FLAGS]}, namespace="other")


def alert_selecting(labels: Any = None, **spec: Any) -> Resource:
    selector = {"matchLabels": TEAM if labels is None else labels}
    sources = [{"kind": "FlagSet", "name": "*", "namespaceSelector": selector}]
    return alert(**{"eventSources": sources, **spec})


def there(event: Event) -> Event:
    """The same of a namespace that is not the alert's."""
    return replace(event, object=THERE)


def known(found: dict[str, Any], version: str = "1") -> Resource:
    """The same flag set, with a status."""
    return thing(THERE.kind, THERE.name, status=found, namespace=THERE.namespace, resourceVersion=version)


@pytest.mark.parametrize(
    ("objects", "reached"),
    [
        ((alert_selecting(), namespace(), grant()), True),
        ((alert_selecting({}), namespace(), grant()), True),
        ((alert_selecting(), namespace(), grant({**FLAGS, "name": "flags"})), True),
        ((alert_selecting(), namespace(), grant({**FLAGS, "name": "others"})), False),
        ((alert_selecting(), namespace(), grant({**FLAGS, "kind": "FlagSource"})), False),
        ((alert_selecting(), namespace(), grant(kind="FlagSet")), False),
        ((alert_selecting(), namespace(), grant(from_namespace="elsewhere")), False),
        ((alert_selecting(), namespace()), False),
        ((alert_selecting(), namespace(team="search"), grant()), False),
        ((alert_selecting(), grant()), False),
        ((alert(), namespace(), grant()), False),
    ],
)
def test_an_event_of_another_namespace_is_sent_where_it_is_selected_and_granted(
    objects: tuple[Resource, ...], reached: bool
) -> None:
    assert Desk(*objects).accept(there(failure_event())) == (["BuildFailed"] if reached else [])


def test_a_selector_that_leaves_out_the_alerts_own_namespace_leaves_out_its_objects() -> None:
    assert Desk(alert_selecting(), namespace("shop", team="search")).accept(failure_event()) == []
    assert Desk(alert_selecting(), namespace("shop")).accept(failure_event()) == ["BuildFailed"]


def test_what_is_sent_names_the_namespace_of_the_object_also_after_a_restart() -> None:
    desk = Desk(alert_selecting(template="${namespace}/${name}"), namespace(), grant())
    desk.accept(there(failure_event()))
    desk = desk.restart()
    (message,) = desk.box.pending.values()
    assert (message.namespace, message.message) == ("other", "other/flags")
    assert list(desk.box.reported) == ["all/FlagSet/other/flags"]


def test_objects_of_one_name_in_two_namespaces_are_two_incidents() -> None:
    desk = Desk(alert_selecting(), namespace("shop"), namespace(), grant())
    assert desk.accept(failure_event(), there(replace(failure_event(), key="f" * 64))) == ["BuildFailed"] * 2
    desk.learn("flags", status("BuildFailed"))
    desk.objects.learn(known(status("BuildFailed")))
    desk = desk.restart()
    assert desk.compare() == ["BuildFailed"] * 2
    assert desk.accept(there(event("Recovered"))) == ["BuildFailed", "BuildFailed", "Recovered"]
    assert [each.namespace for each in desk.box.pending.values()] == [None, "other", "other"]


def test_one_message_of_a_group_distinguishes_objects_of_one_name() -> None:
    desk = Desk(alert_selecting(groupWait="30s"), namespace("shop"), namespace(), grant())
    desk.accept(failure_event(), there(replace(failure_event(), key="f" * 64)))
    (message,) = desk.box.pending.values()
    assert message.message == "FlagSet/flags: words\nFlagSet/other/flags: words"
    assert message.objects == ("FlagSet/other/flags",)


def test_a_failure_is_reported_once_its_namespace_lets_the_alert_in_and_not_after_that_ends() -> None:
    desk = Desk(alert_selecting(), namespace(), known(status("BuildFailed")))
    assert desk.compare() == []
    desk.objects.learn(grant())
    assert desk.compare() == ["BuildFailed"]
    desk.objects.forget(grant().key)
    desk.objects.learn(known(status(), "2"))
    assert desk.accept(there(event("Recovered"))) == ["BuildFailed"]
    assert desk.compare() == ["BuildFailed"]
    assert desk.box.reported == {}


def test_a_namespace_that_loses_its_label_is_reported_no_more() -> None:
    desk = Desk(alert_selecting(**{"for": "5m"}), namespace(), grant())
    desk.accept(there(failure_event()))
    desk.objects.learn(known(status("BuildFailed")))
    desk.objects.learn(namespace(version="2", team="search"))
    assert desk.later(minutes=6) == []
    assert desk.box.status().failing is None


def test_reports_are_remembered_while_the_namespaces_are_not_known() -> None:
    desk = Desk(alert_selecting(), namespace(), grant(), known(status("BuildFailed")))
    desk.compare()
    again = Desk(alert_selecting(), grant(), known(status("BuildFailed")), kept=desk.box.status())
    again.compare()
    again.objects.learn(namespace())
    again.objects.learn(known(status(), "2"))
    assert again.compare() == ["BuildFailed", "Recovered"]


@pytest.mark.parametrize("changed", [grant(), namespace()])
def test_a_grant_and_a_namespace_wake_the_providers_of_alerts_that_they_let_in(changed: Resource) -> None:
    stages = (FLAG_PROVIDERS, FLAG_ALERTS)
    assert keys_to_wake(stages, Desk(alert_selecting(), grant()).objects, Change(None, changed)) == {CHAT}
    assert keys_to_wake(stages, Desk(alert(), grant()).objects, Change(None, changed)) == set()
    elsewhere = grant(from_namespace="elsewhere")
    assert keys_to_wake(stages, Desk(alert_selecting()).objects, Change(None, elsewhere)) == set()
