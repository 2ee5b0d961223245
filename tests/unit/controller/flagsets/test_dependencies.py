from __future__ import annotations

from typing import Any

import pytest
import yaml

from controller.api.artifact import ArtifactStatus
from controller.api.fields import read
from controller.api.flagset import KIND, FlagSetSpec
from controller.api.meta import Resource
from controller.flagsets.dependencies import ready, require_dependencies, source_artifact, source_health
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting

ARTIFACT = {"url": "http://x/y", "revision": "main@sha1:r1", "digest": "sha256:00"}


def resource(
    kind: str, name: str, spec: Any = None, status: Any = None, *, namespace: str = "shop"
) -> Resource:
    meta = {"name": name, "namespace": namespace, "generation": 1}
    return Resource.of({"kind": kind, "metadata": meta, "spec": spec, "status": status})


def flag_set(name: str = "checkout", source: str = "flags", **spec: Any) -> Resource:
    reference = {"kind": "FlagSource", "name": source}
    return resource(KIND, name, {"sourceRef": reference, **spec})


def objects(*found: Resource) -> Cache:
    known = Cache()
    for each in found:
        known.learn(each)
    return known


def look(of: Resource, *found: Resource) -> ArtifactStatus:
    return source_artifact(of, read(FlagSetSpec, of.spec), objects(*found))


def waits(of: Resource, *found: Resource) -> None:
    artifact = ArtifactStatus.model_validate(ARTIFACT)
    require_dependencies(of, read(FlagSetSpec, of.spec), objects(of, *found), artifact)


def source(**status: Any) -> Resource:
    return resource("FlagSource", "flags", {}, status)


def test_a_source_s_artifact_is_what_its_status_tells() -> None:
    assert look(flag_set(), source(artifact=ARTIFACT)).revision == "main@sha1:r1"


def test_a_source_that_failed_and_has_an_artifact_will_do() -> None:
    failed = [{"type": "Ready", "status": "False", "reason": "X", "message": "Git is away"}]
    assert look(flag_set(), source(artifact=ARTIFACT, conditions=failed)).url == "http://x/y"


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (None, Waiting, "FlagSource flags does not exist; create it, or correct spec.sourceRef"),
        ({}, Waiting, "FlagSource flags has no artifact yet"),
        (
            {"conditions": [{"type": "Ready", "status": "False", "message": "no such branch"}]},
            Waiting,
            "FlagSource flags has no artifact yet: no such branch",
        ),
        (
            {"artifact": {"url": "x"}},
            Failed,
            "FlagSource flags has an artifact that cannot be used: status.artifact.revision: Field required",
        ),
        ({"artifact": "odd"}, Failed, "FlagSource flags has an artifact that cannot be used: "),
    ],
)
def test_until_there_is_an_artifact_it_is_said_why(status: Any, kind: type[Setback], message: str) -> None:
    found = [] if status is None else [source(**status)]
    with pytest.raises(kind) as caught:
        look(flag_set(), *found)
    assert (caught.value.reason, type(caught.value)) == ("ArtifactFailed", kind)
    assert caught.value.message.startswith(message)


ELSEWHERE = {"kind": "Bucket", "name": "b", "namespace": "other"}
FROM = {"group": "flagstaff.dev", "kind": "FlagSet", "namespace": "shop"}
TO = {"group": "source.toolkit.fluxcd.io", "kind": "Bucket"}
SHARED = resource("Bucket", "b", {}, {"artifact": ARTIFACT}, namespace="other")


def grant(from_: Any = (FROM,), to: Any = (TO,), namespace: str = "other") -> Resource:
    spec = {"from": list(from_), "to": list(to)}
    return resource("FlagGrant", "lets", spec, namespace=namespace)


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
        (grant(from_=(FROM, {**FROM, "kind": "Pod"})), False),
        (grant(namespace="shop"), False),
    ],
)
def test_a_grant_lets_just_whom_it_names_refer_to_what_it_names(found: Resource, *, lets: bool) -> None:
    borrower = flag_set(sourceRef=ELSEWHERE)
    if lets:
        assert look(borrower, SHARED, found).url == "http://x/y"
    else:
        with pytest.raises(Stalled, match="no FlagGrant lets FlagSets of shop"):
            look(borrower, SHARED, found)


@pytest.mark.parametrize(("found", "told"), [([grant()], 1), ([], 0)], ids=["granted", "not granted"])
def test_nothing_is_told_of_a_source_that_no_grant_opens(found: list[Resource], told: int) -> None:
    suspended = resource("Bucket", "b", {"suspend": True}, namespace="other")
    assert len(source_health(flag_set(sourceRef=ELSEWHERE), objects(suspended, *found))) == told


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
    found = resource("Bucket", "flags", {}, {"artifact": ARTIFACT})
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
    assert ready(resource(KIND, "x", {}, status)) is is_ready


def test_a_dependency_of_another_source_need_only_be_ready() -> None:
    done = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    other = {"sourceRef": {"kind": "FlagSource", "name": "platform"}}
    waits(flag_set(dependsOn=[{"name": "early"}]), resource(KIND, "early", other, done))


@pytest.mark.parametrize(
    ("edges", "way"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["a"]}, "a → b → a"),
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"]}, "a → b → c → a"),
    ],
)
def test_a_way_back_to_itself_is_told(edges: dict[str, list[str]], way: str) -> None:
    sets = [flag_set(name, dependsOn=[{"name": each} for each in names]) for name, names in edges.items()]
    with pytest.raises(Stalled, match=way):
        waits(*sets)


def test_a_cycle_among_others_is_theirs_to_mend() -> None:
    others = [flag_set("b", dependsOn=[{"name": "c"}]), flag_set("c", dependsOn=[{"name": "b"}])]
    with pytest.raises(Waiting, match="FlagSet b is not ready"):
        waits(flag_set("a", dependsOn=[{"name": "b"}]), *others)


def test_a_neighbour_whose_spec_is_odd_hurts_itself_alone() -> None:
    odd = resource(KIND, "b", {"dependsOn": "everything", "sourceRef": "?"})
    with pytest.raises(Waiting, match="FlagSet b is not ready"):
        waits(flag_set("a", dependsOn=[{"name": "b"}]), odd)
