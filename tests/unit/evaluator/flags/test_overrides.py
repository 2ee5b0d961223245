from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.accept import Accepted, Progress, accept, effective
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, PROVIDER_KEY, Flag, FlagSet, State
from evaluator.flags.overrides import (
    MOST_KEPT,
    MOST_LAYERS,
    OVERRIDE_EXPIRES_KEY,
    OVERRIDE_KEY,
    Kept,
    Override,
    end_expired,
    kept_of,
    layers_of,
    misfit,
    next_expiry,
    with_override,
    without_override,
)
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.sync_messages import encode
from tests.worlds.flags import flag_set_of

if TYPE_CHECKING:
    from evaluator.resolving.resolution import Resolution

EXPIRES = 1_796_148_000
OVERRIDE = Override("off", "f", "off", "INC-1: payments fail", EXPIRES)
COUNTRY = {"==": [{"var": "country"}, "NL"]}
STAFF = {"$ref": "staff"}
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
    before, after = answer(flag, context, EXPIRES), answer(with_override(flag, OVERRIDE), context, EXPIRES)
    assert (after.value, after.variant) == (before.value, before.variant)


@given(flags, contexts)
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


def test_of_overrides_for_a_flag_the_latest_that_fits_lies_over_the_others() -> None:
    desired = parse(document(), file="flags.json").flag_set
    first, second, unfit = (replace(OVERRIDE, name=name) for name in ("first", "second", "unfit"))
    progress = Progress(overrides=(first, replace(second, variant="on"), replace(unfit, variant="none")))
    made = effective(desired, progress).flags["f"]
    assert made.metadata[OVERRIDE_KEY] == "second"
    assert [layer.name for layer in layers_of(made)[1]] == ["second", "first"]
    assert answer(made, {}, EXPIRES - 1).variant == "on"


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
        ({"state": "DISABLED"}, replace(OVERRIDE, audience=COUNTRY), None),
        (
            {"metadata": {PROVIDER_KEY: "remote"}},
            replace(OVERRIDE, audience={"!": [STAFF]}),
            "InvalidAudience",
        ),
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
    assert without_override(flag.flags["f"]) == flag.flags["f"]


audiences = st.sampled_from([ABSENT, COUNTRY, {"==": [{"var": "plan"}, True]}])
overrides = st.builds(
    Override,
    st.just(""),
    st.just("f"),
    st.sampled_from(["on", "off", "gone"]),
    st.just("INC-1"),
    st.sampled_from([EXPIRES, EXPIRES + 10, EXPIRES + 20]),
    audiences,
    st.builds(Kept, st.sampled_from([0, 1, True, "text"])),
) | st.builds(
    Override,
    st.just(""),
    st.just("f"),
    st.none(),
    st.just("INC-2"),
    st.sampled_from([EXPIRES, EXPIRES + 10, EXPIRES + 20]),
    kept=st.just(Kept()),
)
stacks = st.lists(overrides, min_size=1, max_size=3).map(
    lambda drawn: tuple(replace(one, name=f"{number}") for number, one in enumerate(drawn))
)
definitions = st.none() | flags


def set_of(flag: Flag | None) -> FlagSet:
    return FlagSet({} if flag is None else {"f": flag})


def value_in(flag_set: FlagSet, context: dict[str, Any], now: int) -> tuple[Any, ...]:
    """The value that an application gets whose code default is `code default`, and its type."""
    value = resolve(compile_flag_set(flag_set), "f", None, context, now).value
    return type(value), value


def is_true_of(audience: Any, context: dict[str, Any]) -> bool:
    if audience is ABSENT:
        return True
    return bool(context.get("country") == "NL" if audience == COUNTRY else context.get("plan") is True)


@given(definitions, stacks, contexts, st.sampled_from([EXPIRES - 1, EXPIRES, EXPIRES + 10, EXPIRES + 20]))
def test_each_user_gets_what_the_latest_override_keeps_for_them_and_else_what_they_get_without(
    flag: Flag | None, stack: tuple[Override, ...], context: dict[str, Any], now: int
) -> None:
    served = effective(set_of(flag), Progress(overrides=stack))
    concerned = [one for one in stack if now < (one.expires or 0) and is_true_of(one.audience, context)]
    expected = value_in(set_of(flag), context, now)
    if concerned:
        kept = concerned[-1].kept
        assert kept is not None
        disabled = value_in(FlagSet(), context, now)
        expected = disabled if concerned[-1].variant is None else (type(kept.value), kept.value)
    assert value_in(end_expired(served, now), context, now) == expected


