from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import (
    candidate_digest,
    capture,
    changed_flags,
    definition_digest,
    matches,
    misfits,
    settle,
    with_promoted,
)
from evaluator.flags.canonical import canonical, digest
from evaluator.flags.known_operators import NODES
from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT, BUCKETING_KEY, CONFIDENTIAL_KEY, Bucketing, Flag, FlagSet, State
from evaluator.flags.overrides import OVERRIDE_HIDES_KEY, OVERRIDE_KEY, Override, without_override
from evaluator.flags.references import Expander
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import (
    ROLLOUT_CANDIDATE_KEY,
    ROLLOUT_KEY,
    ROLLOUT_SHARE_KEY,
    ROLLOUT_STEP_KEY,
    Arm,
    CohortReach,
    Exposure,
    Rollout,
    arm_rule,
    reach_of,
    without_rollouts,
)
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.sync_messages import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.resolving.resolution import Resolution

NOW = 1_700_000_000
COUNTRY = {"==": [{"var": "country"}, "NL"]}
STAFF = {"ends_with": [{"var": "email"}, "@example.com"]}
VARIANTS = {"on": 1, "off": 0, "true": 2, "false": 3, "red": 4}
RULES: list[Any] = [
    ABSENT,
    {},
    None,
    False,
    "on",
    {"if": [COUNTRY, "on"]},
    {"if": [COUNTRY, "on", "off"]},
    {"if": [COUNTRY, None, "on"]},
    {"var": "flag"},
    {"==": [{"var": "country"}, "NL"]},
    {"missing": ["country"]},
    {"$ref": "nl"},
    {"if": [{"$ref": "nl"}, "red", {"fractional": [["on", 1], ["off", 2]]}]},
    {"fractional": [["on", 40], ["off", 60]]},
    {"fractional": [{"var": "email"}, ["on", 10], ["red", 1]]},
]
EVALUATORS: dict[str, Any] = {"nl": COUNTRY}
OTHER_EVALUATORS = {"nl": {"==": [{"var": "country"}, "BE"]}}
BY_TIER = {"var": "tier"}
THREE = {"on": True, "off": False, "new": True}
SPLIT = {"fractional": [["on", 50], ["off", 50]]}
SALT = "checkout/0a1b2c3d"


def flags(*states: State) -> st.SearchStrategy[Flag]:
    names = st.sets(st.sampled_from(sorted(VARIANTS)), min_size=1)
    return names.flatmap(
        lambda chosen: st.builds(
            Flag,
            st.just("f"),
            st.sampled_from(states or [State.ENABLED]),
            st.just({name: VARIANTS[name] for name in sorted(chosen)}),
            st.sampled_from([None, *sorted(chosen)]),
            st.sampled_from(RULES),
            st.sampled_from([{}, {"owner": "shop"}]),
        )
    )


contexts = st.fixed_dictionaries(
    {},
    optional={
        "targetingKey": st.one_of(st.text(max_size=4), st.sampled_from([None, 5, 0, True])),
        "country": st.sampled_from(["NL", "BE"]),
        "email": st.sampled_from(["a@example.com", "b@example.org"]),
        "flag": st.sampled_from(["on", "off", "other", None, 1, False]),
    },
)
cohorts = st.builds(
    Cohort,
    st.one_of(st.just(10_000), st.integers(1, 10_000)),
    st.sampled_from([(), (STAFF,), (COUNTRY, STAFF)]),
)
bucketing = st.sampled_from(Bucketing)


def a_set(flag: Flag, evaluators: Mapping[str, Any] = EVALUATORS, **metadata: Any) -> FlagSet:
    return FlagSet({flag.key: flag}, evaluators, metadata)


def a_flag(key: str = "f", **fields: Any) -> Flag:
    parts: dict[str, Any] = {"state": State.ENABLED, "variants": {"on": True, "off": False}}
    return Flag(**{"key": key, "default_variant": "off", **parts, **fields})


