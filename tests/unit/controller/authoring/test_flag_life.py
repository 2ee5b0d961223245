"""Facts of a flag's life, each with its own limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.flag_life import (
    FactName,
    FlagUse,
    LifeLimits,
    expiry,
    facts_of,
    life_notes,
    life_of,
)
from controller.flagsets.constant_parts import constant_result
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge
from tests.worlds.flags import flag_set_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def facts(
    definition: dict[str, Any], use: FlagUse | None = None, limits: LifeLimits | None = None
) -> list[str]:

    whole = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        **definition,
    }
    flag_set = flag_set_of({"flags": {"a": whole}})
    flag = flag_set.flags["a"]
    constant = constant_result(flag.targeting, flag_set.evaluators)
    found = facts_of(flag, flag.metadata, constant, use or FlagUse(NOW, NOW), NOW, limits or LifeLimits())
    return [f"{fact.name}: {fact.words}" for fact in found]


SPLIT = {"fractional": [["on", 50], ["off", 50]]}


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (FlagUse(NOW - 89 * DAY, NOW), []),
        (FlagUse(NOW - 90 * DAY, NOW), ["old: 90 days old"]),
        (FlagUse(NOW, NOW - 29 * DAY), []),
        (FlagUse(NOW, NOW - 30 * DAY), ["unchanged: unchanged for 30 days"]),
        (FlagUse(NOW, NOW, requests=0.0), ["unrequested: not requested"]),
        (FlagUse(NOW, NOW, requests=0.5, references=1), []),
        (FlagUse(NOW, NOW, references=0), ["unreferenced: no code refers to it"]),
    ],
)
def test_each_fact_has_its_own_limit(use: FlagUse, told: list[str]) -> None:
    assert facts({"targeting": SPLIT}, use) == told


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({}, "everybody gets off"),
        ({"targeting": {"if": [True, "on", "off"]}}, "everybody gets on"),
        ({"targeting": {"if": [False, "on", None]}}, "everybody gets off"),
        ({"targeting": SPLIT, "state": "DISABLED"}, "disabled: everybody gets the code's default"),
        ({"defaultVariant": None}, "everybody gets the code's default"),
    ],
)
def test_a_flag_is_constant_once_it_has_been_left_alone(definition: dict[str, Any], words: str) -> None:
    assert facts(definition, FlagUse(NOW, NOW - 29 * DAY)) == []
    used = FlagUse(NOW, NOW - 30 * DAY)
    assert facts(definition, used, LifeLimits(unchanged=60 * DAY)) == [f"constant: {words}"]


@pytest.mark.parametrize("metadata", [{"permanent": True}, {"type": "ops"}, {"type": "permission"}])
def test_a_flag_that_is_meant_to_stay_is_never_old(metadata: dict[str, Any]) -> None:
    old = FlagUse(NOW - 999 * DAY, NOW - 999 * DAY, requests=0)
    assert facts({"metadata": metadata}, old) == ["unrequested: not requested"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-12-31T10:00:00+02:00", datetime(2026, 12, 31, 8, tzinfo=UTC)),
        ("2026-12-31T10:00:00", None), ("soon", None), (20261231, None), ("9999-12-31", None), (None, None),
    ],
)  # fmt: skip
def test_a_date_lasts_until_its_day_has_ended(text: object, moment: datetime | None) -> None:
    assert expiry(text) == moment


@pytest.mark.parametrize(("text", "told"), [("2026-11-28", True), ("2026-11-29", False), ("soon", False)])
def test_a_flag_past_its_date_says_so(text: str, told: bool) -> None:
    found = facts({"targeting": SPLIT, "metadata": {"expires": text}})
    assert found == ([f"expired: past its date, {text}"] if told else [])


def test_what_is_not_as_it_should_be_counts_as_absent() -> None:
    life = life_of({"owner": 5, "type": "beta", "permanent": "yes", "expires": "soon", "ticket": "SHOP-1"})
    assert life == life_of({"owner": "5", "ticket": "SHOP-1"})


@given(
    st.dictionaries(
        st.sampled_from(["owner", "type", "permanent", "expires", "ticket"]), st.text() | st.floats()
    )
)
def test_any_metadata_is_read(metadata: dict[str, Any]) -> None:
    life_of(metadata)


def test_lint_notes_say_where_and_what_to_do() -> None:
    base = b"""flags:
  a:
    state: ENABLED
    variants: {x: 1}
    defaultVariant: x
    metadata:
      expires: "2026-11-01"
      type: beta
      permanent: "yes"
"""
    layers = [read_layer([("base.yaml", base)])]
    notes = life_notes(layers, merge(layers).flag_set, NOW)
    assert [(note.line, note.code, note.message.partition(";")[0]) for note in notes] == [
        (7, "expired-flag", "the flag is past its date, 2026-11-01: remove it from the code, then here, or "
         "write a later date"),
        (8, "flag-life", "type is one of release, experiment, ops, permission"),
        (9, "flag-life", "permanent is true or false"),
    ]  # fmt: skip
    assert {note.severity.value for note in notes} == {"note"}


def test_every_fact_is_told_of_some_flag() -> None:
    use = FlagUse(NOW - 100 * DAY, NOW - 100 * DAY, requests=0, references=0)
    told = facts({"metadata": {"expires": "2026-01-01"}}, use)
    assert [line.partition(":")[0] for line in told] == [
        "expired", "old", "unchanged", "constant", "unrequested", "unreferenced",
    ]  # fmt: skip
    assert len(told) == len(FactName)
