from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
import yaml

from controller.api.artifact_status import ArtifactStatus
from controller.api.fields import read
from controller.api.flagset import KIND, FlagSetSpec
from controller.api.meta import Resource
from controller.flagsets.dependencies import (
    ready,
    require_dependencies,
    source_artifact,
    source_health,
    unserved_dependencies,
)
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.cache import Cache, Change
from controller.runtime.setbacks import Failed, Passing, Setback, Stalled, Waiting, stall_on_invalid_text
from controller.runtime.watches import indexes_of, keys_to_wake
from tests.worlds import delivery
from tests.worlds.delivery import (
    FIRST,
    NEW,
    NOW,
    OLD,
    OWN_NEW,
    OWN_OLD,
    candidate,
    entry,
    rollout,
    set_object,
)
from tests.worlds.objects import cache_of, thing

ARTIFACT = {"url": "http://x/y", "revision": "main@sha1:r1", "digest": "sha256:00"}


def flag_set(name: str = "checkout", source: str = "flags", **spec: Any) -> Resource:
    reference = {"kind": "FlagSource", "name": source}
    return thing(KIND, name, {"sourceRef": reference, **spec})


def look(of: Resource, *found: Resource) -> ArtifactStatus:
    with stall_on_invalid_text():
        return source_artifact(of, read(FlagSetSpec, of.spec), cache_of(*found))


def waits(of: Resource, *found: Resource) -> None:
    artifact = ArtifactStatus.model_validate(ARTIFACT)
    with stall_on_invalid_text():
        objects = cache_of(of, *found, stages=(FLAG_SETS,))
        asyncio.run(require_dependencies(of, read(FlagSetSpec, of.spec), objects, artifact, NOW))


def source(**status: Any) -> Resource:
    return thing("FlagSource", "flags", {}, status)


def test_a_source_s_artifact_is_read_from_its_status() -> None:
    assert look(flag_set(), source(artifact=ARTIFACT)).revision == "main@sha1:r1"


def test_a_source_that_failed_and_has_an_artifact_will_do() -> None:
    failed = [{"type": "Ready", "status": "False", "reason": "X", "message": "Git is away"}]
    assert look(flag_set(), source(artifact=ARTIFACT, conditions=failed)).url == "http://x/y"


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (None, Waiting, "FlagSource flags does not exist; create it, or correct spec.sourceRef"),
        ({}, Passing, "FlagSource flags has no artifact yet"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "no such branch"}]}, Waiting,
         "FlagSource flags has no artifact yet: no such branch"),
        ({"artifact": {"url": "x"}}, Failed,
         "FlagSource flags has an artifact that cannot be used: status.artifact.revision: is required"),
        ({"artifact": "odd"}, Failed, "FlagSource flags has an artifact that cannot be used: "),
    ],
)  # fmt: skip
def test_until_there_is_an_artifact_the_reason_is_shown(
    status: Any, kind: type[Setback], message: str
) -> None:
    found = [] if status is None else [source(**status)]
    with pytest.raises(kind) as caught:
        look(flag_set(), *found)
    assert (caught.value.reason, type(caught.value)) == ("ArtifactFailed", kind)
    assert caught.value.message.startswith(message)


WAITS = {"conditions": [{"type": "Ready", "status": "False", "reason": "ArtifactFailed", "message": "-"}]}


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (flag_set(), thing("FlagSource", "flags", {"suspend": True}, {})),
        (replace(flag_set(), status=WAITS), source()),
        (flag_set(source="flux"), thing("GitRepository", "flux", {}, {})),
    ],
    ids=["suspended", "not the FlagSet's first look", "of another controller"],
)
def test_of_other_sources_without_an_artifact_it_is_said_at_once(of: Resource, found: Resource) -> None:
    spec = {"sourceRef": {"kind": found.key.kind, "name": found.name}}
    with pytest.raises(Waiting) as caught:
        look(replace(of, spec=spec), found)
    assert type(caught.value) is Waiting


ELSEWHERE = {"kind": "Bucket", "name": "b", "namespace": "other"}
FROM = {"group": "flagstaff.dev", "kind": "FlagSet", "namespace": "shop"}
TO = {"group": "source.toolkit.fluxcd.io", "kind": "Bucket"}
SHARED = thing("Bucket", "b", {}, {"artifact": ARTIFACT}, namespace="other")