def exposure(new: FlagSet, old: FlagSet, patterns: tuple[str, ...] = ("f",), **fields: Any) -> Exposure:
    changed = changed_flags(new, old, patterns)
    parts: dict[str, Any] = {"cohort": Cohort(10_000), "salt": SALT, "step": "1/4"}
    return Exposure(candidate_digest(changed), changed, **{**parts, **fields})


def rollout(new: FlagSet, old: FlagSet, **fields: Any) -> Rollout:
    """A rollout of all that differs, as one candidate."""
    return with_exposures(old, exposure(new, old, **fields))


def with_exposures(old: FlagSet, *exposures: Exposure, patterns: tuple[str, ...] = ("f",)) -> Rollout:
    return Rollout("checkout", patterns, old, digest(old), exposures)


def serve(new: FlagSet, *rollouts: Rollout) -> FlagSet:
    """What evaluators read: after the journey over the wire."""
    sent = encode(effective(new, Progress(rollouts=rollouts)))
    parsed = parse(sent, file="sent")
    assert not parsed.errors
    return parsed.flag_set


def answer(
    flag_set: FlagSet, context: Mapping[str, Any], generation: Bucketing = Bucketing.V2, key: str = "f"
) -> tuple[Any, ...]:
    given = resolution(flag_set, context, generation, key)
    return given.value, given.variant, given.error_code


def resolution(
    flag_set: FlagSet, context: Mapping[str, Any], generation: Bucketing, key: str = "f"
) -> Resolution:
    return resolve(compile_flag_set(flag_set, bucketing=generation), key, None, context, NOW)


def arm(flag_set: FlagSet, context: Mapping[str, Any], generation: Bucketing = Bucketing.V2) -> object:
    return answer(with_arms(flag_set), context, generation)[1]


def with_arms(flag_set: FlagSet) -> FlagSet:
    """A set whose flag has the arms as variants."""
    arms = a_flag(targeting=arm_rule(flag_set.flags["f"]), variants={side: side for side in Arm})
    return replace(flag_set, flags={"f": arms})


@given(flags(), flags(*State), cohorts, contexts, bucketing)
def test_a_user_gets_the_new_definition_in_the_cohort_and_the_promoted_one_outside(
    new: Flag, old: Flag, cohort: Cohort, context: dict[str, Any], generation: Bucketing
) -> None:
    desired, promoted = a_set(new), a_set(old, OTHER_EVALUATORS)
    assume(changed_flags(desired, promoted, ("f",)))
    made = serve(desired, rollout(desired, promoted, cohort=cohort))
    side = arm(made, context, generation)
    before, after, present = (answer(one, context, generation) for one in (promoted, desired, made))
    expected = after if side == "candidate" else before
    assert present == expected
    key = context.get("targetingKey")
    assert (side == "excluded") == (not isinstance(key, str) or not key)
    if cohort.share == 10_000 and side != "excluded" and not misfits(desired, promoted, "f"):
        assert side == "candidate"


@given(flags(), flags(), contexts)
def test_at_share_zero_everybody_gets_the_promoted_definition(
    new: Flag, old: Flag, context: dict[str, Any]
) -> None:
    desired, promoted = a_set(new), a_set(old)
    assume(changed_flags(desired, promoted, ("f",)))
    another = exposure(desired, promoted, cohort=Cohort(10_000))
    for unexposed in (replace(another, cohort=None), replace(another, flags={"f": "another"})):
        made = serve(desired, with_exposures(promoted, unexposed))
        assert answer(made, context) == answer(promoted, context)
        assert arm(made, context) in {"baseline", "excluded"}


@given(flags(), flags())
def test_for_everyone_the_desired_definition_is_served_as_it_is(new: Flag, old: Flag) -> None:
    desired, promoted = a_set(new), a_set(old)
    assert effective(desired, Progress(rollouts=(rollout(desired, promoted, everyone=True),))) is desired


