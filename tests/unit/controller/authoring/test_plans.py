"""What a change does to users: exact shares, against the evaluation of many users, and their words."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.authoring.plans import Beside, BothDefinitions, FlagPlan, NotArithmeticError, plan_flags
from controller.authoring.shares import HASHES, SAMPLES, assigned, moved, moves, synthetic_contexts
from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing, FlagSet
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.targeting import compile_rule
from evaluator.targeting.fractional import read_buckets
from evaluator.targeting.frame import STEPS, Frame

TIERS: Final = ("gold", "silver", "basic")
GOLD: Final = {"==": [{"var": "tier"}, "gold"]}
NEW: Final = {">=": [{"var": "version"}, 2]}
NOW: Final = 1_800_000_000
TIMES: Final = (0, 1_798_200_000, 1_798_500_000, NOW)
"""Before Christmas 2026, at Christmas, after it, and in the next year."""
VARIANTS: Final = {"a": 1, "b": 2, "c": 3, "again": 1}


def flags(
    rule: Any = None, default: str = "a", metadata: dict[str, Any] | None = None, **more: Any
) -> FlagSet:
    flag = {"state": "ENABLED", "variants": VARIANTS, "defaultVariant": default, **more}
    if rule is not None:
        flag["targeting"] = rule
    return parse(
        json.dumps({"flags": {"f": flag}, "metadata": metadata or {}}).encode(), file="f.json"
    ).flag_set


def split(*weights: tuple[str, int], by: Any = None) -> dict[str, Any]:
    return {"fractional": [*([] if by is None else [by]), *(list(weight) for weight in weights)]}


def planned(before: FlagSet, after: FlagSet, **known: Any) -> FlagPlan:
    (flag,) = plan_flags(before, after, NOW, Beside(**known))
    return flag


def brute_force(
    before: FlagSet, after: FlagSet, context: dict[str, Any], users: int, now: int = NOW
) -> float:
    """The share of users with this context who get another value."""
    sides = compile_flag_set(before), compile_flag_set(after)
    others = 0
    for number in range(users):
        each = {**context, "targetingKey": f"user-{number}", "email": f"{number}@example.com"}
        one, other = (resolve(side, "f", None, each, now).value for side in sides)
        others += one != other
    return others / users


VARIANT: Final = st.sampled_from(["a", "b", "c", "again"])
WEIGHTS: Final = st.lists(st.tuples(VARIANT, st.integers(0, 100)), min_size=1, max_size=4).filter(
    lambda entries: sum(weight for _, weight in entries) > 0
)
SEEDS: Final = st.sampled_from(
    [
        None,
        {"cat": ["seed", {"var": "targetingKey"}]},
        {"cat": [{"var": "$flagd.flagKey"}, {"var": "targetingKey"}]},
        {"var": "email"},
    ]
)
ATOMS: Final = st.sampled_from(
    [
        GOLD,
        NEW,
        {"==": [{"var": "tier"}, "silver"]},
        {"in": [{"var": "tier"}, ["gold", "basic"]]},
        {"!=": ["gold", {"var": "tier"}]},
        {"starts_with": [{"var": "tier"}, "g"]},
        {"between": ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]},
        {"between": ["2026-12-25T00:00", "2027-01-01T00:00", "UTC"]},
        {">=": [{"var": "$flagd.timestamp"}, TIMES[1]]},
    ]
)
CONDITIONS: Final = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"!": [part]}),
    ),
    max_leaves=3,
)
LEAVES: Final = st.one_of(
    VARIANT, st.none(), st.builds(lambda weights, by: split(*weights, by=by), WEIGHTS, SEEDS)
)
RULES: Final = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(CONDITIONS, inner, inner).map(lambda parts: {"if": [*parts]}),
        st.tuples(CONDITIONS, inner).map(lambda parts: {"if": [*parts]}),
        st.tuples(CONDITIONS, inner, CONDITIONS, inner, inner).map(lambda parts: {"if": [*parts]}),
    ),
    max_leaves=4,
)
PINS: Final = st.sampled_from(["v2", "v3"]).map(lambda pin: {"flagstaff.dev/bucketing": pin})


def check_against_brute_force(before: FlagSet, after: FlagSet, now: int, users: int) -> None:
    """Each user is in one way, and each way's share is that of its users."""
    found = BothDefinitions((compile_flag_set(before), compile_flag_set(after)), "f").ways()
    shares = {}
    for tier, version in product(TIERS, (1, 2)):
        context = {"tier": tier, "version": version, "targetingKey": "u", "$flagd": {"timestamp": now}}
        frame = Frame()
        frame.steps_left, frame.trace = STEPS, None
        ways = [
            way
            for way in found
            if way.condition is True
            or compile_rule(way.condition, bucketing=Bucketing.V2, flag_key="f").run(context, frame) is True
        ]
        assert len(ways) == 1
        shares[tier, version] = float(moved(ways[0].pairs))
    for (tier, version), share in shares.items():
        counted = brute_force(before, after, {"tier": tier, "version": version}, users, now)
        # Five standard deviations, so that chance alone does not fail one of a thousand cases.
        assert abs(counted - share) <= 5 * (max(share * (1 - share), 0.01) / users) ** 0.5


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RULES, RULES, PINS, PINS, st.sampled_from(TIMES))
def test_share_is_what_a_thousand_users_of_each_kind_get(
    before: Any, after: Any, pin: dict[str, Any], other: dict[str, Any], now: int
) -> None:
    check_against_brute_force(flags(before, metadata=pin), flags(after, metadata=other), now, 1_000)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RULES, RULES, PINS, PINS, st.sampled_from(TIMES))
