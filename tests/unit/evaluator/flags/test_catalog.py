from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.catalog import Catalog, UnknownSourceError
from evaluator.flags.diff import diff
from evaluator.flags.known_operators import NODES
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, Flag, FlagSet, State
from evaluator.flags.overrides import OVERRIDE_KEY
from evaluator.resolving.resolution import ErrorCode, Resolution
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Scalar

NAMES = ("low", "middle", "high")
NOW = 1_700_000_000
CONTEXT = {"targetingKey": "user-1", "tier": "gold"}

metadata: st.SearchStrategy[Mapping[str, Scalar]] = st.fixed_dictionaries(
    {},
    optional={
        "flagSetId": st.sampled_from(["", "shop", "bank", 7]),
        "team": st.sampled_from(["a", "b"]),
        BUCKETING_KEY: st.sampled_from(["v2", "v3", "v9"]),
    },
)
rules = st.sampled_from(
    [
        ABSENT, None, {}, "on", {"$ref": "gold"}, {"if": [{"$ref": "gold"}, "on", "off"]}, {"$ref": "split"},
        {"$ref": "nested"}, {"$ref": "loop"}, {"$ref": "empty"}, {"$ref": "vast"}, {"$ref": "none"},
        {"fractional": [["on", 1], ["off", 1]]},
    ]
)  # fmt: skip
VAST = {"or": [{"var": "tier"}] * NODES}
bodies = {
    "gold": st.sampled_from([{"==": [{"var": "tier"}, "gold"]}, {"==": [{"var": "tier"}, "x"]}]),
    "split": st.just({"fractional": [["on", 1], ["off", 1]]}),
    "nested": st.just({"if": [{"$ref": "gold"}, "on", "off"]}),
    "loop": st.just({"if": [{"$ref": "loop"}, "on"]}),
    "empty": st.just({}),
    "vast": st.just(VAST),
}


@st.composite
def flag_sets(draw: st.DrawFn) -> FlagSet:
    keys = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    return FlagSet(
        {key: draw(flags(key)) for key in keys},
        draw(st.fixed_dictionaries({}, optional=bodies)),
        draw(metadata),
    )


def flags(key: str) -> st.SearchStrategy[Flag]:
    return st.builds(
        Flag,
        st.just(key),
        st.sampled_from(State),
        st.just({"on": True, "off": False}),
        st.sampled_from(["on", "off", None]),
        rules,
        metadata,
    )


delivered = st.dictionaries(st.sampled_from(NAMES), flag_sets())


def catalog(sets: Mapping[str, FlagSet], names: tuple[str, ...] = NAMES) -> Catalog:
    made = Catalog(names)
    for name, flag_set in sets.items():
        made = made.with_source(name, flag_set)
    return made


def answers(flag_set: FlagSet, *, expose: bool = False) -> dict[str, tuple[Any, ...]]:
    compiled = compile_flag_set(flag_set, bucketing=Bucketing.V2, expose_bucketing=expose)
    return {
        key: (found.value, found.variant, found.reason, found.error_code, dict(found.metadata))
        for key in compiled.keys_in_order
        for found in (resolve(compiled, key, None, CONTEXT, NOW),)
    }


def naive_id(flag_set: FlagSet, flag: Flag) -> str:
    for given_id in (flag.metadata.get("flagSetId"), flag_set.metadata.get("flagSetId")):
        if isinstance(given_id, str):
            return given_id
    return ""


@given(sets=delivered, expose=st.booleans())
@settings(max_examples=60)
def test_everything_answers_as_the_last_source_that_has_the_flag(
    sets: dict[str, FlagSet], expose: bool
) -> None:
    made = catalog(sets)
    winners = {key: name for name in NAMES if name in sets for key in sets[name].flags}
    assert made.everything.flags.keys() == winners.keys()
    apart = {name: answers(flag_set, expose=expose) for name, flag_set in sets.items()}
    merged = answers(made.everything, expose=expose)
    assert merged == {key: apart[name][key] for key, name in winners.items()}
    assert {key: made.source_of(key) for key in winners} == winners