@pytest.mark.parametrize(
    ("generation", "count", "shares"),
    [
        (Bucketing.V2, 200_000, (100, 1_000, 5_000)),
        (Bucketing.V3, 20_000, (1, 100, 1_000, 1_001, 5_000, 9_999)),
        (Bucketing.V3, 200_000, (1, 1_000, 1_001)),
    ],
)
def test_a_growing_share_removes_nobody(generation: Bucketing, count: int, shares: tuple[int, ...]) -> None:
    old, new = a_set(a_flag(targeting=SPLIT)), a_set(a_flag(targeting=SPLIT, default_variant="on"))
    before: set[str] = set()
    for share in shares:
        made = effective(new, Progress(rollouts=(rollout(new, old, cohort=Cohort(share)),)))
        cohort = users_with(with_arms(made), "candidate", count, generation)
        assert before <= cohort
        expected = count * share / 10_000
        assert len(cohort) == pytest.approx(expected, abs=5 * expected**0.5)
        before = cohort


def users_with(flag_set: FlagSet, variant: str, count: int, generation: Bucketing = Bucketing.V2) -> set[str]:
    compiled = compile_flag_set(flag_set, bucketing=generation)
    users = (f"user-{number}" for number in range(count))
    return {
        user for user in users if resolve(compiled, "f", None, {"targetingKey": user}, NOW).variant == variant
    }


@pytest.mark.parametrize("share", [0, 5_000, 10_000])
def test_users_who_are_excluded_get_the_promoted_definition_and_nobody_else_moves(share: int) -> None:
    old, new = a_set(a_flag(targeting="off")), a_set(a_flag(targeting="on"))
    everybody = serve(new, rollout(new, old, cohort=Cohort(share, (STAFF,))))
    some = serve(new, rollout(new, old, cohort=Cohort(share, (STAFF,), (COUNTRY,))))
    for number in range(200):
        for country in ("NL", "BE"):
            context = {
                "targetingKey": f"user-{number}",
                "country": country,
                "email": f"{number % 3}@example.com",
            }
            expected = "off" if country == "NL" else answer(everybody, context)[1]
            assert answer(some, context)[1] == expected


def test_the_cohort_is_drawn_by_the_salt_and_so_from_all_variants_alike() -> None:
    old, new = a_set(a_flag(targeting=SPLIT)), a_set(a_flag(targeting="on"))
    one, other = (
        users_with(
            with_arms(serve(new, rollout(new, old, cohort=Cohort(1_000), salt=salt))), "candidate", 20_000
        )
        for salt in ("a/1", "b/1")
    )
    assert len(one & other) == pytest.approx(200, abs=70)
    assert len(one & users_with(old, "on", 20_000)) == pytest.approx(1_000, abs=120)


def test_a_static_flag_has_the_reason_targeting_match_during_its_rollout() -> None:
    old, new = a_set(a_flag()), a_set(a_flag(default_variant="on"))
    made = serve(new, rollout(new, old, cohort=Cohort(5_000)))
    reasons = {str(resolution(made, {"targetingKey": f"u{n}"}, Bucketing.V2).reason) for n in range(50)}
    assert reasons == {"TARGETING_MATCH"}
    # Clients keep answers with the reason STATIC.
    assert {str(resolution(one, {}, Bucketing.V2).reason) for one in (old, new)} == {"STATIC"}