@given(definitions, stacks, st.sampled_from([EXPIRES - 1, EXPIRES, EXPIRES + 10, EXPIRES + 20]))
def test_an_evaluator_ends_each_layer_by_itself_as_whoever_makes_the_flags_does(
    flag: Flag | None, stack: tuple[Override, ...], now: int
) -> None:
    served = effective(set_of(flag), Progress(overrides=stack))
    received = parse(encode(served), file="flags.json").flag_set
    lasting = tuple(one for one in stack if now < (one.expires or 0))
    made = effective(set_of(flag), Progress(overrides=lasting))
    assert digest(end_expired(received, now)) == digest(parse(encode(made), file="flags.json").flag_set)
    assert next_expiry(received.flags.values()) == min(one.expires or 0 for one in stack)


@given(definitions, stacks)
def test_without_all_layers_the_definition_is_as_it_was(
    flag: Flag | None, stack: tuple[Override, ...]
) -> None:
    made = effective(set_of(flag), Progress(overrides=stack)).flags["f"]
    beneath, layers = layers_of(made)
    assert (beneath, without_override(made)) == (flag, flag)
    assert [layer.name for layer in reversed(layers)] == [one.name for one in stack]


@given(stacks, st.lists(definitions, min_size=1, max_size=4), contexts)
def test_what_an_override_keeps_outlives_each_change_of_the_flag(
    stack: tuple[Override, ...], changes: list[Flag | None], context: dict[str, Any]
) -> None:
    first = set_of(Flag("f", State.ENABLED, {"on": 1, "off": 0, "gone": True}, "on"))
    known = [replace(one, kept=None) for one in stack]
    served = effective(first, Progress(overrides=tuple(known)))
    kept = tuple(replace(one, kept=kept_of(served, one)) for one in known)
    concerned = [one for one in kept if is_true_of(one.audience, context)]
    for flag in changes:
        now = value_in(effective(set_of(flag), Progress(overrides=kept)), context, EXPIRES - 1)
        if concerned:
            assert now == value_in(served, context, EXPIRES - 1)
        else:
            assert now == value_in(set_of(flag), context, EXPIRES - 1)


def test_an_audience_keeps_the_rules_that_it_refers_to() -> None:
    named = {"$evaluators": {"staff": COUNTRY}}
    before = flag_set_of({**json.loads(document()), **named})
    asked = replace(OVERRIDE, audience={"!": [{"!": [STAFF]}]})
    kept = replace(asked, kept=kept_of(effective(before, Progress(overrides=(asked,))), asked))
    assert kept.kept == Kept(0, {"staff": COUNTRY})
    after = parse(document(), file="flags.json").flag_set
    assert misfit(after.flags["f"], asked, after.evaluators) == "InvalidAudience"
    made = effective(after, Progress(overrides=(kept,))).flags["f"]
    assert [answer(made, {"country": land}, EXPIRES - 1).variant for land in ("NL", "BE")] == ["off", "on"]


def test_many_layers_make_no_flag_of_another_size_than_their_sum() -> None:
    flag = parse(document(), file="flags.json").flag_set.flags["f"]
    for number in range(MOST_LAYERS):
        flag = with_override(flag, replace(OVERRIDE, name=f"o{number}", kept=Kept(number)))
    assert len(encode(FlagSet({"f": flag}))) < 500 * MOST_LAYERS
    assert layers_of(flag)[0] == parse(document(), file="flags.json").flag_set.flags["f"]


@pytest.mark.parametrize(
    "more", [{"metadata": {CONFIDENTIAL_KEY: True}}, {"variants": {"on": "", "off": "x" * MOST_KEPT}}]
)
def test_words_of_a_secret_and_large_values_are_not_kept(more: dict[str, Any]) -> None:
    desired = parse(document(**more), file="flags.json").flag_set
    assert kept_of(effective(desired, Progress(overrides=(OVERRIDE,))), OVERRIDE) is None


def test_an_override_that_keeps_nothing_yet_needs_its_flag() -> None:
    assert misfit(None, OVERRIDE, {}) == "UnknownFlag"
    assert misfit(None, replace(OVERRIDE, kept=Kept(0)), {}) is None
    assert kept_of(FlagSet(), OVERRIDE) is None


@pytest.mark.parametrize(
    "beneath", ["{", "[]", '{"override": 3, "added": "yes", "default": {}}', "[" * 100_000]
)
def test_malformed_notes_of_an_override_end_it_all_the_same(beneath: str) -> None:
    made = with_override(parse(document(), file="f").flag_set.flags["f"], OVERRIDE)
    forged = replace(made, metadata={**made.metadata, "flagstaff.dev/override-beneath": beneath})
    ended = end_expired(FlagSet({"f": forged}), EXPIRES).flags["f"]
    assert (ended.state, ended.targeting, ended.metadata) == (State.ENABLED, ABSENT, {})