def test_share_is_what_200_000_users_of_each_kind_get(
    before: Any, after: Any, pin: dict[str, Any], other: dict[str, Any], now: int
) -> None:
    check_against_brute_force(flags(before, metadata=pin), flags(after, metadata=other), now, 200_000)


@given(WEIGHTS, WEIGHTS)
def test_share_of_one_hash_is_exact_to_the_last_hash(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    both = [read_buckets([list(entry) for entry in entries]) for entries in (before, after)]
    one, other = both
    assert one is not None
    assert other is not None
    pairs = moves(*(assigned("h", each, [str(result) for result in each.results]) for each in (one, other)))
    edges = {0, HASHES}
    for each in (one, other):
        for end in range(each.total + 1):
            guess = (end << 32) // each.total
            edges |= {hash_ for hash_ in (guess - 1, guess, guess + 1) if 0 <= hash_ <= HASHES}
    ordered = sorted(edges)
    count = sum(
        following - hash_
        for hash_, following in pairwise(ordered)
        if one.result(hash_ * one.total >> 32) != other.result(hash_ * other.total >> 32)
    )
    assert moved(pairs) * HASHES == count


def test_greater_share_moves_only_those_who_gain() -> None:
    flag = planned(flags(split(("b", 10), ("a", 90))), flags(split(("b", 25), ("a", 75))))
    assert flag.method == "Arithmetic"
    assert (flag.least, flag.most) == pytest.approx((15, 15))
    (branch,) = flag.branches
    assert (branch.who, branch.by, branch.needless) == ("", "user", 0)
    assert [(move.before, move.after) for move in branch.moves] == [("a", "b")]


def test_another_order_of_weights_moves_users_needlessly() -> None:
    flag = planned(flags(split(("b", 10), ("a", 90))), flags(split(("a", 80), ("b", 20))))
    assert flag.branches[0].percent == pytest.approx(30)
    assert flag.branches[0].needless == pytest.approx(20)


def test_another_seed_draws_all_users_anew() -> None:
    seed = {"cat": ["other", {"var": "targetingKey"}]}
    flag = planned(flags(split(("b", 50), ("a", 50))), flags(split(("b", 50), ("a", 50), by=seed)))
    assert flag.branches[0].percent == pytest.approx(50)
    assert flag.branches[0].needless == pytest.approx(50)


def test_only_the_users_of_a_branch_move() -> None:
    before = {"if": [GOLD, "b", "a"]}
    after = {"if": [{"and": [GOLD, NEW]}, "b", "a"]}
    flag = planned(flags(before), flags(after))
    assert (flag.least, flag.most) == (0, 100)
    assert [branch.who for branch in flag.branches] == ["tier is gold and version is less than 2"]


def test_conditions_that_exclude_each_other_make_no_branch() -> None:
    silver = {"==": [{"var": "tier"}, "silver"]}
    before = {"if": [GOLD, "b", silver, "c", "a"]}
    after = {"if": [silver, "c", GOLD, "b", "a"]}
    assert not planned(flags(before), flags(after)).branches


def test_conditions_within_a_condition_and_those_of_no_attribute_make_no_branch() -> None:
    same_text = {"==": ["a", "a"]}
    before = {"if": [{"if": [{"and": [same_text, GOLD]}, True, False]}, "b", "a"]}
    after = {"if": [{"==": [{"var": "$flagd.flagKey"}, "other"]}, "c", GOLD, "b", "a"]}
    assert not planned(flags(before), flags(after)).branches


def test_rule_that_is_a_schedule_is_said_in_words_and_has_arithmetic() -> None:
    christmas = ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]
    variants = {"true": 1, "false": 2}
    off = flags(default="false", variants=variants)
    flag = planned(off, flags({"between": christmas}, "false", variants=variants))
    words = "the time is between 2026-12-24 18:00 and 2026-12-27 06:00 Europe/Berlin"
    assert flag.words == f"targeting none → {words}"
    assert (flag.method, flag.least, flag.most) == ("Arithmetic", 0, 100)
    assert [branch.who for branch in flag.branches] == [words]
    added = planned(FlagSet(), flags({"and": [{"between": christmas}, GOLD]}, "false", variants=variants))
    assert added.words == f"added, default false (2); if {words} and tier is gold: true; else false"


