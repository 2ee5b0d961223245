"""A FlagSet judges what a revision changes by policies: those of its repository, and FlagPolicies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.flagpolicy import KIND
from controller.api.meta import ObjectKey
from controller.authoring.policies import MOST_JUDGEMENTS, Circumstances
from controller.authoring.policy_selection import selected_policies
from controller.flagsets.compose import FailurePolicy
from controller.flagsets.preparation import Steps
from controller.flagsets.substitution import Variables
from tests.unit.controller.flagsets.test_compose import compose_tree, document, flag
from tests.worlds import flagsets
from tests.worlds.flagsets import World
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from controller.flagsets.compose import Composition

FRIDAY: Final = datetime(2026, 11, 27, 15, 0, tzinfo=UTC)
SERVED: Final = compose_tree(document({"a": flag(), "b": flag()})).flag_set
RULE: Final = (
    "action: {action}\n"
    'matchConditions: [{{name: a, expression: \'old.key == "a" && plan.change == "Changed"\'}}]\n'
    "validations: [{{expression: new.defaultVariant == old.defaultVariant, message: keep the default}}]\n"
)
SPEC: Final = {
    "action": "Deny",
    "matchConditions": [{"name": "changed", "expression": 'plan.change == "Changed"'}],
    "validations": [{"expression": "false", "message": "nothing changes here"}],
}


def rule(action: str, name: str = "steady") -> bytes:
    return f"name: {name}\n{RULE.format(action=action)}".encode()


def after(tree: dict[str, bytes], around: Circumstances | None = None, **options: Any) -> Composition:
    around = around or Circumstances(FRIDAY)
    around = around._replace(before=SERVED)
    return compose_tree(tree, SERVED, revision="r2", around=around, **options)


def changed(**files: bytes) -> dict[str, bytes]:
    tree = document({"a": flag("on"), "b": flag("on")})
    return {**tree, **{name.replace("__", "."): content for name, content in files.items()}}


def defaults(made: Composition) -> list[str | None]:
    return [made.flag_set.flags[key].default_variant for key in sorted(made.flag_set.flags)]


def test_deny_refuses_the_revision() -> None:
    made = after({**changed(), "policies/steady.yaml": rule("Deny")})
    assert (made.accepted, defaults(made)) == (False, ["off", "off"])
    (problem,) = made.problems
    assert str(problem) == ('flags.json:3:0: error: policy steady (Deny): flag "a": keep the default')


def test_hold_keeps_the_flag_alone() -> None:
    made = after(changed(steady__flagpolicy__yaml=rule("Hold")))
    assert (made.accepted, made.held, defaults(made)) == (True, ("a",), ["off", "on"])
    assert [problem.flag for problem in made.problems] == ["a"]
    assert not after(changed(steady__flagpolicy__yaml=rule("Hold")), policy=FailurePolicy.ATOMIC).accepted


def test_warn_is_a_problem_that_holds_nothing() -> None:
    made = after({**changed(), "policies/steady.yaml": rule("Warn")})
    assert (made.held, defaults(made)) == ((), ["on", "on"])
    assert [problem.severity.value for problem in made.problems] == ["warning"]


def test_a_removed_flag_is_held_where_a_policy_says_so() -> None:
    policy = b"name: kept\naction: Hold\nvalidations: [{expression: 'plan.change != \"Removed\"'}]\n"
    made = after({**document({"b": flag()}), "policies/kept.yaml": policy})
    assert made.held == ("a",)
    assert sorted(made.flag_set.flags) == ["a", "b"]


def test_what_is_served_already_is_not_judged() -> None:
    never = b"name: never\naction: Deny\nvalidations: [{expression: 'false'}]\n"
    made = after({**document({"a": flag(), "b": flag()}), "policies/never.yaml": never})
    assert (made.accepted, made.problems) == (True, ())


def test_a_first_revision_is_judged_by_flag_policies_alone() -> None:
    never = b"name: never\naction: Deny\nvalidations: [{expression: 'false'}]\n"
    tree = {**document({"a": flag()}), "policies/never.yaml": never}
    assert compose_tree(tree, around=Circumstances(FRIDAY)).accepted
    spec = {"action": "Deny", "validations": [{"expression": "false"}]}
    assert not compose_tree(tree, around=Circumstances(FRIDAY, given=[("flagstaff/no", spec)])).accepted


@pytest.mark.parametrize(
    ("name", "content", "accepted"),
    [
        ("policies/kyverno.yaml", b"apiVersion: kyverno.io/v1\nkind: Policy\naction: x\n", True),
        ("policies/notes.yaml", b"authors: [Ada]\n", True),
        ("policies/deep/steady.yaml", rule("Deny"), True),
        ("other/steady.yaml", rule("Deny"), True),
        ("policies/steady.yaml", rule("Deny").replace(b"validations", b"validatoins"), False),
        ("policies/mistyped.flagpolicy.yaml", b"apiVersion: v1\n", False),
        ("mistyped.flagpolicy.yaml", b"apiVersion: v1\n", False),
    ],
)
def test_files_of_policies_are_known_by_place_and_form(name: str, content: bytes, accepted: bool) -> None:
    made = after({**changed(), name: content})
    assert made.accepted is accepted
    assert all(problem.file == name for problem in made.problems)


def test_a_policy_is_no_definition() -> None:
    policy = rule("Warn")
    made = after({**changed(), "a.flagpolicy.yaml": policy}, paths=["a.flagpolicy.yaml"])
    assert "the file has a policy, not definitions" in made.problems[0].message
    assert after({**changed(), "a.flagpolicy.yaml": policy}, paths=["**"]).accepted


def test_expressions_know_author_signer_place_rollout_and_time() -> None:
    words = (
        "author + '/' + signer + '/' + path + '/' + plan.rollout + '/' + plan.override + '/' + time.weekday"
    )
    policy = f'name: w\naction: Warn\nvalidations: [{{expression: "false", messageExpression: "{words}"}}]\n'
    around = Circumstances(
        FRIDAY, "Ada <ada@example.com>", "key 1", rollouts=[("steps", ["a"])], overrides={"b": "stop"}
    )
    made = after({**changed(), "policies/w.yaml": policy.encode()}, around)
    assert [problem.message.partition(": ")[2] for problem in made.problems] == [
        'flag "a": Ada <ada@example.com>/key 1/flags.json/steps//Friday',
        'flag "b": Ada <ada@example.com>/key 1/flags.json//stop/Friday',
    ]


def test_values_of_secrets_are_not_told() -> None:
    policy = (
        b"name: w\naction: Deny\n"
        b"validations: [{expression: 'false', messageExpression: string(new.variants.on)}]\n"
    )
    tree = document({"a": flag("on", variants={"on": "${WORD}", "off": "x"}), "b": flag()})
    done = Steps(variables=Variables({"WORD": "hush"}, frozenset({"WORD"})))
    made = after({**tree, "policies/w.yaml": policy}, steps=done)
    assert not made.accepted
    assert "hush" not in str(made.problems)


def test_too_many_judgements_refuse_the_revision() -> None:
    many = {f"f{number}": flag() for number in range(MOST_JUDGEMENTS // 2 + 1)}
    files = {f"policies/{name}.yaml": rule("Warn", name) for name in ("one", "two")}
    made = after({**document(many), **files})
    assert not made.accepted
    assert "more than 20000 judgements" in made.problems[0].message


def test_a_flag_policy_that_cannot_be_read_is_not_met() -> None:
    spec = {**SPEC, "validations": [{"expression": "plan.most <"}]}
    made = after(changed(), Circumstances(FRIDAY, given=[("flagstaff/bad", spec)]))
    assert not made.accepted
    assert "policy flagstaff/bad (Deny)" in made.problems[0].message
    assert "the policy cannot be read: " in made.problems[0].message
    held = after(changed(), Circumstances(FRIDAY, given=[("flagstaff/bad", {**spec, "action": "Hold"})]))
    assert held.held == ("a", "b")


@pytest.mark.parametrize(
    ("namespace", "spec", "judged"),
    [
        ("home", {}, True),
        ("home", {"namespaces": ["sh*"]}, True),
        ("home", {"namespaces": ["billing"]}, False),
        ("home", {"namespaces": "unreadable"}, True),
        ("home", {"selector": {"matchLabels": {"tier": "gold"}}}, True),
        ("home", {"selector": {"matchLabels": {"tier": "tin"}}}, False),
        ("shop", {}, True),
        ("shop", {"namespaces": ["billing"]}, True),
        ("billing", {}, False),
    ],
)
def test_policies_judge_what_they_select(namespace: str, spec: dict[str, Any], judged: bool) -> None:
    world = World()
    policy = world.cluster.put(manifest(KIND, "p", spec, namespace=namespace))
    target = world.cluster.put(manifest("FlagSet", "s", labels={"tier": "gold"}))
    assert target.namespace == "shop"
    assert bool(selected_policies([policy], target, "home")) is judged


def policy_at_home(world: World, **spec: Any) -> None:
    world.cluster.put(manifest(KIND, "quiet", {**SPEC, **spec}, namespace="flagstaff"))


@pytest.fixture
async def world() -> World:
    """`checkout` serves `a`, and the source has another definition of it."""
    made = World(home="flagstaff")
    made.commit("r1", flagsets.document(a=flagsets.flag()))
    made.flag_set()
    assert (await made.look()).reason == "Succeeded"
    made.commit("r2", flagsets.document(a=flagsets.flag("on")))
    source = made.cluster.the("FlagSource", "flags")
    artifact = {**source.status["artifact"], "lastUpdateTime": "2026-01-02T03:00:00Z"}
    made.cluster.set_status(source, {"artifact": artifact})
    return made


async def test_a_policy_of_our_own_namespace_refuses_a_revision_until_it_is_gone(world: World) -> None:
    policy_at_home(world)
    turn = await world.look()
    assert turn.ready[:2] == ("False", "BuildFailed")
    assert 'policy flagstaff/quiet (Deny): flag "a": nothing changes here' in turn.message
    assert world.defaults() == {"a": "off"}
    world.cluster.objects.forget(ObjectKey(KIND, "flagstaff", "quiet"))
    assert (await world.look()).reason == "Succeeded"
    assert world.defaults() == {"a": "on"}


async def test_a_verdict_stays_while_time_passes_and_changes_with_the_policy(world: World) -> None:
    policy_at_home(world, action="Hold", validations=[{"expression": 'time.date != "2026-01-02"'}])
    turn = await world.look()
    reads = len(world.reads)
    again = await world.look(after=3 * 86_400.0)
    assert turn.reason == again.reason
    assert len(world.reads) == reads
    policy_at_home(world, action="Hold", validations=[{"expression": "true"}])
    assert (await world.look()).reason == "Succeeded"
    assert world.defaults() == {"a": "on"}
