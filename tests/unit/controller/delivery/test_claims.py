"""Who wins a name or a flagSetId, and which objects a change affects: the index answers as a look at all
objects.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.meta import ObjectKey, Resource
from controller.delivery.claims import UNCHANGED, Claim, ClaimIndex, Conflict, claim_of
from tests.worlds.objects import thing

FFC, FLAG = "FeatureFlagConfiguration", "FeatureFlag"
KEYS = [ObjectKey(kind, space, name) for kind in (FFC, FLAG) for space in "ab" for name in "xyz"]
PART = ObjectKey("FlagShard", "a", "part")


def claim(kind: str, place: str, flag_set_id: str = "", created: str = "1", **more: Any) -> Claim:
    return Claim(ObjectKey(kind, *place.split("/")), created, flag_set_id=flag_set_id, **more)


def index(*there: Claim) -> ClaimIndex:
    claims = ClaimIndex()
    for each in there:
        claims.learn(each)
    return claims


def conflicts(claims: ClaimIndex, kind: str, place: str) -> list[tuple[str, str, str]]:
    """(reason, loser, winner) of each conflict that an object hears of."""
    found = claims.conflicts_of(ObjectKey(kind, *place.split("/")))
    return [(each.reason, str(each.loser), str(each.winner)) for each in found]


SHADOW = ("Shadowed", "FeatureFlag/a/x", "FeatureFlagConfiguration/a/x")
TAKEN = ("FlagSetIdTaken", "FeatureFlagConfiguration/a/y", "FeatureFlagConfiguration/a/x")
ROWS: dict[str, tuple[list[Claim], list[Any], list[Any]]] = {
    "one name": ([claim(FFC, "a/x"), claim(FLAG, "a/x")], [SHADOW], [SHADOW]),
    "one name, of one FlagSet": (
        [claim(FFC, "a/x", maker="s"), claim(FLAG, "a/x", maker="s")], [], [],
    ),
    "one name, of two FlagSets": (
        [claim(FFC, "a/x", maker="s"), claim(FLAG, "a/x", maker="t")], [SHADOW], [SHADOW],
    ),
    "one name in two namespaces": ([claim(FFC, "a/x"), claim(FLAG, "b/x")], [], []),
    "two flagSetIds": ([claim(FFC, "a/x", "one"), claim(FFC, "a/y", "two")], [], []),
    "no flagSetId": ([claim(FFC, "a/x"), claim(FFC, "a/y")], [], []),
    "one flagSetId, by age": (
        [claim(FFC, "a/x", "id", "2"), claim(FFC, "a/y", "id", "3")], [TAKEN], [TAKEN],
    ),
    "one flagSetId, by name": ([claim(FFC, "a/x", "id"), claim(FFC, "a/y", "id")], [TAKEN], [TAKEN]),
    "the oldest of three": (
        [claim(FFC, "a/x", "id"), claim(FFC, "a/y", "id"), claim(FFC, "a/z", "id")], [TAKEN], [TAKEN],
    ),
    "a younger one in another namespace": (
        [claim(FFC, "a/x", "id"), claim(FFC, "b/y", "id")], [],
        [("FlagSetIdTaken", "FeatureFlagConfiguration/b/y", "FeatureFlagConfiguration/a/x")],
    ),
    "an older one in another namespace": (
        [claim(FFC, "a/x", "id", "2"), claim(FFC, "b/y", "id", "1")],
        [("FlagSetIdTaken", "FeatureFlagConfiguration/a/x", "FeatureFlagConfiguration/b/y")], [],
    ),
    "a flagSetId of what is not served": (
        [claim(FFC, "a/x"), claim(FLAG, "a/x", "id"), claim(FFC, "a/y", "id")], [SHADOW], [SHADOW],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("there", "of_x", "of_other"), ROWS.values(), ids=ROWS.keys())
def test_both_sides_of_a_conflict_have_it(there: list[Claim], of_x: Any, of_other: Any) -> None:
    claims = index(*there)
    assert conflicts(claims, FFC, "a/x") == of_x
    other = there[1].key
    assert conflicts(claims, other.kind, f"{other.namespace}/{other.name}") == of_other


def test_the_flag_set_id_of_a_sharded_set_stands_in_its_shards() -> None:
    claims = index(claim(FFC, "a/x", shards=("part",)), claim(FFC, "a/y", "id"))
    change = claims.learn(Claim(PART, "9", flag_set_id="id"))
    assert change.rivals == {ObjectKey(FFC, "a", "x"), ObjectKey(FFC, "a", "y")}
    assert conflicts(claims, FFC, "a/y") == [TAKEN]
    assert claims.forget(PART).rivals == change.rivals
    assert conflicts(claims, FFC, "a/y") == []


def test_a_shard_of_two_objects_with_one_name_is_let_go_of_twice() -> None:
    both = [claim(kind, "a/x", shards=("part",)) for kind in (FFC, FLAG)]
    claims = index(*both)
    claims.forget(both[0].key)
    assert claims.learn(Claim(PART, "9", flag_set_id="id")).claims == {"id"}
    claims.forget(both[1].key)
    assert claims.learn(Claim(PART, "9", flag_set_id="other")) == UNCHANGED


STATES = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["", "one", "a/one"]), st.sampled_from("123"), st.sampled_from(["", "s"])),
)  # fmt: skip
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), STATES), max_size=30)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_an_object_whose_conflicts_change_is_among_the_rivals(events: Any) -> None:
    claims = ClaimIndex()
    there: dict[ObjectKey, Claim] = {}
    for key, state in events:
        before = {each: shown_conflicts(claims, each) for each in there}
        if state is None:
            change = claims.forget(key)
            there.pop(key, None)
        else:
            there[key] = Claim(key, state[1], flag_set_id=state[0], maker=state[2])
            change = claims.learn(there[key])
        after = {each: shown_conflicts(claims, each) for each in there}
        # What came looks at itself in any case.
        assert {each for each in after if after[each] != before.get(each, [])} <= change.rivals | {key}
        assert change.rivals <= there.keys()
        assert sorted(claims.conflicts(), key=str) == sorted(every(there), key=str)


def shown_conflicts(claims: ClaimIndex, key: ObjectKey) -> list[Any]:
    """What the status of an object shows: no object of another namespace is named to it."""

    def shown_key(other: ObjectKey | None) -> ObjectKey | None:
        return other if other is not None and other.namespace == key.namespace else None

    found = claims.conflicts_of(key)
    return [(each.reason, shown_key(each.loser), shown_key(each.winner), each.claim) for each in found]


def every(there: dict[ObjectKey, Claim]) -> list[Conflict]:
    """All conflicts, by looking at everything."""
    found = []
    served = {each.place: each for kind in (FLAG, FFC) for each in there.values() if each.key.kind == kind}
    for key, each in there.items():
        winner = served[each.place]
        if winner.key != key and not (winner.maker and winner.maker == each.maker):
            found.append(Conflict("Shadowed", key, winner.key, "/".join(each.place)))
    for wanted in ("one", "two", "a/one"):
        claiming = [each for each in served.values() if each.flag_set_id == wanted]
        foreign = [each for each in claiming if wanted == "a/one" and each.place[0] != "a"]
        found += [Conflict("FlagSetIdForeign", each.key, None, wanted) for each in foreign]
        ordered = sorted(
            (each for each in claiming if each not in foreign), key=lambda each: (each.created, each.place)
        )
        found += [Conflict("FlagSetIdTaken", each.key, ordered[0].key, wanted) for each in ordered[1:]]
    return found


def test_a_flag_set_id_with_a_namespace_belongs_to_that_namespace() -> None:
    claims = ClaimIndex()
    claims.learn(claim(FFC, "evil/x", "shop/flags", created="1"))
    assert claims.holders("shop/flags") == []
    (refused,) = claims.conflicts_of(ObjectKey(FFC, "evil", "x"))
    assert (refused.reason, refused.winner, refused.claim) == ("FlagSetIdForeign", None, "shop/flags")
    claims.learn(claim(FFC, "shop/flags", "shop/flags", created="2"))
    assert claims.holders("shop/flags") == [("shop", "flags")]
    claims.learn(claim(FFC, "evil/x", "evil/x", created="1"))
    assert claims.conflicts_of(ObjectKey(FFC, "evil", "x")) == []


def body(spec: Any, kind: str = FFC, **meta: Any) -> Resource:
    return thing(kind, "x", spec, namespace="a", **meta)


HELD = {"flags": {}, "metadata": {"flagSetId": "id"}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"flagSpec": HELD}, "id"),
        ({"featureFlagSpec": HELD}, "id"),
        ({"featureFlagSpec": '{"metadata": {"flagSetId": "id"}}'}, "id"),
        ({"featureFlagSpec": "{"}, ""),
        ({"featureFlagSpec": "[" * 10_000}, ""),
        ({"flagSpec": {"metadata": {"flagSetId": 7}}}, ""),
        ({"flagSpec": {"metadata": []}}, ""),
        ({"flagSpec": []}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_a_flag_set_id_is_read_in_every_form_and_nothing_odd_hurts(spec: Any, wanted: str) -> None:
    assert claim_of(body(spec), spec).flag_set_id == wanted


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (body({"flagSpec": HELD}), body({"flagSpec": HELD}, resourceVersion="2")),
        (None, None),
        (None, body({}, "FlagSet")),
        (body({}, "FlagReceipt"), None),
    ],
    ids=["another status", "nothing", "another kind", "another kind that goes"],
)
def test_what_claims_nothing_else_changes_nothing(before: Any, after: Any) -> None:
    assert ClaimIndex().follow(before, after) == UNCHANGED


def test_an_object_is_followed_as_it_comes_changes_and_goes() -> None:
    claims = index(claim(FLAG, "a/x"))
    one, two = body({"flagSpec": HELD}), body({}, generation=2)
    assert claims.follow(None, one).claims == claims.follow(one, two).claims == {"id"}
    assert conflicts(claims, FLAG, "a/x") == [SHADOW]
    assert claims.follow(two, None).rivals == {ObjectKey(FLAG, "a", "x")}
