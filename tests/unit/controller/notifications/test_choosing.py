"""Which messages an alert wants, by what they are about."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.alert import FlagAlertSpec
from controller.api.fields import InvalidSpecError, read
from controller.notifications.reporting.choosing import Fact, chooses, flag_set_id
from tests.unit.controller.notifications.things import alert, message, thing

FLAGS = ("banner-text", "checkout-v2")
SUBJECT = thing("FlagSet", "checkout", {"flagSetId": "shop/checkout-production"}, labels={"team": "checkout"})


def chosen(
    spec: dict[str, Any], flags: tuple[str, ...] = FLAGS, subject: Any = SUBJECT
) -> tuple[bool, list[str]]:
    content = message(
        reason="Applied",
        name="checkout",
        metadata={"flagstaff.dev/author": "Ada", "flagstaff.dev/revision": "main@sha1:1"},
    )
    complaints: list[str] = []
    fact = Fact(content, subject, flags)
    return chooses(read(FlagAlertSpec, alert(**spec).spec), fact, complaints.append), complaints


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"flags": ["checkout-*"]}, True),
        ({"flags": ["search-*", "banner-text"]}, True),
        ({"flags": ["checkout"]}, False),
        ({"flagSets": ["shop/*-production"]}, True),
        ({"flagSets": ["shop/*-staging"]}, False),
        ({"inclusion": 'event.flags.exists(key, key.startsWith("checkout-"))'}, True),
        ({"inclusion": 'event.author == "Bob"'}, False),
        ({"exclusion": 'event.labels.team == "checkout" && event.severity == "info"'}, False),
        ({"exclusion": 'event.reason == "NewArtifact"'}, True),
        (
            {
                "inclusion": 'event.kind == "FlagSet"',
                "exclusion": 'event.flagSet == "shop/checkout-production"',
            },
            False,
        ),
        ({"inclusion": 'event.namespace + "/" + event.name == "shop/checkout"'}, True),
        ({"inclusion": 'event.revision.startsWith("main@")', "exclusionList": ["banner"]}, False),
    ],
)
def test_an_alert_chooses_by_flags_flag_sets_and_conditions(spec: dict[str, Any], want: bool) -> None:
    assert chosen(spec) == (want, [])


def test_what_names_no_flags_or_has_no_flag_set_is_not_asked_for_them() -> None:
    assert chosen({"flags": ["nothing"]}, flags=())[0]
    assert chosen({"flagSets": ["nothing"]}, subject=thing("FlagSource", "flags"))[0]
    assert chosen({"flagSets": ["nothing"]}, subject=None)[0]


def test_a_condition_that_cannot_be_evaluated_leaves_nothing_out_and_is_reported() -> None:
    spec = {"inclusion": 'event.labels.tier == "1"', "exclusion": 'true && event.labels.tier == "2"'}
    assert chosen(spec) == (
        True,
        [
            "spec.inclusion: 1:1: no such member in mapping: 'tier'",
            "spec.exclusion: 1:9: no such member in mapping: 'tier'",
        ],
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"inclusion": "event.reason =="}, r"spec\.inclusion: 1:\d+: this is not understood"),
        ({"exclusion": 'flag == "a"'}, r'spec\.exclusion: 1:1: "flag" is not known; there is event'),
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
