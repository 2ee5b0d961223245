from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.canonical import canonical, digest
from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT, PROVENANCE_KEYS, REVISION_KEY, Flag, FlagSet, State
from evaluator.flags.text import normal


def flag(key: str = "banner", **parts: Any) -> Flag:
    return Flag(**{"key": key, "state": State.ENABLED, "variants": {"on": True}, **parts})


def flag_set(*flags: Flag, **parts: Any) -> FlagSet:
    return FlagSet(flags={each.key: each for each in flags}, **parts)


def test_a_set_is_written_in_flagds_shape_without_what_is_not_there() -> None:
    assert canonical(flag_set(flag())) == (b'{"flags":{"banner":{"state":"ENABLED","variants":{"on":true}}}}')
    assert canonical(FlagSet()) == b'{"flags":{}}'


def test_all_there_is_is_written_with_sorted_keys() -> None:
    full = flag(
        state=State.DISABLED,
        variants={"on": "y", "off": "n"},
        default_variant="off",
        targeting={"if": [{"$ref": "staff"}, "on"]},
        metadata={"owner": "web"},
    )
    written = canonical(flag_set(full, evaluators={"staff": {"var": "staff"}}, metadata={"flagSetId": "a"}))
    assert written == (
        b'{"$evaluators":{"staff":{"var":"staff"}},"flags":{"banner":{"defaultVariant":"off",'
        b'"metadata":{"owner":"web"},"state":"DISABLED","targeting":{"if":[{"$ref":"staff"},"on"]},'
        b'"variants":{"off":"n","on":"y"}}},"metadata":{"flagSetId":"a"}}'
    )


def test_keys_are_sorted_by_code_point_at_every_level() -> None:
    variants = {"\U0001f600": {"b": 1, "a": 1}, "\uffff": {"Z": 1, "a": 1}}
    assert '"variants":{"\uffff":{"Z":1,"a":1},"\U0001f600":{"a":1,"b":1}}' in (
        canonical(flag_set(flag(variants=variants))).decode()
    )


@pytest.mark.parametrize("targeting", [None, {}], ids=["null", "empty"])
def test_targeting_that_is_null_or_empty_is_not_targeting_that_is_absent(targeting: Any) -> None:
    assert canonical(flag_set(flag(targeting=targeting))) != canonical(flag_set(flag()))


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1, "1"), (1.0, "1"), (-0.0, "0"), (0.1, "0.1"), (1e21, "1e+21"), (10**21, "1e+21"),
        (2**53, "9007199254740992"), (2**53 + 1, "9007199254740992"), (float(2**53), "9007199254740992"),
        (2**53 + 3, "9007199254740996"), (float(2**53 + 2), "9007199254740994"),
        (-(2**63), "-9223372036854775808"), (2**63 - 1, "9.223372036854776e+18"),
        (-(2**70), "-1.1805916207174113e+21"), (5e-324, "5e-324"),
    ],
)  # fmt: skip
def test_equal_numbers_are_written_alike(number: float, written: str) -> None:
    text = canonical(flag_set(flag(variants={"n": number}))).decode()
    assert text == f'{{"flags":{{"banner":{{"state":"ENABLED","variants":{{"n":{written}}}}}}}}}'


def test_true_is_not_one() -> None:
    assert digest(flag_set(flag(variants={"a": True}))) != digest(flag_set(flag(variants={"a": 1})))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 10**400, -(10**400)])
def test_a_number_that_no_float_holds_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite float64"):
        canonical(flag_set(flag(variants={"n": number})))


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        canonical(flag_set(flag(variants={"n": "\ud800"})))


def test_a_digest_is_of_known_form_and_stable() -> None:
    # Stored on disk and shown in status: a change of this value is a change for everyone.
    assert digest(flag_set(flag())) == (
        "sha256:ea453f239301a62b9a364c9a8d1090dc6c40305250714f4f32a33e89ebf55f01"
    )


@pytest.mark.parametrize("key", sorted(PROVENANCE_KEYS))
def test_where_it_came_from_changes_no_digest(key: str) -> None:
    plain = flag_set(flag(metadata={"owner": "web"}), metadata={"version": "1"})
    traced = flag_set(flag(metadata={"owner": "web", key: "x"}), metadata={"version": "1", key: "y"})
    assert digest(traced) == digest(plain)


