from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.accept import Accepted, Policy, Progress, Refused, accept
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.flags.rollouts import Rollout

if TYPE_CHECKING:
    from evaluator.flags.merge import Parsed


def flag(value: object, **more: object) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on", **more}


def read(**flags: object) -> Parsed:
    return parse(json.dumps({"flags": flags}).encode(), file="flags.json")


BAD = flag(2, defaultVariant="of")
WARNED = flag(2, targeting={"unheard_of": []})


def served_values(judged: Accepted | Refused) -> dict[str, Any]:
    assert isinstance(judged, Accepted)
    return {key: each.variants["on"] for key, each in judged.flag_set.flags.items()}


def test_a_bad_flag_is_held_or_missing_and_its_siblings_move_on() -> None:
    judged = accept(read(old=BAD, new=BAD, good=flag(2)), read(old=flag(1), good=flag(1)).flag_set)
    assert served_values(judged) == {"old": 1, "good": 2}
    assert isinstance(judged, Accepted)
    assert (judged.held, judged.missing) == (("old",), ("new",))


@pytest.mark.parametrize(
    ("policy", "delivered", "value"),
    [
        (Policy(), WARNED, 2),
        (Policy(warnings=True), WARNED, 1),
        (Policy(whole=True), WARNED, 2),
        (Policy(whole=True), BAD, None),
        (Policy(warnings=True, whole=True), WARNED, None),
    ],
)
def test_a_policy_says_what_a_problem_holds_back(policy: Policy, delivered: object, value: object) -> None:
    judged = accept(read(a=delivered), read(a=flag(1)).flag_set, policy)
    if value is None:
        assert isinstance(judged, Refused)
        assert judged.problems
    else:
        assert served_values(judged) == {"a": value}


def test_progress_is_served_and_is_not_what_a_later_bad_flag_is_held_at() -> None:
    promoted = read(a=flag(0)).flag_set
    first = accept(read(a=flag(1)), None, progress=Progress(rollouts=(Rollout("r", ("a",), promoted, ""),)))
    assert served_values(first) == {"a": 0}
    assert isinstance(first, Accepted)
    assert first.digest == digest(first.flag_set) != digest(first.desired)
    assert served_values(accept(read(a=BAD), first.desired)) == {"a": 1}


def test_what_cannot_be_understood_is_refused_with_its_first_error() -> None:
    judged = accept(parse(b'{"flags": 1}', file="flags.json"), None)
    assert isinstance(judged, Refused)
    assert judged.cause.startswith("flags.json:1:")
