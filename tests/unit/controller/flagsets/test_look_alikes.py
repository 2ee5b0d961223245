"""Keys that look alike, as a reviewer cannot see them."""

from __future__ import annotations

import json

import pytest

from controller.flagsets.compose import look_alikes
from evaluator.flags.layer import read_layer
from evaluator.flags.problems import Severity

FLAG = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}


def warnings(*keys: str) -> list[tuple[int, str]]:
    """(line, message) of each warning; the keys stand on lines of their own, from 2."""
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(FLAG)}" for key in keys)
    layer = read_layer([("flags.json", f'{{"flags": {{\n{rows}\n}}}}'.encode())])
    found = look_alikes([layer], keys)
    assert {each.severity for each in found} <= {Severity.WARNING}
    assert {each.code for each in found} <= {"look-alike"}
    return [(each.line, each.message) for each in found]


def test_a_letter_of_another_script_is_named_with_both_keys_and_places() -> None:
    [(line, message)] = warnings("b\u0430nner", "other", "banner")
    assert line == 2
    assert message == (
        'the flag "b\u0430nner" looks like "banner" (flags.json:4:1) and is another one: it has U+0430 '
        "CYRILLIC SMALL LETTER A; rename one of them"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("check\u200bout", "checkout"),
        ("\uff43heckout", "checkout"),
        ("caf\u00e9", "cafe\u0301"),
        ("\u0406tem", "1tem"),
        ("mode\U000118e3", "modern"),
    ],
)
def test_what_looks_the_same_is_warned_of_once(one: str, other: str) -> None:
    assert len(warnings(one, other)) == 1


@pytest.mark.parametrize(
    "keys", [("stra\u00dfe", "strasse"), ("modern", "modem"), ("v1", "vl"), ("\u0431\u0430\u043d", "ban")]
)
def test_keys_that_differ_visibly_or_are_all_ascii_are_not_warned_of(keys: tuple[str, str]) -> None:
    assert warnings(*keys) == []


def test_each_of_many_look_alikes_names_the_same_key() -> None:
    found = warnings("banner", "b\u0430nner", "bann\u0435r")
    assert [line for line, _ in found] == [3, 4]
    assert all('looks like "banner"' in message for _, message in found)


def test_a_key_of_another_layer_is_compared_as_well() -> None:
    layers = [
        read_layer([(name, json.dumps({"flags": {key: FLAG}}).encode())])
        for name, key in (("base.json", "banner"), ("overlay.json", "b\u0430nner"))
    ]
    [found] = look_alikes(layers, ["banner", "b\u0430nner"])
    assert (found.file, "(base.json:1:12)" in found.message) == ("overlay.json", True)
