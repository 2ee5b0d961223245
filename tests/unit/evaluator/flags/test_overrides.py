from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.accept import Accepted, Progress, accept, effective
from evaluator.flags.canonical import digest
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import ABSENT, Flag, FlagSet, State
from evaluator.flags.overrides import (
    OVERRIDE_EXPIRES_KEY,
    Override,
    end_expired,
    misfit,
    next_expiry,
    with_override,
    without_override,
)
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.encoding import encode

if TYPE_CHECKING:
    from evaluator.resolving.resolution import Resolution

EXPIRES = 1_796_148_000
OVERRIDE = Override("off", "f", "off", "INC-1: payments fail", EXPIRES)
COUNTRY = {"==": [{"var": "country"}, "NL"]}
SPLIT = {"fractional": [["on", 40], ["off", 60]]}
RULES: list[Any] = [
    ABSENT,
    {},
    None,
    {"if": [COUNTRY, "on"]},
    {"if": [COUNTRY, "on", "off"]},
    {"if": [COUNTRY, "on", {"var": "plan"}, "off", None]},
    {"if": [{"<": [{"var": "$flagd.timestamp"}, EXPIRES]}, "on", "off"]},
    {"var": "flag"},
    {"==": [{"var": "country"}, "NL"]},
    {"missing": ["country"]},
    SPLIT,
]
flags = st.builds(
    Flag,
    st.just("f"),
    st.sampled_from(State),
    st.just({"on": 1, "off": 0, "true": 2, "false": 3}),
    st.sampled_from(["on", "off", None]),
    st.sampled_from(RULES),
    st.sampled_from([{}, {"owner": "shop"}]),
)
contexts = st.fixed_dictionaries(
    {},
    optional={
        "targetingKey": st.text(max_size=4),
        "country": st.sampled_from(["NL", "BE"]),
        "plan": st.booleans(),
        "flag": st.sampled_from(["on", "off", "other", None, 1]),
    },
)


def answer(flag: Flag, context: dict[str, Any], now: int) -> Resolution:
    return resolve(compile_flag_set(FlagSet({"f": flag})), "f", None, context, now)


@given(flags, contexts)
def test_before_its_expiry_everybody_gets_the_variant(flag: Flag, context: dict[str, Any]) -> None:
    resolution = answer(with_override(flag, OVERRIDE), context, EXPIRES - 1)
    assert (resolution.variant, resolution.value) == ("off", 0)


@given(flags, contexts)
def test_from_its_expiry_on_a_stock_evaluator_gives_the_answers_of_the_definition(
    flag: Flag, context: dict[str, Any]
) -> None:
    enabled = replace(flag, state=State.ENABLED)
    before, after = answer(enabled, context, EXPIRES), answer(with_override(flag, OVERRIDE), context, EXPIRES)
    assert (after.value, after.variant, after.error_code) == (before.value, before.variant, before.error_code)


@given(flags.filter(lambda flag: flag.state is State.ENABLED), contexts)
def test_outside_of_the_audience_the_answers_are_those_of_the_definition(
    flag: Flag, context: dict[str, Any]
) -> None:
    made = with_override(flag, replace(OVERRIDE, audience=COUNTRY))
    resolution, before = (answer(one, context, EXPIRES - 1) for one in (made, flag))
    expected = ("off", 0) if context.get("country") == "NL" else (before.variant, before.value)
    assert (resolution.variant, resolution.value) == expected


@given(
    flags, st.sampled_from([OVERRIDE, replace(OVERRIDE, variant=None), replace(OVERRIDE, audience=COUNTRY)])
)
def test_without_the_override_the_definition_is_as_it_was(flag: Flag, override: Override) -> None:
    assert without_override(with_override(flag, override)) == flag


@given(flags)
def test_an_override_without_a_variant_disables_the_flag(flag: Flag) -> None:
    made = with_override(flag, replace(OVERRIDE, variant=None))
    assert answer(made, {}, EXPIRES - 1).reason == "DISABLED"