def grant(from_: Any = (FROM,), to: Any = (TO,), namespace: str = "other") -> Resource:
    spec = {"from": list(from_), "to": list(to)}
    return thing("FlagGrant", "lets", spec, namespace=namespace)


@pytest.mark.parametrize("there", [[SHARED], []], ids=["there", "not there"])
def test_a_source_in_another_namespace_is_refused_with_the_grant_to_write(there: list[Resource]) -> None:
    with pytest.raises(Stalled, match="Bucket b is in namespace other, where no FlagGrant") as caught:
        look(flag_set(sourceRef=ELSEWHERE), *there)
    assert caught.value.reason == "AccessDenied"
    written = yaml.safe_load(caught.value.message.partition("may apply: ")[2])
    assert look(flag_set(sourceRef=ELSEWHERE), SHARED, Resource.of(written)).url == "http://x/y"


@pytest.mark.parametrize(
    ("found", "lets"),
    [
        (grant(), True),
        (grant(to=({**TO, "name": "c"}, {**TO, "name": "b"})), True),
        (grant(from_=({**FROM, "namespace": "x"}, FROM)), True),
        (grant(to=({**TO, "name": "c"},)), False),
        (grant(to=({**TO, "kind": "GitRepository"},)), False),
        (grant(to=({**TO, "group": "flagstaff.dev"},)), False),
        (grant(from_=({**FROM, "namespace": "other"},)), False),
        (grant(from_=(FROM, {**FROM, "kind": "Deployment"})), False),
        (grant(from_=({**FROM, "group": "", "kind": "Pod"},)), False),
        (grant(namespace="shop"), False),
    ],
)
def test_a_grant_lets_only_the_objects_it_names_refer_to_the_objects_it_names(
    found: Resource, *, lets: bool
) -> None:
    borrower = flag_set(sourceRef=ELSEWHERE)
    if lets:
        assert look(borrower, SHARED, found).url == "http://x/y"
    else:
        with pytest.raises(Stalled, match="no FlagGrant lets FlagSets of shop"):
            look(borrower, SHARED, found)


@pytest.mark.parametrize(("found", "count"), [([grant()], 1), ([], 0)], ids=["granted", "not granted"])
def test_the_health_of_a_source_is_shown_only_where_a_grant_opens_it(
    found: list[Resource], count: int
) -> None:
    suspended = thing("Bucket", "b", {"suspend": True}, namespace="other")
    assert len(source_health(flag_set(sourceRef=ELSEWHERE), cache_of(suspended, *found))) == count


def test_its_own_namespace_may_be_named() -> None:
    reference = {"kind": "FlagSource", "name": "flags", "namespace": "shop"}
    assert look(flag_set(sourceRef=reference), source(artifact=ARTIFACT)).url == "http://x/y"


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("source.toolkit.fluxcd.io/v1", True),
        ("source.toolkit.fluxcd.io/v1beta2", True),
        ("flagstaff.dev/v1beta1", False),
    ],
)
def test_a_kind_of_another_group_is_another_kind(version: str, fits: bool) -> None:
    reference = {"kind": "Bucket", "name": "flags", "apiVersion": version}
    found = thing("Bucket", "flags", {}, {"artifact": ARTIFACT})
    if fits:
        assert look(flag_set(sourceRef=reference), found).url == "http://x/y"
    else:
        with pytest.raises(Stalled, match=r"a Bucket belongs to the API group source\.toolkit\.fluxcd\.io"):
            look(flag_set(sourceRef=reference), found)


@pytest.mark.parametrize(
    ("status", "is_ready"),
    [
        ({}, False),
        ({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}, True),
        ({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"observedGeneration": 0, "conditions": [{"type": "Ready", "status": "True"}]}, False),
    ],
)
def test_ready_is_what_was_said_of_this_generation(status: Any, is_ready: bool) -> None:
    assert ready(thing(KIND, "x", {}, status)) is is_ready


def test_a_dependency_of_another_source_need_only_be_ready() -> None:
    done = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    other = {"sourceRef": {"kind": "FlagSource", "name": "platform"}}
    waits(flag_set(dependsOn=[{"name": "early"}]), thing(KIND, "early", other, done))


