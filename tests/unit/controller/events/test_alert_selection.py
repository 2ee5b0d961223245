"""Which alerts a namespace uses, which objects each selects, and which messages it wants."""

from __future__ import annotations

import time
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.fields import InvalidSpecError, read
from controller.api.flagalert import FlagAlertSpec, glob_list
from controller.api.meta import ObjectKey, Resource
from controller.delivery.object_bounds import ALERTS
from controller.events.alert_reconciler import FlagAlertReconciler
from controller.events.alert_selection import Alert, AlertSelection, Facts, flag_set_id, wants
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Stalled
from tests.worlds.events import NOW, Desk, alert, event, failure_event, message
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.runtime.event import Event

KEY = ObjectKey("FlagSet", "shop", "flags")
LABELS = {"team": "checkout", "tier": "1"}
FLAGS = ("banner-text", "checkout-v2")
SUBJECT = thing("FlagSet", "checkout", {"flagSetId": "shop/checkout-production"})


@pytest.mark.parametrize(
    ("source", "selected"),
    [
        ({"kind": "FlagSet", "name": "*"}, True),
        ({"kind": "FlagSet", "name": "flags"}, True),
        ({"kind": "FlagSet", "name": "flag"}, False),
        ({"kind": "FlagSource", "name": "*"}, False),
        ({"kind": "FlagSet", "name": "*", "matchLabels": {"team": "checkout"}}, True),
        ({"kind": "FlagSet", "name": "*", "matchLabels": {"team": "search"}}, False),
        ({"kind": "FlagSet", "name": "*", "matchLabels": {"team": "checkout", "other": ""}}, False),
        ({"kind": "FlagSet", "name": "flags", "matchLabels": {"tier": "2"}}, False),
    ],
)
def test_alert_selects_objects_by_kind_name_and_labels(source: dict[str, Any], selected: bool) -> None:
    resource = alert(eventSources=[source])
    found = Alert(resource, read(FlagAlertSpec, resource.spec))
    assert AlertSelection(Cache()).concerns(found, KEY, LABELS) is selected


@pytest.mark.parametrize(
    ("spec", "severity", "wanted"),
    [
        ({}, "info", True),
        ({"eventSeverity": "error"}, "info", False),
        ({"eventSeverity": "error"}, "error", True),
        ({"eventSeverity": "error"}, "warning", False),
        ({"eventSeverity": "warning"}, "warning", True),
        ({"inclusionList": ["^main@.* by Ada"]}, "info", True),
        ({"inclusionList": ["Bob", "Ada"]}, "info", True),
        ({"inclusionList": ["Bob"]}, "error", False),
        ({"exclusionList": ["(?i)ADA"]}, "error", False),
        ({"inclusionList": ["Ada"], "exclusionList": ["main"]}, "info", False),
        ({"flags": ["checkout-*"]}, "info", True),
        ({"flags": ["search-*", "banner-text"]}, "info", True),
        ({"flags": ["checkout"]}, "info", False),
        ({"flags": ["banner-tex[!t]"]}, "info", False),
        ({"flagSets": ["shop/*-production"]}, "info", True),
        ({"flagSets": ["shop/*-staging"]}, "info", False),
    ],
)
def test_alert_wants_messages_by_severity_words_flags_and_flag_set(
    spec: dict[str, Any], severity: Any, wanted: bool
) -> None:
    facts = Facts(message(message="main@sha1:1 by Ada", severity=severity), SUBJECT, FLAGS)
    assert wants(read(FlagAlertSpec, alert(**spec).spec), facts) is wanted


@pytest.mark.parametrize("facts", [Facts(message(), SUBJECT), Facts(message(), None, FLAGS)])
def test_alert_wants_messages_without_flags_or_without_flag_set(facts: Facts) -> None:
    spec: dict[str, Any] = {"flagSets" if facts.flags else "flags": ["nothing"]}
    assert wants(read(FlagAlertSpec, alert(**spec).spec), facts)


@given(st.text("ab/*?[!]-.", min_size=1, max_size=12), st.text("ab/-.[]!", max_size=12))
def test_glob_matches_what_fnmatch_matches(glob: str, name: str) -> None:
    try:
        read(FlagAlertSpec, alert(flags=[glob]).spec)
    except InvalidSpecError:
        return
    assert (glob_list((glob,)).search(name) is not None) is fnmatchcase(name, glob)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"inclusionList": ["a", "("]}, r"spec\.inclusionList\.1: not an RE2 expression: missing \)"),
        ({"exclusionList": [r"(a)\1"]}, r"spec\.exclusionList\.0: not an RE2 expression"),
        ({"inclusionList": ["(a{1000}){1000}"]}, r"spec\.inclusionList\.0: not an RE2 expression"),
        ({"eventSources": []}, r"spec\.eventSources"),
        ({"providerRef": "chat"}, r"spec\.providerRef"),
        ({"providerRef": None}, "providerRef or providerRefs must name a FlagProvider"),
    ],
)
def test_invalid_alert_is_refused_with_the_field(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        read(FlagAlertSpec, alert(**spec).spec)


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        (thing("FlagSet", "flags"), "shop/flags"),
        (thing("FlagSet", "flags", {"flagSetId": "a"}, status={"flagSetId": "b"}), "b"),
        (thing("FeatureFlag", "flags", {"flagSpec": {"metadata": {"flagSetId": "c"}}}), "c"),
        (thing("FeatureFlag", "flags", {"flagSpec": {"metadata": []}}), ""),
        (thing("FeatureFlagConfiguration", "flags", {"flagSpec": "{}"}), ""),
        (thing("FlagSource", "flags", {"flagSetId": "a"}), ""),
    ],
)
def test_flag_set_id_of_an_object(subject: Resource, wanted: str) -> None:
    assert flag_set_id(subject) == wanted