def test_where_it_came_from_is_written_on_request() -> None:
    traced = flag_set(flag(metadata={REVISION_KEY: "x"}), metadata={REVISION_KEY: "y"})
    assert b"flagstaff.dev" not in canonical(traced)
    assert canonical(traced, provenance=True).count(b'{"flagstaff.dev/revision":') == 2


def test_a_key_of_ones_own_under_the_provenance_prefix_is_content() -> None:
    own = flag_set(flag(), metadata={"flagstaff.dev/team": "web"})
    assert digest(own) != digest(flag_set(flag()))


CHANGES: dict[str, dict[str, Any]] = {
    "state": {"state": State.DISABLED},
    "variants": {"variants": {"on": False}},
    "default": {"default_variant": "on"},
    "targeting": {"targeting": {"var": "a"}},
    "metadata": {"metadata": {"a": 1}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_content_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(flag_set(flag(**change))) != digest(flag_set(flag()))


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(st.text(max_size=5), st.booleans() | numbers | st.text(max_size=5), max_size=3)


@st.composite
def flag_sets(draw: st.DrawFn) -> FlagSet:
    keys = draw(st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=4))
    flags = [
        flag(
            key,
            state=draw(st.sampled_from(State)),
            variants=draw(st.dictionaries(st.text(min_size=1, max_size=4), values, max_size=3)),
            targeting=draw(values),
            metadata=draw(metadata),
        )
        for key in keys
    ]
    return flag_set(*flags, evaluators=draw(st.dictionaries(st.text(min_size=1), values, max_size=2)))


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(each) for key, each in reversed(value.items())}
    if isinstance(value, list):
        return [reverse_keys(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@settings(max_examples=150)
@given(flag_sets())
def test_neither_order_nor_spelling_changes_a_byte(one: FlagSet) -> None:
    other = flag_set(
        *(
            flag(
                each.key,
                state=each.state,
                variants=reverse_keys(each.variants),
                targeting=reverse_keys(each.targeting),
                metadata=reverse_keys(each.metadata),
            )
            for each in reversed(list(one.flags.values()))
        ),
        evaluators=reverse_keys(one.evaluators),
    )
    assert canonical(other) == canonical(one)


@settings(max_examples=150)
@given(values)
def test_what_is_written_reads_back_as_the_same_value(value: Any) -> None:
    text = canonical(flag_set(flag(variants={"v": value})))
    assert normal(json.loads(text)["flags"]["banner"]["variants"]["v"]) == normal(value)


exact = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def parsable(draw: st.DrawFn) -> FlagSet:
    variants = draw(st.dictionaries(st.text(min_size=1, max_size=4), exact, max_size=3))
    one = flag(
        draw(st.text(max_size=4)),
        state=draw(st.sampled_from(State)),
        variants=variants,
        default_variant=draw(st.sampled_from([None, *variants])),
        targeting=draw(exact | st.just(ABSENT)),
        metadata=draw(st.fixed_dictionaries({}, optional={REVISION_KEY: st.text(), "a": st.booleans()})),
    )
    return flag_set(one, evaluators={"e": draw(exact.filter(bool))}, metadata={"flagSetId": "s"})


@settings(max_examples=200)
@given(parsable())
def test_the_parser_reads_a_written_set_back_as_it_was(original: FlagSet) -> None:
    read = parse(canonical(original, provenance=True), file="a.json").flag_set
    assert read == original
    assert canonical(read, provenance=True) == canonical(original, provenance=True)


@settings(max_examples=150)
@given(flag_sets())
def test_a_set_of_any_numbers_is_written_alike_once_it_was_read_back(original: FlagSet) -> None:
    parsed = parse(canonical(original), file="a.json")
    good = {key: each for key, each in original.flags.items() if key in parsed.flag_set.flags}
    evaluators = {key: original.evaluators[key] for key in parsed.flag_set.evaluators}
    assert not parsed.bad
    assert digest(parsed.flag_set) == digest(FlagSet(good, evaluators))