@pytest.mark.parametrize(
    ("edges", "way"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["a"]}, "a → b → a"),
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"]}, "a → b → c → a"),
    ],
)
def test_a_cycle_is_reported_with_its_path(edges: dict[str, list[str]], way: str) -> None:
    sets = [flag_set(name, dependsOn=[{"name": each} for each in names]) for name, names in edges.items()]
    with pytest.raises(Stalled, match=way):
        waits(*sets)


def test_a_cycle_among_others_is_theirs_to_mend() -> None:
    others = [flag_set("b", dependsOn=[{"name": "c"}]), flag_set("c", dependsOn=[{"name": "b"}])]
    with pytest.raises(Waiting, match="FlagSet b is not ready"):
        waits(flag_set("a", dependsOn=[{"name": "b"}]), *others)


def test_a_neighbour_with_an_odd_spec_affects_no_other() -> None:
    odd = thing(KIND, "b", {"dependsOn": "everything", "sourceRef": "?"})
    with pytest.raises(Waiting, match="FlagSet b is not ready"):
        waits(flag_set("a", dependsOn=[{"name": "b"}]), odd)


READY = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}


def test_a_source_that_it_depends_on_must_be_ready() -> None:
    waiting = flag_set(dependsOn=[{"kind": "Bucket", "name": "prices"}])
    with pytest.raises(Waiting, match="Bucket prices does not exist"):
        waits(waiting, thing("FlagSource", "prices", {}, READY))
    failed = {**READY, "conditions": [{"type": "Ready", "status": "False", "message": "no such bucket"}]}
    with pytest.raises(Waiting, match="Bucket prices is not ready: no such bucket"):
        waits(waiting, thing("Bucket", "prices", {}, failed))
    waits(waiting, thing("Bucket", "prices", {}, READY))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dep.status.flags > 2", ""),
        ("has(dep.status.flags) && self.spec.sourceRef.name == dep.spec.sourceRef.name", ""),
        ("dep.metadata.name == 'base' && dep.kind == 'FlagSet'", ""),
        ("dep.status.flags > 3", "FlagSet base is not ready: spec.dependsOn.0.readyExpr is false"),
        ("dep.status.none > 3", "FlagSet base is not ready: spec.dependsOn.0.readyExpr fails: 1:"),
        ("dep.status.flags", "FlagSet base is not ready: spec.dependsOn.0.readyExpr fails: 1:1: it gives a"),
    ],
)
def test_an_expression_says_whether_it_is_ready_in_place_of_the_condition(text: str, message: str) -> None:
    base = flag_set("base")
    base = thing(KIND, "base", dict(base.spec), {"flags": 3})
    waiting = flag_set(dependsOn=[{"name": "base", "readyExpr": text}])
    if not message:
        waits(waiting, base)
        return
    with pytest.raises(Waiting) as caught:
        waits(waiting, base)
    assert (caught.value.reason, caught.value.message[: len(message)]) == ("DependencyNotReady", message)


@pytest.mark.parametrize("text", ["dep.", "other.status.flags > 1", "dep.status.flags.frobnicate()"])
def test_what_is_no_expression_stalls_and_names_its_field(text: str) -> None:
    waiting = flag_set(dependsOn=[{"name": "base", "readyExpr": text}])
    with pytest.raises(Stalled, match=r"spec.dependsOn.0.readyExpr: 1:\d+: ") as caught:
        waits(waiting, flag_set("base"))
    assert caught.value.reason == "InvalidSpec"


def test_expressions_are_refused_before_they_are_read_where_they_are_too_long_together() -> None:
    slow = {"name": "base", "readyExpr": f"[{','.join('1' * 500)}] == []"}
    began = time.perf_counter()
    with pytest.raises(Stalled, match="all readyExpr together have more than 2048 characters"):
        waits(flag_set(dependsOn=[slow] * 32), flag_set("base"))
    assert time.perf_counter() - began < 0.25


