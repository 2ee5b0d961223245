"""Which alerts an Event concerns, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.notifications.matching import concerns, usable, wants
from tests.unit.controller.notifications.things import alert

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
    assert concerns(usable(alert(eventSources=[source])), KEY, LABELS) is found


@pytest.mark.parametrize(
    ("spec", "warning", "found"),
    [
        ({}, False, True),
        ({"eventSeverity": "error"}, False, False),
        ({"eventSeverity": "error"}, True, True),
        ({"inclusionList": ["^main@.* by Ada"]}, False, True),
        ({"inclusionList": ["Bob", "Ada"]}, False, True),
        ({"inclusionList": ["Bob"]}, True, False),
        ({"exclusionList": ["(?i)ADA"]}, True, False),
        ({"inclusionList": ["Ada"], "exclusionList": ["main"]}, False, False),
    ],
)
def test_an_alert_wants_messages_by_severity_and_expression(
    spec: dict[str, Any], warning: bool, found: bool
) -> None:
    assert wants(usable(alert(**spec)), "main@sha1:1 by Ada", warning=warning) is found


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
        usable(alert(**spec))


def test_no_expression_takes_long() -> None:
    spec = usable(alert(exclusionList=["(a*)*b"]))
    assert wants(spec, "a" * 2_000, warning=True)
