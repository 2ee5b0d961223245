"""Policies on changes of flags: what their files may say, and examples whose verdicts are known."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from controller.api.flagpolicy import PolicyAction
from controller.authoring.plans import Beside, plan_flags
from controller.authoring.policies import (
    MOST_POLICIES,
    Circumstances,
    changed_flags,
    read_policies,
    standing_flags,
)
from evaluator.flags.model import CONFIDENTIAL_KEY, Flag, FlagSet, State
from evaluator.flags.problems import Severity

WEDNESDAY: Final = datetime(2026, 11, 25, 15, 0, tzinfo=UTC)
ON_WEDNESDAY: Final = Circumstances(WEDNESDAY)
FRIDAY: Final = datetime(2026, 11, 27, 15, 0, tzinfo=UTC)

SMALL_STEPS: Final = """
name: small-steps
action: Deny
matchConditions:
  - {name: changed, expression: 'plan.change == "Changed"'}
variables:
  - {name: stepped, expression: 'plan.rollout != ""'}
validations:
  - expression: variables.stepped || plan.most <= 10
    message: write a FlagRollout for more than 10 % of users
    messageExpression: '"it moves " + string(plan.most) + " % of users at once"'
"""
OWNED: Final = """
name: owned
action: Warn
matchConditions: [{name: new, expression: 'plan.change == "Added"'}]
validations: [{expression: has(new.metadata.owner), message: name an owner}]
"""
SIGNED: Final = """
name: payments
action: Hold
matchConditions: [{name: payments, expression: 'path.startsWith("payments/")'}]
validations: [{expression: 'signer.startsWith("pay@example.com (")', message: the payments team signs this}]
"""
QUIET_FRIDAY: Final = """
name: quiet-friday
action: Hold
timeZone: Europe/Zurich
matchConditions: [{name: changes, expression: 'plan.change != "Unchanged"'}]
validations: [{expression: 'time.weekday != "Friday" || time.hour < 12', message: wait for Monday}]
"""


def split(on: int) -> dict[str, Any]:
    return {"fractional": [["on", on], ["off", 100 - on]]}


def cart(on: int, **metadata: str) -> FlagSet:
    flag = Flag("cart", State.ENABLED, {"on": True, "off": False}, "off", split(on), metadata)
    return FlagSet({"cart": flag})


def verdicts(
    policy: str, before: FlagSet, after: FlagSet, around: Circumstances = ON_WEDNESDAY, **rollouts: str
) -> list[str]:
    policies = read_policies([("policies/one.yaml", policy.encode())])
    assert policies.problems == ()
    plans = plan_flags(before, after, int(around.now.timestamp()), Beside(rollouts=rollouts))
    found = policies.verdicts(changed_flags(before, after, plans), around)
    return [f"{verdict.action} {verdict.message}" for verdict in found]


def problems(policy: str) -> list[str]:
    return [str(problem) for problem in read_policies([("one.yaml", policy.encode())]).problems]


def test_more_users_at_once_than_a_policy_allows_are_denied() -> None:
    assert verdicts(SMALL_STEPS, cart(10), cart(20)) == []
    assert verdicts(SMALL_STEPS, cart(10), cart(35)) == ['Deny flag "cart": it moves 25.0 % of users at once']
    assert verdicts(SMALL_STEPS, cart(10), cart(35), cart="slowly") == []


def test_new_flag_needs_an_owner() -> None:
    assert verdicts(OWNED, FlagSet(), cart(10)) == ['Warn flag "cart": name an owner']
    assert verdicts(OWNED, FlagSet(), cart(10, owner="shop")) == []
    assert verdicts(OWNED, cart(10), cart(20)) == []


@pytest.mark.parametrize(
    ("signer", "file", "held"),
    [
        ("pay@example.com (SSH SHA256:x)", "payments/flags.yaml", False),
        ("pay@example.com.example (SSH SHA256:x)", "payments/flags.yaml", True),
        ("", "payments/flags.yaml", True),
        ("", "shop/flags.yaml", False),
    ],
)
def test_folder_takes_commits_of_one_signer_alone(signer: str, file: str, held: bool) -> None:
    around = Circumstances(WEDNESDAY, signer=signer, places={"cart": (file, 3)})
    assert bool(verdicts(SIGNED, cart(10), cart(20), around)) is held


UNKNOWN: Final = (
    'Hold flag "cart": not judged: it asks for the signer, and no signature was verified (plan and lint do '
    "with --verify-key)"
)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("validations: [{expression: 'signer == \"ada\"'}]", [UNKNOWN]),
        ("validations: [{expression: 'signer == \"ada\" || plan.most <= 10'}]", []),
        (
            "variables: [{name: ours, expression: 'signer == \"ada\"'}]\n"
            "validations: [{expression: 'variables.ours || plan.most > 99'}]",
            [UNKNOWN],
        ),
        (
            "matchConditions: [{name: ours, expression: 'signer == \"ada\"'}]\n"
            "validations: [{expression: 'false'}]",
            [UNKNOWN],
        ),
        (
            "matchConditions: [{name: ours, expression: 'signer == \"ada\"'},"
            " {name: new, expression: 'plan.change == \"Added\"'}]\nvalidations: [{expression: 'false'}]",
            [],
        ),
        ("validations: [{expression: 'false', message: no}]", ['Hold flag "cart": no']),
    ],
)
def test_signer_that_nobody_verified_is_unknown_only_where_it_decides(rule: str, verdict: list[str]) -> None:
    around = Circumstances(WEDNESDAY, signer=None)
    assert verdicts(f"name: one\naction: Hold\n{rule}\n", cart(10), cart(20), around) == verdict


def test_unknown_verdict_is_a_note_that_refuses_nothing() -> None:
    text = "name: one\naction: Deny\nvalidations: [{expression: 'signer == \"ada\"'}]"
    policies = read_policies([("one.yaml", text.encode())])
    (verdict,) = policies.verdicts(standing_flags(cart(10)), Circumstances(WEDNESDAY, signer=None))
    assert (verdict.refuses, verdict.problem.severity) == (False, Severity.NOTE)
    (verdict,) = policies.verdicts(standing_flags(cart(10)), ON_WEDNESDAY)
    assert (verdict.refuses, verdict.problem.severity) == (True, Severity.ERROR)


def test_friday_afternoon_is_that_of_the_time_zone() -> None:
    held = ['Hold flag "cart": wait for Monday']
    assert verdicts(QUIET_FRIDAY, cart(1), cart(2)) == []
    assert verdicts(QUIET_FRIDAY, cart(1), cart(2), Circumstances(FRIDAY)) == held
    # Noon in Zurich.
    assert verdicts(QUIET_FRIDAY, cart(1), cart(2), Circumstances(FRIDAY.replace(hour=11))) == held
    assert verdicts(QUIET_FRIDAY, cart(1), cart(2), Circumstances(FRIDAY.replace(hour=10))) == []


def test_flags_that_do_not_change_are_not_new() -> None:
    policies = read_policies([("a.yaml", OWNED.encode()), ("b.yaml", QUIET_FRIDAY.encode())])
    assert [*policies.verdicts(standing_flags(cart(10)), Circumstances(FRIDAY))] == []


def test_verdict_is_a_problem_at_the_definition_of_the_flag() -> None:
    policies = read_policies([("p.yaml", OWNED.replace('"Added"', '"Unchanged"').encode())])
    around = Circumstances(WEDNESDAY, places={"cart": ("flags/cart.yaml", 7)})
    (verdict,) = policies.verdicts(standing_flags(cart(10)), around)
    assert verdict.action is PolicyAction.WARN
    assert verdict.problem.severity is Severity.WARNING
    assert (
        str(verdict.problem)
        == 'flags/cart.yaml:7:0: warning: policy owned (Warn): flag "cart": name an owner'
    )


def test_policy_that_cannot_be_evaluated_is_not_met() -> None:
    text = SMALL_STEPS.replace("plan.most <= 10", "plan.most <= new.metadata.most")
    (verdict,) = verdicts(text, cart(10), cart(11))
    assert verdict.startswith('Deny flag "cart": the policy cannot be evaluated: ')
    many = "name: large\naction: Hold\nvalidations: [{expression: '[1,2].all(a, [1,2].all(b, a < 9))'}]"
    assert verdicts(many, cart(10), cart(11)) == []
    long = "new.variants.exists(name, name == 'x') || " * 20 + "false"
    refused = "name: large\naction: Hold\nvalidations:\n  - expression: >-\n      " + long
    assert verdicts(refused, cart(10), cart(11)) != []


def test_message_that_is_no_text_gives_way_to_the_other() -> None:
    text = SMALL_STEPS.replace('\'"it moves " + string(plan.most) + " % of users at once"\'', "plan.most")
    assert verdicts(text, cart(10), cart(99)) == [
        'Deny flag "cart": write a FlagRollout for more than 10 % of users'
    ]


def test_values_of_confidential_flags_are_not_seen() -> None:
    text = "name: a\naction: Warn\nvalidations: [{expression: '!has(new.variants) && !has(new.targeting)'}]"
    assert verdicts(text, cart(10), cart(20)) != []
    hidden = {CONFIDENTIAL_KEY: "true"}
    assert verdicts(text, cart(10, **hidden), cart(20, **hidden)) == []


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        ("actoin: Deny", "action: Deny", "one.yaml:3:9: error: actoin: is not known"),
        ("action: Refuse", "action: Deny", "one.yaml:3:9: error: action: must be one of"),
        ("variables.stepped || plam.most", "variables.stepped || plan.most", "one.yaml:9:17: error: "),
        ("name: Small", "name: small-steps", "one.yaml:2:7: error: name: must match"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_has_its_place(wrong: str, right: str, problem: str) -> None:
    found = problems(SMALL_STEPS.replace(right, wrong))
    assert any(text.startswith(problem) for text in found), found


def test_names_are_used_once_and_policies_are_few() -> None:
    twice = read_policies([("a.yaml", OWNED.encode()), ("b.yaml", OWNED.encode())])
    assert [problem.message for problem in twice.problems] == [
        'name: "owned" is also the name of a.yaml; rename one'
    ]
    many = [(f"{n}.yaml", OWNED.replace("owned", f"o{n}").encode()) for n in range(MOST_POLICIES + 2)]
    read = read_policies(many)
    assert len(read.policies) == MOST_POLICIES
    assert [problem.message for problem in read.problems] == ["there are more than 100 policies; join some"]