def test_schedules_within_a_new_rule_are_said_in_words_in_their_place() -> None:
    christmas = {"between": ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]}
    words = "the time is between 2026-12-24 18:00 and 2026-12-27 06:00 Europe/Berlin"
    rule = planned(flags(), flags({"if": [christmas, "b"]}))
    assert rule.words == f'targeting none → {{"if":[{words},"b"]}}'
    both = planned(flags(), flags({"if": [{"or": [christmas, GOLD]}, "b"]}))
    gold = json.dumps(GOLD, separators=(",", ":"))
    assert both.words == f'targeting none → {{"if":[{{"or":[{words},{gold}]}},"b"]}}'
    # What has none is as short as ever.
    long = {"in": [{"var": "tier"}, ["x" * 100]]}
    another = planned(flags({"if": [christmas, "b"]}), flags(long)).words
    assert len(another.rpartition(" → ")[2]) == 64


def test_schedule_that_ends_later_gives_users_another_value_in_between_alone() -> None:
    sides = [
        flags({"if": [{"between": ["2026-12-24T18:00", f"2026-12-{day}T06:00", "Europe/Berlin"]}, "b"]})
        for day in (27, 28)
    ]
    flag = planned(*sides)
    start = "between 2026-12-24 18:00 and 2026-12"
    assert flag.words == (
        f"targeting $.if[0]: the time is {start}-27 06:00 Europe/Berlin → "
        f"the time is {start}-28 06:00 Europe/Berlin"
    )
    (branch,) = flag.branches
    assert branch.who == (
        f"the time is not {start}-27 06:00 Europe/Berlin and the time is {start}-28 06:00 Europe/Berlin"
    )


def test_many_alternatives_are_one_branch() -> None:
    tiers = [{"==": [{"var": "tier"}, f"t{number}"]} for number in range(40)]
    flag = planned(flags({"if": [{"or": tiers}, "b", "a"]}), flags({"if": [{"or": tiers}, "c", "a"]}))
    assert flag.method == "Arithmetic"
    (branch,) = flag.branches
    assert branch.who.startswith("tier is t0 or tier is t1")