def test_the_metadata_of_a_flag_names_rollout_step_share_and_candidate() -> None:
    old = a_set(a_flag(metadata={"owner": "old", CONFIDENTIAL_KEY: True}))
    new = a_set(a_flag(default_variant="on", metadata={"owner": "new"}))
    under_way = rollout(new, old, cohort=Cohort(25), step="2/4")
    made = serve(new, under_way).flags["f"].metadata
    assert made == {
        "owner": "new",
        CONFIDENTIAL_KEY: True,
        ROLLOUT_KEY: "checkout",
        ROLLOUT_STEP_KEY: "2/4",
        ROLLOUT_SHARE_KEY: "0.25",
        ROLLOUT_CANDIDATE_KEY: under_way.exposures[0].candidate,
    }
    held = serve(new, rollout(new, old, cohort=None)).flags["f"].metadata
    assert (held[ROLLOUT_SHARE_KEY], held[ROLLOUT_CANDIDATE_KEY]) == ("0", made[ROLLOUT_CANDIDATE_KEY])
    assert ROLLOUT_STEP_KEY not in held
    unknown = serve(new, with_exposures(old)).flags["f"].metadata
    assert unknown[ROLLOUT_SHARE_KEY] == "0"
    assert unknown.keys().isdisjoint({ROLLOUT_STEP_KEY, ROLLOUT_CANDIDATE_KEY})