@given(sets=delivered)
@settings(max_examples=60)
def test_a_flag_set_is_what_a_naive_search_finds(sets: dict[str, FlagSet]) -> None:
    made = catalog(sets)
    apart = {name: answers(flag_set) for name, flag_set in sets.items()}
    for wanted in ("", "shop", "bank"):
        found = {
            key: apart[name][key]
            for name in NAMES
            if name in sets
            for key, flag in sets[name].flags.items()
            if naive_id(sets[name], flag) == wanted
        }
        assert answers(made.of_flag_set(wanted) or FlagSet()) == found


@given(sets=delivered, order=st.permutations(NAMES))
@settings(max_examples=40)
def test_it_does_not_matter_in_which_order_sources_deliver(
    sets: dict[str, FlagSet], order: list[str]
) -> None:
    one, other = catalog(sets), catalog({name: sets[name] for name in order if name in sets})
    assert one == other
    assert list(one.everything.flags) == list(other.everything.flags)
    assert one.digest == other.digest


@given(sets=delivered, gone=st.sampled_from(NAMES))
@settings(max_examples=40)
def test_a_shadowed_flag_comes_back_when_the_winner_goes(sets: dict[str, FlagSet], gone: str) -> None:
    left = {name: flag_set for name, flag_set in sets.items() if name != gone}
    made = catalog(sets).with_source(gone, None)
    assert made == catalog(left)
    assert made.everything == catalog(left).everything


@given(flag_set=flag_sets())
@settings(max_examples=20)
def test_one_source_is_served_as_it_is(flag_set: FlagSet) -> None:
    made = catalog({"only": flag_set}, ("only",))
    assert made.everything is made.of_source("only") is made.sets["only"] is flag_set


def one(key: str, value: object = 1, *, rule: Any = ABSENT, **more: Any) -> FlagSet:
    """A set of one flag; `more` is the set's metadata."""
    return FlagSet({key: Flag(key, State.ENABLED, {"v": value}, "v", rule)}, {}, more)


def test_the_same_again_is_the_same_catalog() -> None:
    made = catalog({"low": one("a")})
    assert made.with_source("low", one("a")) is made
    assert made.with_source("high", None) is made
    assert made.with_source("low", one("a", **{"flagstaff.dev/revision": "r2"})) is not made


def test_flags_with_one_key_in_two_sets_are_both_there() -> None:
    made = catalog({"low": one("a", 1, flagSetId="shop"), "high": one("a", 2, flagSetId="bank")})
    found = {own: flag_set.flags["a"].variants["v"] for own, flag_set in made.flag_sets.items()}
    assert found == {"shop": 1, "bank": 2}
    assert made.everything.flags["a"].variants["v"] == 2
    assert made.of_source("low") == one("a", 1, flagSetId="shop")


def test_an_empty_set_is_known_by_its_id_and_an_unknown_one_is_not() -> None:
    made = catalog({"low": FlagSet(metadata={"flagSetId": "shop"})})
    assert made.of_flag_set("shop") == FlagSet(metadata={"flagSetId": "shop"})
    assert made.of_flag_set("bank") is made.of_flag_set("") is made.of_source("high") is None


@pytest.mark.parametrize("more", [{}, {"high": one("b", flagSetId="shop")}], ids=["one source", "two"])
def test_a_set_that_all_flags_are_in_is_not_copied(more: dict[str, FlagSet]) -> None:
    made = catalog({"low": one("a", flagSetId="shop"), **more})
    assert made.of_flag_set("shop") is made.everything


def test_a_source_that_holds_nothing_makes_no_difference_to_what_another_holds() -> None:
    flag_set = one("a", team="x", **{"flagstaff.dev/revision": "r1"})
    alone, beside = catalog({"low": flag_set}, ("low",)), catalog({"low": flag_set})
    assert beside.everything is flag_set
    assert beside.digest == alone.digest


