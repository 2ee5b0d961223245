"""Where rules use the key of a flag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.authoring.key_uses import key_uses
from evaluator.flags.layer import read_layer

OWN = {"var": "$flagd.flagKey"}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"if": [{"flag": ["cart", "on"]}, "a"]}, [(("if", 0, "flag", 0), True)]),
        ({"if": [{"==": [OWN, "cart"]}, "a"]}, [(("if", 0, "==", 1), False)]),
        (
            {"if": [{"in": [{"var": ["$flagd.flagKey"]}, ["x", "cart"]]}, "a"]},
            [(("if", 0, "in", 1, 1), False)],
        ),
        ({"if": [{"==": [{"var": "page"}, "cart"]}, "cart"]}, []),
        ({"flag": ["other", "cart"]}, []),
    ],
)
def test_keys_are_told_from_other_texts(rule: Any, found: list[Any]) -> None:
    document = {"flags": {"f": {"targeting": rule}, "gone": None}, "$evaluators": {"e": rule}}
    layer = read_layer([("a.json", json.dumps(document).encode())])
    start = ("flags", "f", "targeting")
    assert [(use.name, use.path, use.needs) for use in key_uses([layer], "cart")] == [
        *(("f", (*start, *path), needs) for path, needs in found),
        *(("e", ("$evaluators", "e", *path), needs) for path, needs in found),
    ]