def test_an_expression_over_an_object_that_is_too_large_fails_before_it_is_converted() -> None:
    base = thing(KIND, "base", {}, {"entries": {str(number): "" for number in range(20_000)}})
    waiting = flag_set(dependsOn=[{"name": "base", "readyExpr": "1 == 1"}])
    with pytest.raises(Waiting, match="fails: 1:1: the objects that it is about are too large"):
        waits(waiting, base)


def test_a_source_of_the_name_of_a_flag_set_is_no_way_back() -> None:
    waits(
        flag_set(dependsOn=[{"kind": "FlagSource", "name": "checkout"}]),
        thing("FlagSource", "checkout", {}, READY),
    )


def woken_by(before: Resource, after: Resource, **depends_on: Any) -> bool:
    """Whether the change wakes a FlagSet that depends on the object."""
    cache = Cache(indexes_of((FLAG_SETS,)))
    cache.learn(
        flag_set(source="other", dependsOn=[{"kind": after.key.kind, "name": after.name, **depends_on}])
    )
    cache.learn(after)
    return "checkout" in {each.name for each in keys_to_wake((FLAG_SETS,), cache, Change(before, after))}


def test_a_dependency_that_becomes_ready_or_changes_for_an_expression_wakes_it() -> None:
    before = thing("FlagSource", "prices", {}, {})
    becomes = replace(before, status=READY, resource_version="2")
    other = replace(before, status={"size": 1}, resource_version="2")
    assert woken_by(before, becomes)
    assert not woken_by(before, other)
    assert woken_by(before, other, readyExpr="dep.status.size > 0")


ROLLING = {
    "observedGeneration": 1,
    "conditions": [
        {"type": "Ready", "status": "True"},
        {
            "type": "RolloutActive",
            "status": "True",
            "reason": "FlagsRolledOut",
            "message": "FlagRollout slow rolls out 1 flag: step 1/2, 20% of users",
        },
    ],
}


def test_a_dependency_in_a_rollout_is_ready_and_that_it_is_rolled_out_is_said() -> None:
    base = thing(KIND, "base", {}, ROLLING)
    depending = flag_set(source="other", dependsOn=[{"name": "base"}])
    waits(depending, base)
    cache = Cache(indexes_of((FLAG_SETS,)))
    assert unserved_dependencies(depending, cache) == ()
    cache.learn(base)
    [condition] = unserved_dependencies(depending, cache)
    assert (condition.type, condition.status, condition.message) == (
        "DependenciesServed",
        "False",
        "FlagSet base is applied, but not served to all users: "
        "FlagRollout slow rolls out 1 flag: step 1/2, 20% of users",
    )
    over = replace(base, status=READY, resource_version="2")
    assert woken_by(base, over)


def test_an_expression_may_wait_until_a_dependency_is_rolled_out() -> None:
    base = thing(KIND, "base", {}, ROLLING)
    text = "!dep.status.conditions.exists(c, c.type == 'RolloutActive')"
    waiting = flag_set(dependsOn=[{"name": "base", "readyExpr": text}])
    with pytest.raises(Waiting, match="readyExpr is false"):
        waits(waiting, base)
    waits(waiting, replace(base, status=READY, resource_version="2"))


STEP = {**delivery.AT_STEP, "revision": NEW}
STAGING = (delivery.flag_set(), set_object(rollouts=[entry("Idle", "")]))
EXPOSED = set_object(rollouts=[entry("Exposed", FIRST, "banner", step="1/2", share="10")])


def production(revision: str = NEW, **status: Any) -> Resource:
    """A FlagSet of another source that waits for the FlagRollout of `checkout`."""
    spec = {"sourceRef": {"kind": "FlagSource", "name": "production"}}
    after = {"dependsOn": [{"kind": "FlagRollout", "name": "checkout"}]}
    return thing(KIND, "production", {**spec, **after}, {"revision": revision, **status})


def gate(of: Resource, *found: Resource, revision: str = NEW) -> str:
    """What a FlagSet with an artifact of a revision waits for; empty: nothing."""
    artifact = ArtifactStatus.model_validate(ARTIFACT | {"revision": revision})
    objects = cache_of(of, *found, stages=(FLAG_SETS,))
    try:
        asyncio.run(require_dependencies(of, read(FlagSetSpec, of.spec), objects, artifact, NOW))
    except Waiting as waiting:
        return f"{waiting.reason}: {waiting.message}".removeprefix("DependencyNotReady: ")
    return ""


