from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.canonical import digest
from evaluator.flags.diff import ChangedPart, diff, same
from evaluator.flags.model import ABSENT, REVISION_KEY, Flag, FlagSet, State
from evaluator.flags.text import normal
from tests.unit.evaluator.flags.test_canonical import flag, flag_set, values


def changes(old: FlagSet, new: FlagSet) -> dict[str, tuple[ChangedPart, ...]]:
    return dict(diff(old, new).changed)


def test_equal_sets_do_not_differ() -> None:
    found = diff(flag_set(flag("a"), flag("b")), flag_set(flag("b"), flag("a")))
    assert not found
    assert found.keys == ()


def test_added_changed_and_removed_flags_are_sorted() -> None:
    old = flag_set(flag("d"), flag("c"), flag("f"), flag("e"))
    new = flag_set(flag("b"), flag("a"), flag("f", targeting=None), flag("e", targeting=None))
    found = diff(old, new)
    assert (found.added, tuple(found.changed), found.removed) == (("a", "b"), ("e", "f"), ("c", "d"))
    assert found.keys == ("a", "b", "c", "d", "e", "f")


@pytest.mark.parametrize(("old", "new"), [((), ("a",)), (("a",), ())], ids=["one more", "one less"])
def test_a_set_that_gains_or_loses_a_flag_differs(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert diff(flag_set(*map(flag, old)), flag_set(*map(flag, new)))


ONE: dict[str, tuple[dict[str, Any], ChangedPart]] = {
    "state": ({"state": State.DISABLED}, ChangedPart.STATE),
    "value": ({"variants": {"on": "yes"}}, ChangedPart.VARIANTS),
    "one for true": ({"variants": {"on": 1}}, ChangedPart.VARIANTS),
    "another variant": ({"variants": {"on": True, "off": False}}, ChangedPart.VARIANTS),
    "default": ({"default_variant": "on"}, ChangedPart.DEFAULT_VARIANT),
    "targeting": ({"targeting": {"var": "a"}}, ChangedPart.TARGETING),
    "null targeting": ({"targeting": None}, ChangedPart.TARGETING),
    "metadata": ({"metadata": {"owner": "web"}}, ChangedPart.METADATA),
}


@pytest.mark.parametrize(("part", "change"), ONE.values(), ids=ONE)
def test_a_change_names_the_part(part: dict[str, Any], change: ChangedPart) -> None:
    old, new = flag_set(flag()), flag_set(flag(**part))
    assert changes(old, new) == {"banner": (change,)}
    assert changes(new, old) == {"banner": (change,)}


def test_several_changes_of_a_flag_are_sorted() -> None:
    new = flag(state=State.DISABLED, targeting=None, default_variant="on", metadata={"a": 1})
    assert changes(flag_set(flag()), flag_set(new)) == {
        "banner": (
            ChangedPart.DEFAULT_VARIANT,
            ChangedPart.METADATA,
            ChangedPart.STATE,
            ChangedPart.TARGETING,
        )
    }


def test_provenance_is_no_difference() -> None:
    old = flag_set(flag(metadata={REVISION_KEY: "a"}), metadata={REVISION_KEY: "a"})
    new = flag_set(flag(metadata={REVISION_KEY: "b"}), metadata={REVISION_KEY: "b"})
    assert not diff(old, new)


def test_set_metadata_changes_every_flag() -> None:
    old = flag_set(flag("a"), flag("b"), metadata={"version": "1"})
    new = flag_set(flag("a"), flag("b"), metadata={"version": "2"})
    assert changes(old, new) == {"a": (ChangedPart.METADATA,), "b": (ChangedPart.METADATA,)}


USES_STAFF = {"if": [{"$ref": "staff"}, "on"]}


@pytest.mark.parametrize("other", [{"staff": {"var": "b"}}, {}], ids=["another body", "no longer there"])
def test_a_changed_evaluator_changes_the_flags_that_use_it(other: dict[str, Any]) -> None:
    flags = flag("user", targeting=USES_STAFF), flag("plain", targeting={"var": "x"}), flag("none")
    old = flag_set(*flags, evaluators={"staff": {"var": "a"}})
    assert changes(old, flag_set(*flags, evaluators=other)) == {"user": (ChangedPart.TARGETING,)}


def test_a_changed_evaluator_behind_another_changes_the_flags_that_use_either() -> None:
    nested = {"staff": {"!": {"$ref": "deep"}}}
    user = flag("user", targeting=USES_STAFF)
    old = flag_set(user, evaluators={**nested, "deep": {"var": "a"}})
    new = flag_set(user, evaluators={**nested, "deep": {"var": "b"}})
    assert changes(old, new) == {"user": (ChangedPart.TARGETING,)}


def test_an_evaluator_that_no_flag_uses_changes_none() -> None:
    old = flag_set(flag(targeting=USES_STAFF), evaluators={"staff": True, "idle": {"var": "a"}})
    new = flag_set(flag(targeting=USES_STAFF), evaluators={"staff": True, "idle": {"var": "b"}})
    assert not diff(old, new)


def test_a_rule_moved_into_an_evaluator_changes_nothing() -> None:
    old = flag_set(flag(targeting={"if": [{"var": "a"}, "on"]}))
    new = flag_set(flag(targeting=USES_STAFF), evaluators={"staff": {"var": "a"}})
    assert not diff(old, new)


def test_a_rule_too_large_to_expand_counts_as_changed_with_its_evaluators() -> None:
    user = flag(targeting=USES_STAFF)
    old = flag_set(user, evaluators={"staff": {"+": [1] * 20_000}})
    new = flag_set(user, evaluators={"staff": {"+": [2] * 20_000}})
    assert changes(old, new) == {"banner": (ChangedPart.TARGETING,)}


def test_the_difference_of_a_large_set_names_the_one_change() -> None:
    flags = {f"f{at}": flag(f"f{at}", targeting=USES_STAFF) for at in range(10_000)}
    changed = {**flags, "f7": flag("f7", state=State.DISABLED, targeting=USES_STAFF)}
    found = diff(FlagSet(flags=flags), FlagSet(flags=changed))
    assert found.changed == {"f7": (ChangedPart.STATE,)}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (True, 1, False), (False, 0, False), (0.0, False, False), (1, 1.0, True), (0.0, -0.0, True),
        (2**53, 2**53 + 1, True), (2**53, 2**53 + 2, False), (None, False, False), ("1", 1, False),
        ([1], [True], False), ([1, 2], [2, 1], False), ([1], [1, 1], False), ({"a": 1}, {"a": True}, False),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}, True), ({"a": None}, {}, False), ({}, [], False),
        (ABSENT, ABSENT, True), (ABSENT, None, False),
    ],
)  # fmt: skip
def test_values_are_equal_as_json_has_it(one: Any, other: Any, expected: bool) -> None:
    assert same(one, other) is expected
    assert same(other, one) is expected


@settings(max_examples=200)
@given(values, values)
def test_values_are_the_same_where_they_are_written_the_same(one: Any, other: Any) -> None:
    written = json.dumps(normal(one), sort_keys=True), json.dumps(normal(other), sort_keys=True)
    assert same(one, other) is (written[0] == written[1])
    assert same(one, json.loads(json.dumps(one)))


@st.composite
def variations(draw: st.DrawFn) -> Flag:
    return flag(
        state=draw(st.sampled_from(State)),
        variants={"on": draw(st.sampled_from([True, 1, "1"]))},
        default_variant=draw(st.sampled_from([None, "on"])),
        targeting=draw(st.sampled_from([ABSENT, None, {}, {"var": "a"}])),
    )


@settings(max_examples=200)
@given(variations(), variations())
def test_sets_differ_exactly_where_their_digests_do(one: Flag, other: Flag) -> None:
    equal = digest(flag_set(one)) == digest(flag_set(other))
    assert bool(diff(flag_set(one), flag_set(other))) is not equal
