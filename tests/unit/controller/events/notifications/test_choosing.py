"""Which messages an alert wants, by what they are about."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.alert import FlagAlertSpec
from controller.api.objects.fields import InvalidSpecError, read
from controller.events.notifications.alert_filter import Fact, chooses, flag_set_id
from tests.unit.controller.events.notifications.things import alert, message, thing

FLAGS = ("banner-text", "checkout-v2")
SUBJECT = thing("FlagSet", "checkout", {"flagSetId": "shop/checkout-production"}, labels={"team": "checkout"})


def chosen(spec: dict[str, Any], flags: tuple[str, ...] = FLAGS, subject: Any = SUBJECT) -> bool:
    content = message(
        reason="Applied",
        name="checkout",
        metadata={"flagstaff.dev/author": "Ada", "flagstaff.dev/revision": "main@sha1:1"},
    )
    return chooses(read(FlagAlertSpec, alert(**spec).spec), Fact(content, subject, flags))


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"flags": ["checkout-*"]}, True),
        ({"flags": ["search-*", "banner-text"]}, True),
        ({"flags": ["checkout"]}, False),
        ({"flagSets": ["shop/*-production"]}, True),
        ({"flagSets": ["shop/*-staging"]}, False),
    ],
)
def test_an_alert_chooses_by_flags_and_flag_sets(spec: dict[str, Any], want: bool) -> None:
    assert chosen(spec) is want


def test_what_names_no_flags_or_has_no_flag_set_is_not_asked_for_them() -> None:
    assert chosen({"flags": ["nothing"]}, flags=())
    assert chosen({"flagSets": ["nothing"]}, subject=thing("FlagSource", "flags"))
    assert chosen({"flagSets": ["nothing"]}, subject=None)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"inclusion": 'event.kind == "FlagSet"'},
            r"spec\.inclusion: conditions in CEL were removed; use event",
        ),
        ({"exclusion": "true"}, r"spec\.exclusion: conditions in CEL were removed; use eventSources"),
        ({"providerRef": None}, "providerRef or providerRefs must name a FlagProvider"),
    ],
)
def test_an_invalid_alert_is_refused_with_the_field(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        read(FlagAlertSpec, alert(**spec).spec)


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        (thing("FlagSet", "flags"), "shop/flags"),
        (thing("FlagSet", "flags", {"flagSetId": "a"}, status={"flagSetId": "b"}), "b"),
        (thing("FeatureFlag", "flags", {"flagSpec": {"metadata": {"flagSetId": "c"}}}), "c"),
        (thing("FeatureFlag", "flags", {"flagSpec": {"metadata": []}}), ""),
        (thing("FeatureFlagConfiguration", "flags", {"flagSpec": "{}"}), ""),
        (thing("FlagSource", "flags", {"flagSetId": "a"}), ""),
    ],
)
def test_the_flag_set_of_an_object(subject: Any, want: str) -> None:
    assert flag_set_id(subject) == want