def test_a_set_that_is_merged_with_another_changes_no_flag_by_that() -> None:
    alone = catalog({"low": one("a", team="x", rule={"$ref": "x"})})
    change = diff(alone.everything, alone.with_source("high", one("b")).everything)
    assert (change.added, dict(change.changed), change.removed) == (("b",), {}, ())


def test_unchanged_sources_fold_their_flags_once() -> None:
    first = catalog({"low": one("a", team="x"), "high": one("b")})
    kept = first.everything.flags["a"]
    assert first.with_source("high", one("c")).everything.flags["a"] is kept


def test_a_rule_too_large_to_expand_fails_its_flag_alone() -> None:
    flags = {**one("big", rule={"$ref": "vast"}).flags, **one("small").flags}
    merged = catalog({"low": FlagSet(flags, {"vast": VAST})}).everything
    compiled = compile_flag_set(merged)
    found: dict[str, Resolution] = {key: resolve(compiled, key, None, {}, NOW) for key in ("big", "small")}
    assert found["big"].error_code is ErrorCode.PARSE_ERROR
    assert found["small"].value == 1


def test_no_two_sources_have_one_name() -> None:
    with pytest.raises(ValueError, match="one name"):
        Catalog(("a", "b", "a"))


def test_an_unknown_source_delivers_nothing() -> None:
    with pytest.raises(UnknownSourceError, match="'other'"):
        catalog({}).with_source("other", FlagSet())


SINCE = "2026-01-02T03:04:05Z"
MARKS = {"flagstaff.dev/stale": True, "flagstaff.dev/stale-since": SINCE}


def test_what_a_stale_source_holds_says_so_alone_and_merged_and_has_its_digest() -> None:
    fresh = catalog({"low": one("a"), "high": one("b")})
    made = fresh.with_staleness("low", SINCE)
    low = made.of_source("low")
    assert low is not None
    assert low.metadata == MARKS
    assert made.everything.flags["a"].metadata == MARKS
    assert made.everything.flags["b"].metadata == {}
    assert (made.digest, made.digest_of("low")) == (fresh.digest, fresh.digest_of("low"))


def test_catalogs_that_differ_in_staleness_alone_hold_the_same_and_are_not_equal() -> None:
    fresh = catalog({"low": one("a")})
    made = fresh.with_staleness("low", SINCE)
    assert made.holds_as(fresh)
    assert made != fresh
    assert made.with_staleness("low", None) == fresh
    assert made.with_source("low", one("a")) == fresh
    assert not made.holds_as(fresh.with_source("low", one("b")))
    assert not made.holds_as(fresh.with_source("high", one("b")))


def test_nothing_is_not_stale_and_a_mark_that_exists_is_no_change() -> None:
    made = catalog({"low": one("a")}).with_staleness("low", SINCE)
    assert made.with_staleness("low", SINCE) is made
    assert made.with_staleness("high", SINCE) is made


def test_a_peer_that_is_cut_off_itself_knows_better_since_when() -> None:
    older = {"flagstaff.dev/stale-since": "2025-01-01T00:00:00Z"}
    made = catalog({"low": one("a", **older)}).with_staleness("low", SINCE)
    low = made.of_source("low")
    assert low is not None
    assert low.metadata == {**MARKS, **older}


def test_a_flag_under_an_override_that_a_later_source_has_too_is_hidden_by_it() -> None:
    flag = Flag("a", State.ENABLED, {"on": 1}, "on")
    overridden = Flag("a", State.ENABLED, {"on": 2}, "on", metadata={OVERRIDE_KEY: "off"})
    catalog = Catalog(NAMES).with_source("low", FlagSet({"a": overridden}))
    assert catalog.hidden_overrides == {}
    assert catalog.with_source("middle", FlagSet({"b": flag})).hidden_overrides == {}
    hidden = catalog.with_source("middle", FlagSet({"a": flag})).with_source("high", FlagSet({"a": flag}))
    assert hidden.hidden_overrides == {"low": {"a": "high"}}