@given(flags, st.sampled_from([OVERRIDE, replace(OVERRIDE, variant=None)]))
def test_an_override_ends_at_its_expiry_after_a_journey_over_the_wire(flag: Flag, override: Override) -> None:
    desired = FlagSet({"f": flag})
    sent = effective(desired, Progress(overrides=(override,)))
    received = parse(encode(sent), file="flags.json").flag_set
    assert next_expiry(received.flags.values()) == EXPIRES
    assert end_expired(received, EXPIRES - 1) is received
    expected = parse(encode(desired), file="flags.json").flag_set
    assert digest(end_expired(received, EXPIRES)) == digest(expected)


def document(**more: object) -> bytes:
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "on", **more}
    return json.dumps({"flags": {"f": flag}}).encode()


def test_what_is_last_good_is_never_the_override() -> None:
    progress = Progress(overrides=(OVERRIDE,))
    judged = accept(parse(document(), file="flags.json"), None, progress=progress)
    assert isinstance(judged, Accepted)
    held = accept(parse(document(defaultVariant="typo"), file="f.json"), judged.desired, progress=progress)
    assert isinstance(held, Accepted)
    assert held.held == ("f",)
    assert held.desired == judged.desired
    assert OVERRIDE_EXPIRES_KEY in held.flag_set.flags["f"].metadata


def test_of_two_overrides_for_a_flag_the_first_that_fits_is_in_force() -> None:
    desired = parse(document(), file="flags.json").flag_set
    unfit, first, second = (replace(OVERRIDE, name=name) for name in ("unfit", "first", "second"))
    progress = Progress(overrides=(replace(unfit, variant="none"), first, replace(second, variant="on")))
    assert effective(desired, progress).flags["f"] == with_override(desired.flags["f"], first)


def nest(levels: int) -> Any:
    rule: Any = {"var": "plan"}
    for _ in range(levels):
        rule = {"!": [rule]}
    return rule


@pytest.mark.parametrize(
    ("more", "override", "reason"),
    [
        ({}, OVERRIDE, None),
        ({}, replace(OVERRIDE, variant="of"), "UnknownVariant"),
        ({"state": "DISABLED"}, OVERRIDE, None),
        ({"state": "DISABLED"}, replace(OVERRIDE, audience=COUNTRY), "AudienceOfDisabledFlag"),
        ({"targeting": nest(48)}, OVERRIDE, "RuleTooLarge"),
        ({"targeting": nest(48)}, replace(OVERRIDE, variant=None), None),
        ({}, replace(OVERRIDE, audience=nest(48)), "RuleTooLarge"),
        ({}, replace(OVERRIDE, audience=COUNTRY), None),
        ({}, replace(OVERRIDE, audience={"ends_wiht": [{"var": "email"}, "@a"]}), "InvalidAudience"),
        ({}, replace(OVERRIDE, audience={"!": [{"$ref": "staff"}]}), "InvalidAudience"),
    ],
)
def test_an_override_that_does_not_fit_its_flag_is_not_in_force(
    more: dict[str, Any], override: Override, reason: str | None
) -> None:
    desired = parse(document(**more), file="flags.json").flag_set
    assert misfit(desired.flags["f"], override, desired.evaluators) == reason
    assert (effective(desired, Progress(overrides=(override,))) is desired) == (reason is not None)


def test_the_largest_rule_that_is_wrapped_is_still_accepted_by_evaluators() -> None:
    desired = parse(document(targeting=nest(47)), file="flags.json").flag_set
    sent = effective(desired, Progress(overrides=(OVERRIDE,)))
    assert sent is not desired
    assert not parse(encode(sent), file="flags.json").errors


def test_marks_that_no_override_made_change_no_definition() -> None:
    marks = {"flagstaff.dev/override-expires": "tomorrow", "flagstaff.dev/override-hides": 3}
    flag = parse(
        document(metadata=marks, targeting={"if": [True, "on", "off", "on", "off"]}), file="f"
    ).flag_set
    assert end_expired(flag, EXPIRES) is flag
    assert without_override(flag.flags["f"]).targeting == flag.flags["f"].targeting
