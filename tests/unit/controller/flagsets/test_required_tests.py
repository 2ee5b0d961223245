"""A FlagSet runs the tests beside its definitions, and holds what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.delivery.problem_text import problem_list
from controller.flagsets.compose import FailurePolicy, RequiredTests
from tests.unit.controller.flagsets.test_compose import compose_tree, document, flag

if TYPE_CHECKING:
    from controller.flagsets.compose import Composition

HOLDS, REPORTS = RequiredTests(holds=True), RequiredTests(holds=False)
USES = {"if": [{"$ref": "staff"}, "on", "off"]}
STAFF = {"staff": {"==": [{"var": "team"}, "staff"]}}


def expecting(key: str, value: object) -> dict[str, Any]:
    return {"name": f"{key} is {value}", "flag": key, "expect": {"value": value}}


def tree(flags: dict[str, Any], *tests: dict[str, Any], **sections: Any) -> dict[str, bytes]:
    content = yaml.safe_dump({"tests": [*tests]}).encode()
    return {**document(flags, **sections), "flags.flagtest.yaml": content}


BEFORE = compose_tree(document({"a": flag(), "b": flag()}, evaluators=STAFF))


def after(files: dict[str, bytes], tests: RequiredTests | None = HOLDS, **options: Any) -> Composition:
    return compose_tree(files, BEFORE.flag_set, revision="r2", tests=tests, **options)


def test_a_failing_test_holds_the_flag_that_it_is_about_and_no_other() -> None:
    made = after(tree({"a": flag("on"), "b": flag("on")}, expecting("a", False), expecting("b", True)))
    assert (made.accepted, made.held, made.missing) == (True, ("a",), ())
    assert [made.flag_set.flags[key].default_variant for key in "ab"] == ["off", "on"]
    (problem,) = made.problems
    assert (problem.file, problem.line, problem.flag) == ("flags.flagtest.yaml", 2, "a")
    assert problem.message == (
        'the test "a is False" fails: expected value false; came variant "on", value true, reason STATIC'
    )


def test_a_correct_definition_is_released_by_the_next_revision() -> None:
    held = after(tree({"a": flag("on"), "b": flag()}, expecting("a", False)))
    made = compose_tree(
        tree({"a": flag("on"), "b": flag()}, expecting("a", True)), held.flag_set, revision="r3", tests=HOLDS
    )
    assert (made.held, made.problems) == ((), ())
    assert made.flag_set.flags["a"].default_variant == "on"


def test_a_new_flag_whose_test_fails_is_not_served() -> None:
    made = after(tree({"a": flag(), "b": flag(), "c": flag()}, expecting("c", True)))
    assert (made.held, made.missing) == ((), ("c",))


def test_an_atomic_set_is_refused_whole() -> None:
    files = tree({"a": flag("on"), "b": flag("on")}, expecting("a", False))
    made = after(files, policy=FailurePolicy.ATOMIC)
    assert (made.accepted, made.flag_set) == (False, BEFORE.flag_set)


def test_a_test_that_only_warns_is_a_warning_and_holds_nothing() -> None:
    files = tree({"a": flag("on"), "b": flag()}, expecting("a", False))
    for policy in FailurePolicy:
        made = after(files, REPORTS, policy=policy)
        assert (made.accepted, made.held) == (True, ())
        assert [str(problem.severity) for problem in made.problems] == ["warning"]


def test_without_the_option_tests_are_not_read() -> None:
    made = after({**tree({"a": flag("on"), "b": flag()}), "flags.flagtest.yaml": b"tests: ["}, None)
    assert (made.accepted, made.problems) == (True, ())


def test_a_failing_test_of_an_evaluator_holds_the_flags_that_use_it() -> None:
    test = {"name": "s", "evaluator": "staff", "context": {"team": "x"}, "expect": {"value": True}}
    made = after(tree({"a": flag(targeting=USES), "b": flag("on")}, test, evaluators=STAFF))
    assert (made.accepted, made.held) == (True, ("a",))


NOT_STAFF = {"name": "s", "evaluator": "staff", "context": {"team": "x"}, "expect": {"value": True}}
BY_WAY = {
    "direct": flag(targeting=USES),
    "other": flag(targeting={"if": [{"$ref": "crew"}, "on", "off"]}),
    "needs": flag(targeting={"if": [{"flag": ["direct", "on"]}, "on", "off"]}),
    "both": flag(targeting={"if": [{"and": [{"flag": ["free", "on"]}, {"$ref": "crew"}]}, "on", "off"]}),
    "free": flag("on"),
}
CREW = {**STAFF, "crew": {"or": [{"$ref": "staff"}, {"==": [{"var": "team"}, "crew"]}]}}
USERS = ("both", "direct", "needs", "other")


def of_all_users(policy: FailurePolicy, tests: RequiredTests) -> Composition:
    served = compose_tree(document({key: flag() for key in BY_WAY}, evaluators=CREW))
    files = tree(BY_WAY, NOT_STAFF, evaluators=CREW)
    return compose_tree(files, served.flag_set, revision="r2", tests=tests, policy=policy, lenient=True)


def test_a_failing_test_of_an_evaluator_holds_each_flag_that_uses_it_by_whatever_way() -> None:
    made = of_all_users(FailurePolicy.PER_FLAG, HOLDS)
    assert (made.accepted, made.held) == (True, USERS)
    assert made.flag_set.flags["free"].default_variant == "on"


@pytest.mark.parametrize("tests", [HOLDS, REPORTS])
@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_failing_test_of_an_evaluator_is_shown_beside_each_flag_that_uses_it(
    policy: FailurePolicy, tests: RequiredTests
) -> None:
    made = of_all_users(policy, tests)
    assert made.accepted is (policy is FailurePolicy.PER_FLAG or tests is REPORTS)
    told = {problem.flag: problem.message for problem in problem_list(made.problems) if problem.flag}
    assert [*told] == [*USERS]
    assert {*told.values()} == {
        'the test "s" fails: expected value true; came value false; '
        'used by "both", "direct", "needs", "other"'
    }


def test_one_failing_test_of_many_flags_leaves_room_for_other_problems_in_the_status() -> None:
    flags = {f"flag-{number}": flag(targeting=USES) for number in range(60)}
    made = after(tree({**flags, "z": flag()}, NOT_STAFF, expecting("z", True), evaluators=STAFF), REPORTS)
    assert (len(made.problems), len(problem_list(made.problems))) == (61, 50)
    assert "z" in {problem.flag for problem in problem_list(made.problems)}


def test_tests_of_a_flag_that_is_held_already_do_not_run() -> None:
    made = after(tree({"a": flag("nowhere"), "b": flag()}, expecting("a", True)))
    assert made.held == ("a",)
    assert [problem.code for problem in made.problems] == ["unknown-variant"]


def test_a_flag_that_a_test_still_needs_is_not_removed() -> None:
    made = after(tree({"b": flag()}, expecting("a", False)))
    assert (made.held, "a" in made.flag_set.flags) == (("a",), True)


@pytest.mark.parametrize("content", [b"tests: [", b"tests: {}", b"flags: {}"])
def test_a_file_of_tests_that_cannot_be_read_refuses_the_revision(content: bytes) -> None:
    made = after({**tree({"a": flag("on"), "b": flag()}), "flags.flagtest.yaml": content})
    assert (made.accepted, made.flag_set) == (False, BEFORE.flag_set)
    assert made.problems[0].file == "flags.flagtest.yaml"


def test_a_mistake_in_a_test_holds_its_flag_alone() -> None:
    test = {**expecting("a", False), "matrx": {}}
    made = after(tree({"a": flag("on"), "b": flag("on")}, test))
    assert (made.accepted, made.held) == (True, ("a",))


@pytest.mark.parametrize(("holds", "accepted"), [(True, False), (False, True)])
def test_too_little_coverage_concerns_the_whole_revision(holds: bool, accepted: bool) -> None:
    files = tree({"a": flag("on"), "b": flag()}, expecting("a", True))
    made = after(files, RequiredTests(holds, 60))
    assert made.accepted is accepted
    assert made.problems[0].message == ("the tests reach 25.0 % of variants and branches, of at least 60 %")
    assert after(files, RequiredTests(holds, 25)).problems == ()


def test_a_file_of_tests_that_was_not_read_refuses_the_revision() -> None:
    files = document({"a": flag("on"), "b": flag()})
    made = after(files, skipped=["x.flagtest.yaml: symlink, not followed"])
    assert made.accepted is False
    assert made.problems[0].message.startswith("symlink, not followed")
    assert after(files, None, skipped=["x.flagtest.yaml: symlink, not followed"]).accepted


@pytest.mark.parametrize("used", [True, False], ids=["a flag uses it", "no flag uses it"])
def test_an_evaluator_that_needs_a_flag_is_tested_with_what_that_flag_says(used: bool) -> None:
    evaluators = {"ready": {"and": [{"flag": ["a", "on"]}, STAFF["staff"]]}}
    rule = {"if": [{"$ref": "ready"}, "on", "off"]}
    flags = {"a": flag("on"), "b": flag(targeting=rule) if used else flag()}
    case = {"evaluator": "ready", "context": {"team": "staff"}}
    right = {**case, "name": "staff are ready", "expect": {"value": True}}
    made = after(tree(flags, right, evaluators=evaluators))
    assert (made.held, made.problems) == ((), ())
    assert "ready" not in made.flag_set.evaluators
    wrong = {**case, "name": "staff are not ready", "expect": {"value": False}}
    made = after(tree(flags, wrong, evaluators=evaluators))
    assert [problem.flag for problem in made.problems] == (["b"] if used else [None])
    assert "came value true" in made.problems[0].message
