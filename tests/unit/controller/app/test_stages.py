"""Which objects a change wakes, as a table: (before, after, what is reconciled)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from controller.api.meta import ACCEPT_REVISION, REQUESTED_AT, TEST_ALERT, ObjectKey, Resource
from controller.app.reconcilers import STAGES
from controller.runtime.cache import Cache, Change
from controller.runtime.watches import indexes_of, keys_to_wake
from tests.worlds.objects import thing

SET: Final = "flagstaff.dev/flagset"


def flag_set(
    name: str, source: str = "flags", kind: str = "FlagSource", *after: str, **more: Any
) -> Resource:
    spec = {"sourceRef": {"kind": kind, "name": source}, "dependsOn": [{"name": n} for n in after]}
    return thing("FlagSet", name, spec | more.pop("spec", {}), **more)


def artifact(digest: str) -> dict[str, Any]:
    return {"artifact": {"revision": f"main@{digest}", "digest": f"sha256:{digest}", "url": "http://a"}}


def stored_status(size: int) -> dict[str, Any]:
    return {"artifact": artifact("d")["artifact"] | {"size": size}}


def is_ready(status: str, generation: int = 1, revision: str = "r1") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status, "reason": "X"}]
    return {"conditions": conditions, "observedGeneration": generation, "lastAppliedRevision": revision}


SOURCE = thing(
    "FlagSource", "flags", {"git": {"secretRef": {"name": "git"}, "proxySecretRef": {"name": "proxy"}}}
)
RECEIVER = thing("FlagReceiver", "push", {"secretRef": {"name": "hook"}})
PROVIDER = thing("FlagProvider", "chat", {"secretRef": {"name": "chat"}})
ALERT = thing("FlagAlert", "failures", {"providerRef": {"name": "chat"}})
SETS = (
    flag_set("one"),
    flag_set("two", "other"),
    flag_set("three", "flags", "GitRepository"),
    flag_set("four", "other", "FlagSource", "one"),
    flag_set("five", spec={"target": {"name": "checkout"}}),
    flag_set("elsewhere", namespace="other"),
    flag_set(
        "borrower", spec={"sourceRef": {"kind": "FlagSource", "name": "shared", "namespace": "platform"}}
    ),
)
FLAGD = thing("Flagd", "flags", {"featureFlagSource": "settings"})
SETTINGS = thing("FeatureFlagSource", "settings", {"sources": []})
MADE_BY_FLAGD = thing("Deployment", "flags", ownerReferences=({"kind": "Flagd", "name": "flags"},))
ODD = (
    thing("Flagd", "odd", {"featureFlagSource": 7}),
    thing("FlagSet", "odd", {"sourceRef": "flags", "dependsOn": "one", "target": 7}),
    thing("FlagSource", "odd", {"git": 7, "secretRef": ["git"]}),
    thing("FeatureFlagConfiguration", "odd", {"shards": {"name": "s1"}}),
    thing("FlagAlert", "odd", {"providerRef": "chat"}),
    thing("FlagOverride", "odd", {"flagSetRef": "mine", "flag": 7}),
    thing("FlagRollout", "odd", {"flagSetRef": "mine", "flags": 7}),
)
ROLLOUT = thing("FlagRollout", "pay", {"flagSetRef": {"name": "paid"}, "flags": ["*"]})
RIVAL = thing("FlagRollout", "rival", {"flagSetRef": {"name": "paid"}, "flags": ["*"]})
PAID = thing("FeatureFlagConfiguration", "paid")
PROMOTED = thing(
    "FlagShard",
    "pay-promoted-1",
    ownerReferences=({"kind": "FlagRollout", "name": "pay", "uid": ROLLOUT.uid},),
)
SHARDED = thing("FeatureFlagConfiguration", "large", {"shards": [{"name": "s1", "digest": "d"}]})
THERE = (SOURCE, RECEIVER, PROVIDER, ALERT, FLAGD, *SETS, *ODD, SHARDED, ROLLOUT, PAID)
WRITER: Final = [{"manager": "flagstaff-flagset/shop/one"}]
WRITTEN: Final[dict[str, Any]] = {"labels": {SET: "one"}, "managedFields": WRITER}
MADE = thing("FeatureFlagConfiguration", "one", **WRITTEN)
RECEIPT = thing("FlagReceipt", "r", {"configuration": "one", "proxy": "p"})
SHARD = thing("FlagShard", "s1", **WRITTEN)
SECRET = thing("Secret", "git", generation=0)
GIT = thing("GitRepository", "flags")
GRANT = thing("FlagGrant", "shared", {"from": []}, namespace="platform")
PLAIN = thing("FeatureFlagConfiguration", "mine")


def keys_woken(before: Resource | None, after: Resource | None) -> set[ObjectKey]:
    """What a change wakes where everything in THERE is known."""
    cache = Cache(indexes_of(STAGES))
    for each in THERE:
        cache.learn(each)
    if before is not None:
        cache.learn(before)
    if after is not None:
        cache.learn(after)
    elif before is not None:
        cache.forget(before.key)
    return keys_to_wake(STAGES, cache, Change(before, after))


def update(resource: Resource, **more: Any) -> tuple[Resource, Resource]:
    return resource, replace(resource, resource_version="2", **more)


ROWS: Final[dict[str, tuple[Resource | None, Resource | None, set[str]]]] = {
    "a new source": (None, SOURCE, {"FlagSource/flags"}),
    "the same again": (SOURCE, SOURCE, set()),
    "an edited source": (*update(SOURCE, generation=2), {"FlagSource/flags"}),
    "a source made again": (*update(SOURCE, uid="new"), {"FlagSource/flags"}),
    "a request": (*update(SOURCE, annotations={REQUESTED_AT: "t"}), {"FlagSource/flags"}),
    "a held revision accepted": (*update(SOURCE, annotations={ACCEPT_REVISION: "r1"}), {"FlagSource/flags"}),
    "another annotation": (*update(SOURCE, annotations={"a": "b"}), set()),
    "a deletion that begins": (*update(SOURCE, deleting=True), {"FlagSource/flags"}),
    "a source that is gone": (SOURCE, None, set()),
    "a source that fails": (*update(SOURCE, status=is_ready("False")), {"FlagSet/one", "FlagSet/five"}),
    "a source that is suspended": (
        *update(SOURCE, generation=2, spec={"suspend": True}),
        {"FlagSource/flags", "FlagSet/one", "FlagSet/five"},
    ),
    "a status without an artifact": (*update(SOURCE, status=is_ready("True")), set()),
    "an artifact in another namespace": (
        *update(thing("FlagSource", "shared", namespace="platform"), status=artifact("d")),
        {"FlagSet/borrower"},
    ),
    "a grant": (None, GRANT, {"FlagSet/borrower"}),
    "a grant that changed": (*update(GRANT, spec={"from": [7]}), {"FlagSet/borrower"}),
    "a grant that is gone": (GRANT, None, {"FlagSet/borrower"}),
    "a grant's label": (*update(GRANT, labels={"a": "b"}), set()),
    "a grant of another namespace": (None, replace(GRANT, key=replace(GRANT.key, namespace="x")), set()),
    "a first artifact": (*update(SOURCE, status=artifact("d")), {"FlagSet/one", "FlagSet/five"}),
    "the same artifact, another word": (
        replace(SOURCE, status=artifact("d")), replace(SOURCE, status=artifact("d") | is_ready("True")),
        set(),
    ),
    "an artifact that is gone with its source": (
        replace(SOURCE, status=artifact("d")), None, {"FlagSet/one", "FlagSet/five"},
    ),
    "an artifact of Flux's": (*update(GIT, status=artifact("d")), {"FlagSet/three"}),
    "Flux's object alone": (None, GIT, set()),
    "an odd artifact": (*update(GIT, status={"artifact": "x"}), set()),
    "a set that became ready": (*update(SETS[0], status=is_ready("True")), {"FlagSet/four"}),
    "a ready set with another revision": (
        replace(SETS[0], status=is_ready("True")), replace(SETS[0], status=is_ready("True", revision="r2")),
        {"FlagSet/four"},
    ),
    "a ready set's other words": (
        replace(SETS[0], status=is_ready("True")),
        replace(SETS[0], status=is_ready("True") | {"problemCount": 1}), set(),
    ),
    "a set on which nobody depends": (*update(SETS[1], status=is_ready("True")), set()),
    "a set that is gone, and what it wrote is another's target": (
        flag_set("checkout"), None, {"FlagSet/five"},
    ),
    "a user's configuration": (None, PLAIN, {"FeatureFlagConfiguration/mine"}),
    "our configuration, edited": (
        *update(MADE, generation=2), {"FeatureFlagConfiguration/one", "FlagSet/one"},
    ),
    "our configuration's status": (*update(MADE, status=is_ready("True")), set()),
    "our configuration, gone": (MADE, None, {"FlagSet/one"}),
    "our configuration, its provenance edited": (
        *update(MADE, annotations={"flagstaff.dev/revision": "forged"}), {"FlagSet/one"},
    ),
    "our configuration, another's annotation": (*update(MADE, annotations={"a": "b"}), set()),
    "our configuration, unlabelled": (*update(MADE, labels={}), {"FlagSet/one"}),
    "our configuration, its owner removed": (
        replace(MADE, owners=({"uid": "u"},)), MADE, {"FlagSet/one"},
    ),
    "what stood in a set's way is gone": (
        thing(
            "FeatureFlagConfiguration", "checkout", labels={SET: "another"},
            managedFields=[{"manager": "flagstaff-flagset/shop/another"}],
        ),
        None, {"FlagSet/another", "FlagSet/five"},
    ),
    "what only has a set's label": (
        None, thing("FeatureFlagConfiguration", "mine", labels={SET: "one"}),
        {"FeatureFlagConfiguration/mine"},
    ),
    "a shard": (None, SHARD, {"FlagSet/one", "FeatureFlagConfiguration/large"}),
    "a shard that is gone": (SHARD, None, {"FlagSet/one", "FeatureFlagConfiguration/large"}),
    "a shard that nobody lists": (None, thing("FlagShard", "s9"), set()),
    "a Secret": (None, SECRET, {"FlagSource/flags"}),
    "a Secret that changed": (*update(SECRET), {"FlagSource/flags"}),
    "a Secret that is listed again": (SECRET, SECRET, set()),
    "a Secret that is gone": (SECRET, None, {"FlagSource/flags"}),
    "a proxy's Secret": (None, thing("Secret", "proxy"), {"FlagSource/flags"}),
    "a receiver's Secret": (None, thing("Secret", "hook"), {"FlagReceiver/push"}),
    "a provider's Secret": (None, thing("Secret", "chat"), {"FlagProvider/chat"}),
    "an edited provider": (*update(PROVIDER, generation=2), {"FlagProvider/chat", "FlagAlert/failures"}),
    "a provider's status": (*update(PROVIDER, status={"waiting": 1}), set()),
    "a test that is asked for": (*update(PROVIDER, annotations={TEST_ALERT: "t"}), {"FlagProvider/chat"}),
    "an alert that names another provider": (
        *update(ALERT, generation=2, spec={"providerRef": {"name": "phone"}}),
        {"FlagAlert/failures", "FlagProvider/chat", "FlagProvider/phone"},
    ),
    "an alert that names one more": (
        *update(ALERT, generation=2, spec={**ALERT.spec, "providerRefs": [{"name": "phone"}, "odd"]}),
        {"FlagAlert/failures", "FlagProvider/chat", "FlagProvider/phone"},
    ),
    "an alert that is gone": (ALERT, None, {"FlagProvider/chat"}),
    "another namespace's Secret": (None, thing("Secret", "git", namespace="other"), set()),
    "our configuration, served by more": (*update(MADE, status={"served": "2/3"}), {"FlagSet/one"}),
    "a set of a rollout, served by more": (*update(PAID, status={"served": "2/3"}), {"FlagRollout/pay"}),
    "what somebody approves": (
        *update(ROLLOUT, annotations={"flagstaff.dev/rollout-approve": "sha256:a/1"}), {"FlagRollout/pay"},
    ),
    "what somebody resumes": (
        *update(ROLLOUT, annotations={"flagstaff.dev/rollout-resume": "sha256:a"}), {"FlagRollout/pay"},
    ),
    "an override of a flag in a rollout": (
        None, thing("FlagOverride", "stop", {"flagSetRef": {"name": "paid"}, "flag": "pay"}),
        {"FlagOverride/stop", "FlagRollout/pay", "FeatureFlagConfiguration/paid", "FeatureFlag/paid"},
    ),
    "a rollout that goes on": (*update(ROLLOUT, status={"phase": "Idle", "stepText": "1/2"}), set()),
    "another rollout of the namespace": (
        None, RIVAL,
        {
            "FlagRollout/rival", "FlagRollout/pay",
            "FlagSet/paid", "FeatureFlagConfiguration/paid", "FeatureFlag/paid",
        },
    ),
    "promoted definitions that are gone": (PROMOTED, None, {"FlagRollout/pay"}),
    "a user's configuration, served by more": (*update(PLAIN, status={"served": "2/3"}), set()),
    "a receipt": (None, RECEIPT, {"FeatureFlagConfiguration/one"}),
    "a receipt with another content": (
        *update(RECEIPT, status={"digest": "d"}), {"FeatureFlagConfiguration/one"},
    ),
    "a receipt with the same content": (*update(RECEIPT), set()),
    "a receipt that is gone": (RECEIPT, None, {"FeatureFlagConfiguration/one"}),
    "a Flagd": (None, FLAGD, {"Flagd/flags"}),
    "a FeatureFlagSource": (None, SETTINGS, {"FeatureFlagSource/settings", "Flagd/flags"}),
    "a FeatureFlagSource that changed": (*update(SETTINGS, spec={"sources": [7]}), {"Flagd/flags"}),
    "a FeatureFlagSource's label": (*update(SETTINGS, labels={"a": "b"}), set()),
    "a FeatureFlagSource alone": (None, thing("FeatureFlagSource", "other"), {"FeatureFlagSource/other"}),
    "a grant to the pods of a Flagd": (
        None, thing("FlagGrant", "g", {"from": [{"kind": "Pod", "namespace": "shop"}, 7]}, namespace="x"),
        {"Flagd/flags", "Flagd/odd"},
    ),
    "a Flagd's Deployment that is gone": (MADE_BY_FLAGD, None, {"Flagd/flags"}),
    "a Flagd's Deployment with a ready pod": (
        *update(MADE_BY_FLAGD, status={"readyReplicas": 1}), {"Flagd/flags"},
    ),
    "a Flagd's Deployment that nothing happened to": (*update(MADE_BY_FLAGD), set()),
    "a Deployment that lost its owner": (*update(MADE_BY_FLAGD, owners=()), {"Flagd/flags"}),
    "a Flagd's Ingress with an address": (
        *update(replace(MADE_BY_FLAGD, key=replace(MADE_BY_FLAGD.key, kind="Ingress")), status={"a": 1}),
        set(),
    ),
    "a Service of nobody": (None, thing("Service", "flags"), set()),
    "a receipt of nothing": (None, thing("FlagReceipt", "odd", {"configuration": 7}), set()),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "who"), ROWS.values(), ids=ROWS.keys())
def test_a_change_wakes_only_the_stages_it_concerns(
    before: Resource | None, after: Resource | None, who: set[str]
) -> None:
    keys = keys_woken(before, after)
    assert {f"{key.kind}/{key.name}" for key in keys} == who
    assert {key.namespace for key in keys} <= {"shop"}


def test_a_source_in_one_namespace_wakes_no_set_of_another() -> None:
    elsewhere = thing("FlagSource", "flags", namespace="other")
    keys = keys_woken(*update(elsewhere, status=artifact("d")))
    assert keys == {ObjectKey("FlagSet", "other", "elsewhere")}


def test_a_policy_wakes_all_flag_sets_as_it_may_judge_any() -> None:
    policy = thing("FlagPolicy", "quiet", namespace="platform")
    sets = {each.key for each in THERE if each.key.kind == "FlagSet"}
    assert keys_woken(None, policy) == sets
    assert keys_woken(*update(policy, spec={"action": "Warn"})) == sets
    assert keys_woken(policy, None) == sets
    assert keys_woken(*update(policy, labels={"a": "b"})) == set()


def test_an_object_over_a_quota_is_woken_when_another_makes_room() -> None:
    kind, less = "FlagSource", stored_status(1)
    conditions = [{"type": "Ready", "status": "False", "reason": "QuotaExceeded"}]
    over = thing(kind, "over", status={"conditions": conditions})
    beside = thing(kind, "beside", status=stored_status(2))
    cache = Cache(indexes_of(STAGES))
    cache.learn(over)
    for after in (None, replace(beside, status=less)):
        assert over.key in keys_to_wake(STAGES, cache, Change(beside, after))
    assert over.key not in keys_to_wake(STAGES, cache, Change(None, beside))
