"""What FlagPolicies say of objects with flags that people write."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from controller.api.meta import Resource
from controller.authoring.policies import MOST_JUDGEMENTS, Circumstances
from controller.runtime.cache import Cache
from controller.validation.object_policies import PolicySelection, objection_to_review
from tests.worlds.objects import manifest

NOW: Final = datetime(2026, 11, 25, 15, 0, tzinfo=UTC)
HOME: Final = "flagstaff-system"
STEPS: Final = {
    "matchConditions": [{"name": "changed", "expression": 'plan.change == "Changed"'}],
    "validations": [
        {"expression": 'plan.rollout != "" || plan.most <= 10', "message": "write a FlagRollout"}
    ],
}
NEVER: Final = {"validations": [{"expression": "false", "message": "no flag changes"}]}


def flag(default: str = "on", **fields: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default, **fields}


def written(spec: dict[str, Any] | None = None, kind: str = "FeatureFlagConfiguration") -> dict[str, Any]:
    metadata = {"name": "banner", "namespace": "shop", "labels": {"team": "shop"}}
    spec = spec or {"flagSpec": {"flags": {"banner": flag()}}}
    version = "core.openfeature.dev/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def request(new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"uid": "u", "object": new, "oldObject": old, "userInfo": {"username": "ada"}}


def policy(
    action: str = "Deny", rule: dict[str, Any] = NEVER, namespace: str = "shop", **spec: Any
) -> dict[str, Any]:
    made = manifest("FlagPolicy", "steady", {"action": action, **rule, **spec})
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def around(
    new: dict[str, Any], *objects: dict[str, Any], old: dict[str, Any] | None = None
) -> Circumstances | None:
    cache = Cache()
    for each in objects:
        cache.put(Resource.of(each))
    return PolicySelection(cache, HOME, lambda: NOW).around(request(new, old), Resource.of(new))


def verdict(
    new: dict[str, Any], *objects: dict[str, Any], old: dict[str, Any] | None = None
) -> tuple[str, tuple[str, ...]]:
    content = json.dumps({"request": request(new, old)}).encode()
    return objection_to_review(content, around(new, *objects, old=old))


DENIED: Final = (
    'FeatureFlagConfiguration banner: policy shop/steady (Deny): flag "banner": no flag changes; '
    "correct it and apply again"
)


def test_deny_and_hold_refuse_the_object_with_the_policy_and_its_message() -> None:
    assert verdict(written(), policy()) == (DENIED, ())
    assert verdict(written(), policy("Hold")) == (DENIED.replace("Deny", "Hold"), ())
    refusal, _ = verdict(written(kind="FeatureFlag"), policy())
    assert refusal == DENIED.replace("FeatureFlagConfiguration", "FeatureFlag")


def test_warn_lets_the_object_pass_and_warns_its_writer() -> None:
    warning = DENIED.replace("Deny", "Warn").partition(";")[0]
    assert verdict(written(), policy("Warn")) == ("", (warning,))


def test_what_is_stored_already_is_not_judged_again() -> None:
    before = written()
    after = written({"flagSpec": {"flags": {"banner": flag(), "other": flag()}}})
    refusal, _ = verdict(after, policy(), old=before)
    assert 'flag "other": no flag changes' in refusal
    assert '"banner"' not in refusal
    assert verdict(before, policy(), old=before) == ("", ())


def test_old_flags_that_are_bad_are_no_reason_to_refuse_good_ones() -> None:
    bad = written({"flagSpec": {"flags": {"banner": flag("none")}}})
    assert verdict(written(), policy(rule=STEPS), old=bad) == ("", ())


def test_bad_flags_are_refused_before_policies_judge() -> None:
    refusal, _ = verdict(written({"flagSpec": {"flags": {"banner": flag("none")}}}), policy())
    assert "has no" in refusal
    assert "policy" not in refusal


def test_rollout_of_the_object_is_seen_by_its_name() -> None:
    before, after = written(), written({"flagSpec": {"flags": {"banner": flag("off")}}})
    steps = {"flagSetRef": {"name": "banner"}, "flags": ["*"], "steps": [{"share": 10}]}
    rollout = manifest("FlagRollout", "slowly", steps)
    rollout["metadata"]["namespace"] = "shop"
    assert "write a FlagRollout" in verdict(after, policy(rule=STEPS), old=before)[0]
    assert verdict(after, policy(rule=STEPS), rollout, old=before) == ("", ())


def test_author_is_the_user_and_nobody_is_the_signer() -> None:
    rule = {"validations": [{"expression": 'author == "ada" && signer == ""'}]}
    assert verdict(written(), policy(rule=rule)) == ("", ())


@pytest.mark.parametrize(
    ("namespace", "spec", "judged"),
    [
        ("shop", {}, True),
        ("shop", {"selector": {"matchLabels": {"team": "shop"}}}, True),
        ("shop", {"selector": {"matchLabels": {"team": "pay"}}}, False),
        ("pay", {}, False),
        (HOME, {}, True),
        (HOME, {"namespaces": ["sh*"]}, True),
        (HOME, {"namespaces": ["pay"]}, False),
    ],
)
def test_policies_judge_the_objects_that_they_select(
    namespace: str, spec: dict[str, Any], judged: bool
) -> None:
    assert (verdict(written(), policy(namespace=namespace, **spec))[0] != "") is judged


def test_objects_without_flags_are_not_judged() -> None:
    assert around({**written(), "kind": "FeatureFlagSource"}, policy()) is None


def test_policy_that_cannot_be_evaluated_acts_by_its_action() -> None:
    broken = {"validations": [{"expression": "new.metadata.owner == 'shop'"}]}
    assert "cannot be evaluated" in verdict(written(), policy(rule=broken))[0]
    refusal, warnings = verdict(written(), policy("Warn", broken))
    assert refusal == ""
    assert "cannot be evaluated" in warnings[0]


@pytest.mark.parametrize(("action", "refused"), [("Deny", True), ("Warn", False)])
def test_flags_that_policies_do_not_see_or_are_too_many_are_not_judged_one_by_one(
    action: str, refused: bool
) -> None:
    shards = {"shards": [{"name": "banner-0", "digest": "sha256:" + "0" * 64, "flags": 1}]}
    many = {"flagSpec": {"flags": {f"flag-{number}": flag() for number in range(MOST_JUDGEMENTS + 1)}}}
    for spec, words in ((shards, "do not see flags in FlagShards"), (many, "judgements")):
        refusal, warnings = verdict(written(spec), policy(action))
        assert (words in refusal) is refused
        assert any(words in warning for warning in warnings) is not refused
