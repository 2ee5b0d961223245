"""Rules that need flags of the flag sets that theirs depends on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.api.flagset import KIND
from controller.flagsets.compose import Composition, compose
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import Parsed, merge
from evaluator.flags.model import BUCKETING_KEY, CONFIDENTIAL_KEY, FlagSet
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.worlds.flagsets import CONFIGURATION, World

GOLD = {"==": [{"var": "tier"}, "gold"]}
HALVES = {"fractional": [["on", 50], ["off", 50]]}
LONG = {"beta": {"in": [{"var": "id"}, ["x"] * 20_000]}}
NEEDS = {"if": [{"flag": ["cart", "on"]}, "on"]}


def flag(targeting: Any = None, **fields: Any) -> dict[str, Any]:
    rule = {} if targeting is None else {"targeting": targeting}
    shape = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    return {**shape, **rule, **fields}


def text(evaluators: Any = None, metadata: Any = None, **flags: Any) -> str:
    return json.dumps({"flags": flags, "$evaluators": evaluators or {}, "metadata": metadata or {}}, indent=1)


def parsed(content: str, *others: FlagSet) -> Parsed:
    return merge([read_layer([("flags.json", content.encode())])], others=others)


def base(evaluators: Any = None, metadata: Any = None, **flags: Any) -> FlagSet:
    return parsed(text(evaluators, metadata, **flags)).flag_set


def variant(flag_set: FlagSet, key: str, **context: Any) -> str | None:
    return resolve(compile_flag_set(flag_set), key, None, context, 0).variant


def test_the_rule_of_another_sets_flag_is_written_out_with_its_shared_rules() -> None:
    other = base({"gold": GOLD}, cart=flag({"if": [{"$ref": "gold"}, "on"]}))
    found = parsed(text({"gold": {"!": [GOLD]}}, pay=flag(NEEDS)), other)
    assert found.problems == ()
    assert found.flag_set.flags["pay"].targeting == {"if": [{"if": [GOLD, True, False]}, "on"]}


def test_users_are_in_the_buckets_of_the_flag_that_is_needed() -> None:
    other = base(cart=flag(HALVES))
    made = parsed(text(pay=flag(NEEDS)), other).flag_set
    answers = {
        (variant(other, "cart", targetingKey=user), variant(made, "pay", targetingKey=user))
        for user in map(str, range(100))
    }
    assert answers == {("on", "on"), ("off", "off")}


def test_a_flag_of_the_set_itself_and_then_the_first_set_that_has_it_count() -> None:
    first, second = base(cart=flag(None, defaultVariant="on")), base(cart=flag(), more=flag())
    assert variant(parsed(text(pay=flag(NEEDS)), first, second).flag_set, "pay") == "on"
    assert variant(parsed(text(pay=flag(NEEDS), cart=flag()), first).flag_set, "pay") == "off"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (base(card=flag()), "is not defined here or in a set that this one depends on"),
        (base(cart=flag(variants={"off": False})), 'has no variant "on"'),
        (base(metadata={BUCKETING_KEY: "v3"}, cart=flag(HALVES)), "another generation of bucketing"),
        (base(cart=flag(metadata={CONFIDENTIAL_KEY: True})), "values of Secrets"),
        (base(LONG, cart=flag({"if": [{"$ref": "beta"}, "on"]})), "more than 10000 parts"),
    ],
    ids=["no such flag", "no such variant", "other buckets", "a secret", "a long list"],
)  # fmt: skip
def test_what_cannot_be_written_out_is_an_error_of_the_flag_with_the_rule(
    other: FlagSet, message: str
) -> None:
    found = parsed(text(pay=flag(NEEDS), same=flag()), other)
    assert [message in problem.message for problem in found.problems] == [True]
    assert ([*found.bad], [*found.flag_set.flags]) == (["pay"], ["same"])


def test_an_explanation_says_that_the_flag_is_of_another_set() -> None:
    other = base(cart=flag({"if": [GOLD, "on"]}))
    made: Composition = compose(
        {"flags.json": text(pay=flag(NEEDS)).encode()}, ["."], provenance={}, previous=None, others=[other]
    )
    shown = explain(compile_flag_set(made.flag_set), "pay", None, {"tier": "gold"}, 0)
    steps = [str(step) for step in shown.steps]
    assert steps[0].startswith('prerequisite "cart", flag: it is of another flag set')
    assert 'targeting.if[0].if[0].==[0].var: "tier" is "gold"' in steps


async def world() -> World:
    made = World()
    made.commit("r1", base__json=text(cart=flag({"if": [GOLD, "on"]})), pay__json=text(pay=flag(NEEDS)))
    made.flag_set("base", paths=["base.json"])
    made.flag_set("checkout", paths=["pay.json"], dependsOn=[{"name": "base"}])
    await made.look("base")
    await made.look("checkout")
    return made


def rule_of(made: World) -> Any:
    return made.document("checkout")["flags"]["pay"]["targeting"]


@pytest.mark.parametrize("restarts", [False, True], ids=["as it was built", "read back"])
async def test_a_flag_set_is_built_with_the_flags_of_the_one_that_it_depends_on(restarts: bool) -> None:
    made = await world()
    expected = {"if": [{"if": [GOLD, True, False]}, "on"]}
    assert rule_of(made) == expected
    if restarts:
        made.restart()
    made.flag_set("checkout", paths=["pay.json"], dependsOn=[{"name": "base"}], flagSetId="other")
    await made.look("checkout")
    assert (rule_of(made), made.document()["metadata"]["flagSetId"]) == (expected, "other")


async def test_a_flag_set_is_built_again_once_the_other_one_serves_something_else() -> None:
    made = await world()
    made.commit(
        "r2", base__json=text(cart=flag({"if": [GOLD, "off", "on"]})), pay__json=text(pay=flag(NEEDS))
    )
    await made.look("base")
    await made.look("checkout")
    assert rule_of(made) == {"if": [{"if": [GOLD, False, True]}, "on"]}
    made.flag_set("base", paths=["base.json"], substitute={})
    again = await made.look("checkout")
    assert again.reason == "DependencyNotReady"


async def test_a_flag_keeps_its_rule_when_the_flag_of_the_other_set_is_deleted() -> None:
    made = await world()
    before = rule_of(made)
    made.commit("r2", base__json=text(other=flag()), pay__json=text(pay=flag(NEEDS)))
    made.flag_set("base", paths=["base.json"], pruneGuard=False)
    await made.look("base")
    assert set(made.document("base")["flags"]) == {"other"}
    seen = await made.look("checkout")
    assert [held["name"] for held in seen.status["held"]] == ["pay"]
    assert "in a set that this one depends on" in seen.status["problems"][0]["message"]
    assert rule_of(made) == before


async def test_a_flag_set_waits_where_the_cache_lags_behind_the_status_of_the_other_one() -> None:
    made = await world()
    dependency = made.cluster.the(KIND, "base")
    made.cluster.set_status(dependency, {**dependency.status, "digest": "sha256:" + "0" * 64})
    made.restart()
    seen = await made.look("checkout")
    assert seen.reason == "DependencyNotReady"
    assert "pay" in made.cluster.the(CONFIGURATION, "checkout").spec["flagSpec"]["flags"]