def test_a_rollout_that_is_ready_and_has_not_seen_the_commit_is_waited_for() -> None:
    """Its health is of the commit before: production would go first."""
    before = rollout(promotedRevisions=[OLD])
    assert gate(production(), *STAGING, before) == (
        f"FlagRollout checkout has not promoted {NEW}: everybody is about to get {NEW}"
    )
    held = set_object(rollouts=[entry("Held", "", "banner")])
    assert "has not promoted" in gate(production(), STAGING[0], held, before)
    not_there = (delivery.flag_set(OLD, OLD, OWN_OLD), set_object(OLD, OWN_OLD))
    assert gate(production(), *not_there, before) == (
        f"FlagRollout checkout has not promoted {NEW}: the FeatureFlagConfiguration has {OLD}, "
        f"not {NEW.rpartition(':')[2]}"
    )


def test_the_step_is_said_and_the_promotion_of_the_same_commit_is_enough() -> None:
    at_step = rollout(candidate("Progressing", FIRST, "banner", **STEP), promotedRevisions=[OLD])
    assert gate(production(), STAGING[0], EXPOSED, at_step) == (
        f"FlagRollout checkout has not promoted {NEW}: FlagRollout checkout: step 1/2, 10% of users get the "
        "new definition of banner"
    )
    promoted = rollout(promotedRevisions=[NEW, OLD])
    assert not gate(production(), *STAGING, promoted)
    other_branch = NEW.replace("main@", "production@")
    assert not gate(production(other_branch), *STAGING, promoted, revision=other_branch)


def test_a_commit_that_was_promoted_stays_so_when_the_set_has_another_one() -> None:
    later = f"main@sha1:{'c' * 40}"
    newer = rollout(candidate("Progressing", FIRST, "banner", **STEP), promotedRevisions=[NEW])
    flags = delivery.flag_set(later, later, "sha256:9")
    assert not gate(production(), flags, EXPOSED, newer)
    assert "has not promoted" in gate(production(later), flags, EXPOSED, newer, revision=later)


def test_a_rollback_is_waited_for_and_said() -> None:
    stopped = rollout(candidate("Failed", FIRST, "banner", reason="ChecksFailed", message="too slow"))
    held = set_object(rollouts=[entry("Held", FIRST, "banner")])
    assert gate(production(), STAGING[0], held, stopped).endswith("too slow")


def test_what_was_let_through_does_not_wait_again() -> None:
    flags = delivery.flag_set(OLD, OLD, OWN_NEW)
    assert gate(production(), flags, EXPOSED, rollout())
    assert not gate(production(lastAppliedRevision=NEW), flags, EXPOSED, rollout())


def test_a_rollout_that_is_not_there_is_said() -> None:
    assert gate(production(), *STAGING) == (
        "FlagRollout checkout does not exist; create it, or correct spec.dependsOn"
    )


def test_flag_sets_that_wait_for_each_other_s_rollouts_are_refused() -> None:
    after = [{"kind": "FlagRollout", "name": "checkout"}]
    own = delivery.flag_set(spec={"dependsOn": after})
    with pytest.raises(Stalled, match="checkout → checkout"):
        gate(own, rollout())
    staging = delivery.flag_set(spec={"dependsOn": [{"name": "production"}]})
    with pytest.raises(Stalled, match="production → checkout → production"):
        gate(production(), staging, set_object(), rollout())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (rollout(), rollout(promotedRevisions=[NEW])),
        (rollout(), None),
        (STAGING[1], set_object(OLD, OWN_OLD)),
        (delivery.flag_set(OLD, OLD, OWN_OLD), delivery.flag_set()),
    ],
    ids=["promoted", "deleted", "the object", "its flag set"],
)
def test_each_part_of_a_promotion_wakes_who_waits(before: Resource, after: Resource | None) -> None:
    world = {one.key: one for one in (production(), *STAGING, rollout())}
    del world[before.key]
    objects = cache_of(*world.values(), *filter(None, [after]), stages=(FLAG_SETS,))
    keys = keys_to_wake([FLAG_SETS], objects, Change(before, after))
    assert production().key in keys