@pytest.mark.parametrize(
    ("new", "old", "misfit"),
    [
        (
            a_flag(targeting=SPLIT, metadata={BUCKETING_KEY: "v3"}),
            a_flag(targeting=SPLIT),
            "BucketingChanged",
        ),
        (a_flag(variants={"on": 1}, default_variant="on"), a_flag(), "TypeChanged"),
        (a_flag(variants={"on": 1}), a_flag(variants={"on": 2}), "VariantValueChanged"),
        (a_flag(variants={"a&b": True}, default_variant="a&b"), a_flag(), "VariantNameEscaped"),
        (a_flag(variants=THREE, targeting=BY_TIER), a_flag(targeting=BY_TIER), "VariantNotInBoth"),
        (a_flag(targeting=BY_TIER), a_flag(variants=THREE), "VariantNotInBoth"),
        (a_flag(variants=THREE), a_flag(targeting={"if": [COUNTRY, "new"]}), "VariantNotInBoth"),
        (a_flag(targeting={"if": [COUNTRY, "new"]}), a_flag(variants=THREE), "VariantNotInBoth"),
        (
            a_flag(targeting={"if": [{"in": [{"var": "id"}, {"merge": ["x"] * (NODES // 2)}]}, "on"]}),
            a_flag(targeting={"if": [{"in": [{"var": "id"}, {"merge": ["y"] * (NODES // 2)}]}, "on"]}),
            "RuleTooLarge",
        ),
    ],
)
def test_definitions_that_cannot_be_served_side_by_side_stay_promoted_with_their_candidate_alone(
    new: Flag, old: Flag, misfit: str
) -> None:
    flags_now = {"f": new, "g": a_flag("g", default_variant="on"), "h": a_flag("h", default_variant="on")}
    desired = FlagSet(flags_now)
    promoted = FlagSet({"f": old, "g": a_flag("g"), "h": a_flag("h")})
    changed = changed_flags(desired, promoted, ("*",))
    assert misfits(desired, promoted, changed) == {"f": misfit}
    with_misfit = exposure(desired, promoted, ("f", "g"))
    other = exposure(desired, promoted, ("h",))
    under_way = with_exposures(promoted, with_misfit, other, patterns=("*",))
    assert [one.reach for one in reach_of(desired, under_way)] == [CohortReach.HELD, CohortReach.EXPOSED]
    made = effective(desired, Progress(rollouts=(under_way,)))
    assert {key: made.flags[key].targeting for key in ("f", "g")} == {
        key: promoted.flags[key].targeting for key in ("f", "g")
    }
    assert made.flags["h"].metadata[ROLLOUT_SHARE_KEY] == "100"
    everyone = with_exposures(promoted, replace(with_misfit, everyone=True), patterns=("f", "g"))
    assert effective(desired, Progress(rollouts=(everyone,))) is desired


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (a_flag(variants=THREE, targeting=BY_TIER), a_flag(targeting=SPLIT)),
        (a_flag(targeting=SPLIT), a_flag(variants=THREE, targeting=BY_TIER)),
        (a_flag(default_variant="on", targeting=BY_TIER), a_flag(targeting=BY_TIER)),
        (a_flag(variants=THREE, targeting={}), a_flag(targeting={})),
        (a_flag(variants=THREE), a_flag(targeting=BY_TIER, state=State.DISABLED)),
    ],
)
def test_a_rule_that_gives_only_variants_of_its_own_definition_can_be_rolled_out(
    new: Flag, old: Flag
) -> None:
    assert changed_flags(a_set(new), a_set(old), ("f",)).keys() == {"f"}
    assert misfits(a_set(new), a_set(old), ("f",)) == {}


def test_new_deleted_and_disabled_flags_are_served_as_desired_at_once_and_then_promoted() -> None:
    promoted = FlagSet({key: a_flag(key) for key in ("changed", "deleted", "disabled", "same")})
    desired = FlagSet(
        {
            "changed": a_flag("changed", default_variant="on"),
            "disabled": a_flag("disabled", state=State.DISABLED),
            "new": a_flag("new", default_variant="on"),
            "same": a_flag("same", metadata={"owner": "shop"}),
            "elsewhere": a_flag("elsewhere"),
        }
    )
    patterns = ("changed", "deleted", "disabled", "new", "same")
    assert changed_flags(desired, promoted, patterns).keys() == {"changed"}
    made = effective(desired, Progress(rollouts=(Rollout("r", patterns, promoted, ""),)))
    assert {key for key in made.flags if made.flags[key] is not desired.flags[key]} == {"changed"}
    settled = settle(desired, promoted, patterns)
    assert settled.flags == {
        "changed": promoted.flags["changed"],
        **{key: desired.flags[key] for key in ("disabled", "new", "same")},
    }
    assert settle(desired, settled, patterns) is settled
    assert settle(promoted, promoted, patterns) is promoted


@given(flags(), flags())
def test_what_is_captured_of_what_is_served_is_no_candidate(new: Flag, other: Flag) -> None:
    desired = FlagSet({"f": new, "g": replace(other, key="g")}, EVALUATORS)
    promoted = capture(desired, ("f",))
    assert promoted.flags.keys() == {"f"}
    assert not changed_flags(desired, promoted, ("f",))
    read = parse(canonical(promoted), file="shard").flag_set
    assert not changed_flags(desired, read, ("f",))


@given(flags(), flags())
def test_the_digest_of_a_definition_is_of_what_it_means(new: Flag, old: Flag) -> None:
    desired, promoted = a_set(new), a_set(old, OTHER_EVALUATORS)
    changed = changed_flags(desired, promoted, ("f",))
    renamed = (
        json.loads(json.dumps(new.targeting).replace('"nl"', '"be"'))
        if new.targeting is not ABSENT
        else ABSENT
    )
    moved = replace(new, targeting=renamed, metadata={"owner": "another"})
    shared = {"be": COUNTRY}
    assert changed_flags(a_set(moved, shared), promoted, ("f",)) == changed


def test_of_two_rollouts_for_a_flag_the_first_counts() -> None:
    old, new = a_set(a_flag()), a_set(a_flag(default_variant="on"))
    first = rollout(new, old, cohort=None)
    second = replace(rollout(new, old), name="second")
    assert serve(new, first, second).flags["f"].metadata[ROLLOUT_KEY] == "checkout"
    assert serve(new, second, first).flags["f"].metadata[ROLLOUT_KEY] == "second"
    idle = replace(first, promoted=new)
    assert ROLLOUT_KEY not in serve(new, idle, second).flags["f"].metadata


def test_a_rollout_that_is_gone_holds_back_each_definition_that_it_held_until_that_flag_changes() -> None:
    old, new, newer = (
        FlagSet({key: a_flag(key, targeting=rule) for key in "fg"}) for rule in (ABSENT, "on", "off")
    )
    gone = replace(rollout(new, old, patterns=("*",), cohort=None), patterns=("*",), gone=True)
    made = effective(new, Progress(rollouts=(gone,)))
    assert {flag.targeting for flag in made.flags.values()} == {ABSENT}
    one_changed = replace(new, flags={**new.flags, "g": newer.flags["g"]})
    made = effective(one_changed, Progress(rollouts=(gone,)))
    assert {key: flag.targeting for key, flag in made.flags.items()} == {"f": ABSENT, "g": "off"}
    assert effective(newer, Progress(rollouts=(gone,))) is newer


@given(flags(), flags(), cohorts, contexts)
def test_an_override_is_over_a_rollout_and_gives_the_rollout_back(
    new: Flag, old: Flag, cohort: Cohort, context: dict[str, Any]
) -> None:
    desired, promoted = a_set(new), a_set(old)
    assume(changed_flags(desired, promoted, ("f",)))
    under_way = rollout(desired, promoted, cohort=cohort)
    variant = next(iter(old.variants))
    for wanted in (Override("o", "f", variant, "why", NOW + 60), Override("o", "f", None, "why", NOW + 60)):
        made = effective(desired, Progress((wanted,), (under_way,)))
        assert answer(made, context)[1] == wanted.variant
        assert arm(made, context) == "excluded"
        assert (
            without_override(made.flags["f"])
            == effective(desired, Progress(rollouts=(under_way,))).flags["f"]
        )
    for_some = Override("o", "f", variant, "why", NOW + 60, STAFF)
    made = effective(desired, Progress((for_some,), (under_way,)))
    if context.get("email") != "a@example.com":
        plain = effective(desired, Progress(rollouts=(under_way,)))
        assert (answer(made, context), arm(made, context)) == (answer(plain, context), arm(plain, context))


@given(
    st.sampled_from([*RULES, {"if": []}, {"if": [1]}, {"if": "on"}, {"if": [True, "on", "off"]}]),
    st.sets(st.sampled_from([ROLLOUT_KEY, ROLLOUT_STEP_KEY, OVERRIDE_KEY, OVERRIDE_HIDES_KEY])),
    st.sampled_from(State),
)
def test_marks_that_people_write_themselves_are_no_error(rule: Any, marks: set[str], state: State) -> None:
    flag = a_flag(targeting=rule, metadata=dict.fromkeys(marks, "x"), state=state)
    assert arm_rule(flag) is None or ROLLOUT_KEY in marks


def test_a_served_set_is_read_back_with_promoted_definitions() -> None:
    old = FlagSet({"f": a_flag(targeting={"$ref": "nl"}), "g": a_flag("g")}, OTHER_EVALUATORS)
    new = FlagSet({"f": a_flag(targeting="on"), "g": a_flag("g")}, EVALUATORS)
    under_way = rollout(new, old, cohort=Cohort(100))
    sent = serve(new, under_way)
    back = without_rollouts(sent, (under_way,))
    assert answer(back, {"country": "BE"}) == answer(old, {"country": "BE"})
    assert back.flags["g"] is sent.flags["g"]
    assert without_rollouts(sent, ()).flags.keys() == {"g"}
    assert without_rollouts(new, (under_way,)) is new


def test_the_generation_that_a_flag_pins_is_part_of_its_definition() -> None:
    v2, v3 = ({BUCKETING_KEY: generation} for generation in ("v2", "v3"))
    plain, drawn = a_set(a_flag(targeting=SPLIT)), a_flag(targeting=SPLIT)
    pinned = a_set(replace(drawn, metadata=v3))
    assert changed_flags(pinned, plain, ("f",)).keys() == {"f"}
    assert settle(pinned, pinned, ("f",)) is pinned
    held = serve(pinned, with_exposures(plain))
    users = [{"targetingKey": f"user-{number}"} for number in range(100)]
    assert [answer(held, user) for user in users] == [answer(plain, user) for user in users]
    assert [answer(pinned, user) for user in users] != [answer(plain, user) for user in users]
    # flagd's own generation is v2, and a rule that draws nobody has none.
    assert not changed_flags(a_set(replace(drawn, metadata=v2)), plain, ("f",))
    assert not changed_flags(a_set(a_flag(metadata=v3)), a_set(a_flag()), ("f",))


@given(st.sampled_from(["f", "g", "h"]), st.integers(1, 10_000), flags(), contexts)
def test_a_change_of_another_flag_moves_nobody(
    changed: str, share: int, other: Flag, context: dict[str, Any]
) -> None:
    """`f` and `g` are two candidates, `h` is in none."""
    old = FlagSet({key: a_flag(key, targeting=SPLIT) for key in "fgh"}, EVALUATORS)
    new = replace(old, flags={**old.flags, **{key: a_flag(key, targeting="on") for key in "fg"}})
    exposures = [exposure(new, old, (key,), cohort=Cohort(share), salt=key) for key in "fg"]
    under_way = with_exposures(old, *exposures, patterns=("*",))
    before = effective(new, Progress(rollouts=(under_way,)))
    later = replace(new, flags={**new.flags, changed: replace(other, key=changed)})
    after = effective(later, Progress(rollouts=(under_way,)))
    for key in {"f", "g", "h"} - {changed}:
        assert answer(after, context, key=key) == answer(before, context, key=key)
    if changed_flags(later, old, (changed,)).get(changed) not in {
        None,
        *(e.flags.get(changed) for e in exposures),
    }:
        assert answer(after, context, key=changed) == answer(old, context, key=changed)


@given(cohorts, cohorts, st.sampled_from(["started", "grown", "stopped", "promoted"]), contexts)
def test_what_becomes_of_one_candidate_changes_nothing_for_the_users_of_another(
    cohort: Cohort, other: Cohort, change: str, context: dict[str, Any]
) -> None:
    old = FlagSet({key: a_flag(key, targeting=SPLIT) for key in "fg"}, EVALUATORS)
    new = replace(old, flags={key: a_flag(key, targeting="on") for key in "fg"})
    first = exposure(new, old, ("f",), cohort=cohort, salt="f")
    second = exposure(new, old, ("g",), cohort=other, salt="g")
    after = {
        "started": second,
        "grown": replace(second, cohort=Cohort(10_000, other.audiences)),
        "stopped": replace(second, cohort=None),
        "promoted": replace(second, everyone=True),
    }
    before, later = (
        effective(new, Progress(rollouts=(with_exposures(old, first, one, patterns=("*",)),)))
        for one in (second, after[change])
    )
    assert answer(later, context) == answer(before, context)
    assert arm(later, context) == arm(before, context)
    if change == "promoted":
        # The candidate is gone then, and the promoted set has its flag.
        promoted = with_promoted(old, new, ("g",))
        ended = effective(new, Progress(rollouts=(with_exposures(promoted, first, patterns=("*",)),)))
        assert [answer(ended, context, key=key) for key in "fg"] == [
            answer(later, context, key=key) for key in "fg"
        ]


@given(flags(), flags(), st.integers(0, 10_000), contexts)
def test_a_step_keeps_its_users_while_the_shared_rule_of_its_audience_changes(
    new: Flag, old: Flag, share: int, context: dict[str, Any]
) -> None:
    """The status has the audience with its references expanded."""
    assume("nl" not in json.dumps([None if one.targeting is ABSENT else one.targeting for one in (new, old)]))
    desired, promoted = a_set(new), a_set(old)
    assume(changed_flags(desired, promoted, ("f",)))
    audience = Expander(EVALUATORS).expand({"or": [{"$ref": "nl"}, STAFF]})
    under_way = rollout(desired, promoted, cohort=Cohort(share, (audience,)))
    changed = replace(desired, evaluators=OTHER_EVALUATORS)
    assert answer(serve(changed, under_way), context) == answer(serve(desired, under_way), context)


@given(flags(), flags(), cohorts, contexts, st.sampled_from(["deleted", "disabled"]))
def test_a_flag_that_was_deleted_or_disabled_and_comes_back_gives_each_user_what_he_had(
    new: Flag, old: Flag, cohort: Cohort, context: dict[str, Any], way: str
) -> None:
    desired, promoted = a_set(new), a_set(old)
    assume(changed_flags(desired, promoted, ("f",)))
    under_way = rollout(desired, promoted, cohort=cohort)
    away = a_set(replace(new, state=State.DISABLED)) if way == "disabled" else FlagSet(evaluators=EVALUATORS)
    assert effective(away, Progress(rollouts=(under_way,))).flags == away.flags
    settled = settle(away, promoted, ("f",), kept={"f"})
    assert settle(away, promoted, ("f",)).flags == away.flags
    back = replace(under_way, promoted=settled)
    assert answer(serve(desired, back), context) == answer(serve(desired, under_way), context)


def test_a_promotion_moves_the_flags_of_its_candidate_alone() -> None:
    old = FlagSet({key: a_flag(key, targeting={"$ref": "nl"}) for key in "fgh"}, OTHER_EVALUATORS)
    new = FlagSet(
        {"f": a_flag(targeting="on"), "g": a_flag("g", targeting="off"), "new": a_flag("new")}, EVALUATORS
    )
    promoted = with_promoted(old, new, ("f",))
    assert promoted.flags.keys() == old.flags.keys()
    assert promoted.flags["f"] is new.flags["f"]
    for context in ({"country": "BE"}, {"country": "NL"}):
        assert answer(promoted, context, key="g") == answer(old, context, key="g")
    assert changed_flags(new, promoted, ("*",)).keys() == {"g"}


def test_the_digest_of_a_definition_stays_while_its_flag_is_disabled() -> None:
    desired = a_set(a_flag(targeting={"$ref": "nl"}))
    digests = {
        definition_digest(replace(a_flag(targeting=rule), state=state), Expander(EVALUATORS))
        for rule in ({"$ref": "nl"}, COUNTRY)
        for state in State
    }
    assert len(digests) == 1
    assert {len(one) for one in digests} == {16}
    assert digests == set(changed_flags(desired, a_set(a_flag()), ("f",)).values())


@given(flags(), flags(), cohorts, contexts, st.sampled_from([None, *Bucketing]), bucketing)
def test_a_change_of_the_generation_moves_nobody_while_a_candidate_is_exposed(
    new: Flag, old: Flag, cohort: Cohort, context: dict[str, Any], before: Bucketing | None, now: Bucketing
) -> None:
    pinned: dict[str, Any] = {} if before is None else {BUCKETING_KEY: before.value}
    desired = a_set(new, **pinned)
    promoted = a_set(old)
    under_way = rollout(desired, promoted, cohort=cohort, bucketing=before)
    changed = replace(desired, metadata={BUCKETING_KEY: now.value})
    assert answer(serve(changed, under_way), context) == answer(serve(desired, under_way), context)
    ended = with_exposures(promoted, replace(under_way.exposures[0], cohort=None))
    assert serve(changed, ended).metadata == changed.metadata


def test_the_flag_sets_own_generation_of_bucketing_draws_the_cohort() -> None:
    old, new = a_set(a_flag()), a_set(a_flag(default_variant="on"))
    made = serve(new, rollout(new, old, cohort=Cohort(5_000)))
    pinned = replace(made, metadata={BUCKETING_KEY: "v3"})
    users = [{"targetingKey": f"user-{number}"} for number in range(200)]
    v3 = [answer(made, user, Bucketing.V3) for user in users]
    assert [answer(pinned, user) for user in users] == v3 != [answer(made, user) for user in users]


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("new-*", "new-checkout", True),
        ("new-*", "a-new-checkout", False),
        ("*", "", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("ab*ba", "aba", False),
        ("checkout/[x]?", "checkout/[x]?", True),
        ("checkout/?", "checkout/x", False),
        ("*a" * 250, "a" * 100_000 + "b", False),
    ],
)
def test_in_a_pattern_only_the_star_is_special(pattern: str, key: str, expected: bool) -> None:
    assert matches(("other", pattern), key) is expected
