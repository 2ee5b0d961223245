"""Which alerts an Event concerns, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.alert import FlagAlertSpec
from controller.api.objects.fields import InvalidSpecError, read
from controller.api.objects.meta import ObjectKey
from controller.events.notifications.alert_filter import Alert, wants
from controller.events.notifications.alert_selection import concerns
from controller.runtime.objects.cache import Cache
from tests.unit.controller.events.notifications.things import alert

KEY = ObjectKey("FlagSet", "shop", "flags")
LABELS = {"team": "checkout", "tier": "1"}


@pytest.mark.parametrize(
    ("source", "found"),
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
def test_an_alert_is_about_objects_by_kind_name_and_labels(source: dict[str, Any], found: bool) -> None:
    given = alert(eventSources=[source])
    assert concerns(Cache(), Alert(given, read(FlagAlertSpec, given.spec)), KEY, LABELS) is found


@pytest.mark.parametrize(
    ("spec", "severity", "found"),
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
    ],
)
def test_an_alert_wants_messages_by_severity_and_expression(
    spec: dict[str, Any], severity: str, found: bool
) -> None:
    assert wants(read(FlagAlertSpec, alert(**spec).spec), "main@sha1:1 by Ada", severity) is found


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"inclusionList": ["a", "("]}, r"spec\.inclusionList\.1: not an RE2 expression: missing \)"),
        ({"exclusionList": [r"(a)\1"]}, r"spec\.exclusionList\.0: not an RE2 expression"),
        ({"inclusionList": ["(a{1000}){1000}"]}, r"spec\.inclusionList\.0: not an RE2 expression"),
        ({"eventSources": []}, r"spec\.eventSources"),
        ({"providerRef": "chat"}, r"spec\.providerRef"),
    ],
)
def test_what_cannot_be_used_is_named(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        read(FlagAlertSpec, alert(**spec).spec)


def test_no_expression_takes_long() -> None:
    spec = read(FlagAlertSpec, alert(exclusionList=["(a*)*b"]).spec)
    assert wants(spec, "a" * 2_000, "error")