def test_variants_with_the_same_value_move_nobody() -> None:
    flag = planned(flags("a"), flags("again"))
    assert (flag.most, flag.branches) == (0, ())


def test_metadata_moves_nobody() -> None:
    flag = planned(flags("a"), flags("a", metadata={"owner": "shop"}))
    assert (flag.method, flag.most) == ("Arithmetic", 0)


def test_new_flag_has_no_share_and_a_removed_one_moves_all_users_with_a_value() -> None:
    added = planned(FlagSet(), flags(split(("b", 10), ("a", 90))))
    assert (added.change, added.most) == ("Added", None)
    assert added.words == "added, default a (1); b for 10 % and a for 90 %, by user"
    removed = planned(flags("a"), FlagSet())
    assert (removed.change, removed.most, removed.branches[0].moves[0].after) == ("Removed", 100, "")


def test_share_of_what_is_hashed_names_it() -> None:
    by = {"cat": ["s", {"var": "company"}]}
    flag = planned(flags(split(("b", 1), ("a", 3), by=by)), flags(split(("b", 1), ("a", 1), by=by)))
    assert flag.branches[0].by == "company"


@pytest.mark.parametrize(
    "rule",
    [
        {"var": "variant"},
        {"fractional": [["b", {"var": "weight"}], ["a", 50]]},
        {"if": [{"==": [split(("b", 1), ("a", 1)), "b"]}, "b", "a"]},
        {"if": [{"==": [{"var": "targetingKey"}, "user-1"]}, split(("b", 1), ("c", 1)), "a"]},
        split(("b", 1), ("c", 1), by="everybody alike"),
    ],
)
def test_rule_without_arithmetic_is_asked_for_synthetic_contexts(rule: Any) -> None:
    with pytest.raises(NotArithmeticError):
        BothDefinitions((compile_flag_set(flags("c")), compile_flag_set(flags(rule))), "f").ways()
    assert planned(flags("c"), flags(rule)).method == "SyntheticContexts"


def test_synthetic_contexts_are_the_same_each_time_and_on_both_sides_of_each_constant() -> None:
    rules = [{"if": [{"and": [GOLD, NEW]}, {"var": "x"}, "a"]}, {"sem_ver": [{"var": "app"}, ">=", "1.2.3"]}]
    contexts = [*synthetic_contexts(rules)]
    assert contexts == [*synthetic_contexts(rules)]
    assert len(contexts) == SAMPLES
    assert {context.get("tier") for context in contexts} >= {"gold", "goldx", None}
    assert {context.get("version") for context in contexts} >= {1, 2, 3, None}
    assert {context.get("app") for context in contexts} >= {"1.2.3", "1.2.4", "0.0.1", None}


def test_given_contexts_are_counted_where_they_are_given() -> None:
    contexts = [{"targetingKey": "1", "tier": "gold"}, {"targetingKey": "2", "tier": "basic"}]
    flag = planned(flags({"if": [GOLD, "b", "a"]}), flags("a"), contexts=contexts)
    assert (flag.method, flag.least, flag.most, flag.of_contexts) == ("Arithmetic", 0, 100, 50)
    flag = planned(flags({"var": "tier"}), flags("b"), contexts=contexts)
    assert (flag.method, flag.most) == ("GivenContexts", 100)


def test_values_of_secrets_are_not_described() -> None:
    secret = {"metadata": {"flagstaff.dev/secret": True}}
    sides = [
        FlagSet({"f": flag_of(flags({"if": [GOLD, variant, "a"]}), secret["metadata"])})
        for variant in ("b", "c")
    ]
    flag = planned(*sides)
    assert flag.branches[0].who == ""
    assert "gold" not in flag.words


def flag_of(flag_set: FlagSet, metadata: dict[str, Any]) -> Any:
    return replace(flag_set.flags["f"], metadata=metadata)


def test_rollout_and_override_of_a_flag_are_named() -> None:
    flag = planned(flags("a"), flags("b"), rollouts={"f": "slow"}, overrides={"f": "incident"})
    assert (flag.rollout, flag.override) == ("slow", "incident")