# -- hostile tenants -----------------------------------------------------------------------------------------

_LARGE = [f"(?i){'x' * 40}{number}(.*a){{3}}" for number in range(32)]


def large(name: str, namespace: str = "shop") -> Resource:
    """An alert that selects namespaces, with as much to match as a spec may have."""
    labels = {f"label-{number}": "x" * 63 for number in range(32)}
    source = {"kind": "FlagSet", "name": "*", "matchLabels": labels, "namespaceSelector": {}}
    resource = alert(
        name, eventSources=[{**source, "matchLabels": {}}, *[source] * 63],
        inclusionList=_LARGE, exclusionList=_LARGE, flags=[f"{'*a' * 20}{number}" for number in range(32)],
    )  # fmt: skip
    return replace(resource, key=ObjectKey("FlagAlert", namespace, name), uid=f"{namespace}/{name}")


def seconds_of(desk: Desk, given: Event) -> float:
    """Seconds that the event loop stands still for one Event, at best of three."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        desk.accept(given)
        times.append(time.perf_counter() - began)
    return min(times)


def test_alerts_of_namespaces_without_a_grant_cost_an_event_nothing() -> None:
    quiet = Desk(alert())
    busy = Desk(alert(), *(large(f"a{number}", "elsewhere") for number in range(300)))
    assert seconds_of(busy, event("Applied")) < seconds_of(quiet, event("Applied")) + 0.005
    assert busy.accept(failure_event()) == ["Applied", "BuildFailed"]


def test_many_large_alerts_of_one_namespace_hold_the_loop_for_less_than_250_ms() -> None:
    desk = Desk()
    began, longest = time.perf_counter(), 0.0
    for number in range(150):
        desk.objects.learn(large(f"a{number:03}"))
        longest, began = max(longest, time.perf_counter() - began), time.perf_counter()
    assert longest < 0.25
    noisy = replace(event("Applied", "ab" * 1_000), flags=tuple(f"{'ab' * 30}{n}" for n in range(100)))
    assert seconds_of(desk, noisy) < 0.25


async def test_of_many_alerts_the_oldest_are_used_whatever_their_names() -> None:
    newest = replace(alert("a"), created="2026-01-02T00:00:00Z")
    older = (replace(alert(f"b{number:03}"), created="2026-01-01T00:00:00Z") for number in range(ALERTS.most))
    desk = Desk(newest, *older)
    assert desk.outbox.alerts.exceeds_limits(newest)


async def test_alert_beyond_the_limit_is_stalled_until_another_is_deleted() -> None:
    desk = Desk(*(alert(f"a{number:03}") for number in range(ALERTS.most + 1)))
    last = alert(f"a{ALERTS.most:03}")
    reconciler = FlagAlertReconciler(desk.objects, desk.outbox)
    outcome = (await reconciler.reconcile(last, NOW)).outcome
    assert isinstance(outcome, Stalled)
    assert outcome.reason == "TooManyAlerts"
    assert len(desk.accept(event("Applied"))) == ALERTS.most
    desk.objects.forget(alert("a000").key)
    assert (last.key, 0.0) in desk.woken
    assert (await reconciler.reconcile(last, NOW)).kind == "success"


def test_objects_of_another_kind_than_may_be_granted_are_not_selected() -> None:
    source = {"group": "flagstaff.dev", "kind": "FlagAlert", "namespace": "shop"}
    to = {"group": "flagstaff.dev", "kind": "EvaluatorUpgrade"}
    grant = Resource(ObjectKey("FlagGrant", "other", "g"), "g", 1, "1", spec={"from": [source], "to": [to]})
    namespace = Resource(ObjectKey("Namespace", "", "other"), "n", 0, "1")
    sources = [{"kind": "EvaluatorUpgrade", "name": "*", "namespaceSelector": {}}]
    desk = Desk(alert(eventSources=sources), grant, namespace)
    there = ObjectKey("EvaluatorUpgrade", "other", "flags")
    assert desk.accept(replace(failure_event(), object=there)) == ["BuildFailed"]
