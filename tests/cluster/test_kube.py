"""The Kubernetes client on the real API server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from prometheus_client import CollectorRegistry

from controller.api.fields import read
from controller.api.flagset import LABEL, FlagSetSpec, manager_of
from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
from controller.api.meta import ObjectKey, Resource
from controller.flagsets.delivery import AppliedObjects, DeliveryWriter
from controller.flagsets.places import Place
from controller.flagsets.stage import FLAG_SETS
from controller.kube.client import Cluster
from controller.kube.event_sink import ApiServerEvents
from controller.runtime.cache import Cache, at_version
from controller.runtime.event import Occurrence, event_of
from controller.runtime.setbacks import Failed, Passing, Stalled
from controller.runtime.watches import indexes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.plane import Plane

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
API: Final = "core.openfeature.dev/v1beta1"
SOURCE_API: Final = "flagstaff.dev/v1beta1"
KIND: Final = "FeatureFlagConfiguration"
FLAG: Final = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
CONDITION: Final = {
    "type": "Ready", "status": "True", "reason": "A", "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


def configuration(namespace: str, *flags: str, name: str = "c", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {LABEL: "s"}} | more
    spec = {"flagSpec": {"flags": dict.fromkeys(flags, FLAG)}}
    return {"apiVersion": API, "kind": KIND, "metadata": meta, "spec": spec}


@asynccontextmanager
async def open_client(plane: Plane) -> AsyncIterator[tuple[Cluster, list[str]]]:
    wrote: list[str] = []
    cluster = await Cluster.connect(str(plane.kubeconfig), wrote=lambda verb, kind: wrote.append(verb))
    try:
        yield cluster, wrote
    finally:
        await cluster.close()


async def test_what_is_applied_again_is_the_same_object(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, wrote):
        first, _ = await api.apply(configuration(namespace, "a"), manager="us")
        again, _ = await api.apply(configuration(namespace, "a"), manager="us")
        ours = [
            [each for each in body["metadata"]["managedFields"] if each["manager"] == "us"]
            for body in (first, again)
        ]
        assert ours[0] == ours[1]
        assert first["metadata"]["generation"] == again["metadata"]["generation"]
        assert wrote == ["apply", "apply"]


async def test_another_owner_is_named_with_the_field(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        await api.apply(configuration(namespace, "a"), manager="argocd")
        with pytest.raises(Stalled, match=r"argocd.*flagSpec\.flags") as raised:
            await api.apply(configuration(namespace, "b"), manager="us")
        assert raised.value.reason == "OwnershipConflict"


async def test_what_the_api_server_will_never_take_is_stalled(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        manifest = configuration(namespace, "a")
        manifest["spec"] = {}
        with pytest.raises(Stalled) as raised:
            await api.apply(manifest, manager="us")
        assert raised.value.reason == "InvalidObject"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_what_etcd_has_no_room_for_is_stalled(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        manifest = configuration(namespace, "a")
        manifest["metadata"]["name"] = "large"
        manifest["spec"]["flagSpec"]["metadata"] = {f"key-{number}": "x" * 1_000 for number in range(1_800)}
        with pytest.raises(Stalled, match="too large for the cluster to store") as raised:
            await api.apply(manifest, manager="us")
        assert raised.value.reason == "InvalidObject"


async def test_an_object_is_deleted_only_if_it_is_still_that_one(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        made, _ = await api.apply(configuration(namespace, "a"), manager="us")
        await api.delete(API, KIND, namespace, "c", uid="another")
        assert await api.get(API, KIND, namespace, "c") is not None
        await api.delete(API, KIND, namespace, "c", uid=made["metadata"]["uid"])
        await api.delete(API, KIND, namespace, "c")
        assert await api.get(API, KIND, namespace, "c") is None


async def test_an_apply_decided_on_an_older_version_is_refused(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (old, wrote), open_client(cluster) as (new, _):
        seen = Resource.of((await old.apply(configuration(namespace, "a"), manager="us"))[0])
        newer, _ = await new.apply(configuration(namespace, "a", "b"), manager="us")
        with pytest.raises(Passing) as refused:
            await old.apply(at_version(configuration(namespace, "c"), seen.resource_version), manager="us")
        assert (refused.value.reason, wrote) == ("ChangedMeanwhile", ["apply", "apply"])
        with pytest.raises(Passing):
            await old.delete(API, KIND, namespace, "c", uid=seen.uid, version=seen.resource_version)
        there = await old.get(API, KIND, namespace, "c")
        assert there is not None
        assert there["spec"] == newer["spec"]
        body, _ = await decided_again(old, configuration(namespace, "c"))
        assert sorted(body["spec"]["flagSpec"]["flags"]) == ["c"]


async def decided_again(api: Cluster, manifest: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Apply on what is there; the plane's own controller may write its status meanwhile."""
    while True:
        there = await api.get(API, KIND, manifest["metadata"]["namespace"], "c")
        assert there is not None
        with suppress(Passing):
            return await api.apply(at_version(manifest, there["metadata"]["resourceVersion"]), manager="us")


async def test_a_manual_change_is_overwritten_at_the_version_that_it_was_seen_at(
    cluster: Plane, namespace: str
) -> None:
    async with open_client(cluster) as (api, _):
        await api.apply(configuration(namespace, "a"), manager="us")
        cluster.kubectl(
            "patch", "-n", namespace, KIND, "c", "--type=merge", "--field-manager=ada",
            "-p", json.dumps({"spec": {"flagSpec": {"flags": {"a": FLAG, "b": FLAG}}}}),
        )  # fmt: skip
        body, editors = await decided_again(api, configuration(namespace, "a"))
        assert (sorted(body["spec"]["flagSpec"]["flags"]), editors) == (["a"], "ada")


class Standby:
    """A replica's view and its writer; the view changes when the test says so."""

    def __init__(self, api: Cluster) -> None:
        self.objects = Cache(indexes_of((FLAG_SETS,)))
        self.delivery = DeliveryWriter(self.objects, Place(self.objects, api))

    async def see(self, api: Cluster, flag_set: Resource) -> None:
        self.objects.learn(flag_set)
        body = await api.get(API, KIND, flag_set.namespace, flag_set.name)
        if body is not None:
            self.objects.learn(Resource.of(body))


async def test_a_leader_that_was_paused_replaces_nothing_that_its_successor_wrote(
    cluster: Plane, namespace: str
) -> None:
    flag_set = Resource(ObjectKey("FlagSet", namespace, "c"), "uid", 1, "1")
    spec = read(FlagSetSpec, {"sourceRef": {"kind": "FlagSource", "name": "s"}})
    async with open_client(cluster) as (a, _), open_client(cluster) as (b, _):
        await a.apply(configuration(namespace, "a"), manager=manager_of(flag_set.key))
        paused, leader = Standby(a), Standby(b)
        await paused.see(a, flag_set)
        labels = {LABEL: "c"}
        newer = AppliedObjects((configuration(namespace, "a", "b", labels=labels),))
        while True:
            await leader.see(b, flag_set)
            with suppress(Passing):
                await leader.delivery.deliver(flag_set, newer, spec, NOW)
                break
        older = AppliedObjects((configuration(namespace, "a", labels=labels),))
        with pytest.raises(Passing, match="changed after it was read"):
            await paused.delivery.deliver(flag_set, older, spec, NOW)
        there = await a.get(API, KIND, namespace, "c")
        assert there is not None
        assert sorted(there["spec"]["flagSpec"]["flags"]) == ["a", "b"]


async def create_suspended(api: Cluster, plane: Plane, namespace: str) -> Resource:
    """A FlagSource that no controller touches."""
    plane.kubectl("apply", "-n", namespace, "-f", "-", given=json.dumps({
        "apiVersion": SOURCE_API, "kind": "FlagSource", "metadata": {"name": "s"},
        "spec": {"interval": "1m", "suspend": True, "git": {"url": "https://example.com/x"}},
    }))  # fmt: skip
    body = await api.get(SOURCE_API, "FlagSource", namespace, "s")
    assert body is not None
    return Resource.of(body)


ARTIFACT: Final = {
    "path": "p", "url": "u", "revision": "r", "digest": "sha256:1", "lastUpdateTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


async def test_a_status_becomes_just_what_is_meant(cluster: Plane, namespace: str) -> None:
    statuses: list[dict[str, Any]] = [
        {"observedGeneration": 1, "observedIgnore": "*", "conditions": [CONDITION]},
        {"observedGeneration": 1, "artifact": {**ARTIFACT, "size": 3, "metadata": {"a": "1", "b": "2"}}},
        {"observedGeneration": 1, "artifact": {**ARTIFACT, "metadata": {"a": "1"}},
         "conditions": [CONDITION]},
    ]  # fmt: skip
    async with open_client(cluster) as (api, _):
        found = await create_suspended(api, cluster, namespace)
        for status in statuses:
            written = await api.write_status(found, status)
            assert written is not None
            assert written.status == status
            assert written.generation == found.generation
            found = written


async def test_a_status_is_not_written_to_another_object_of_that_name(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        first = await create_suspended(api, cluster, namespace)
        await api.delete(SOURCE_API, "FlagSource", namespace, "s")
        assert await api.write_status(first, {"observedGeneration": 1}) is None
        again = await create_suspended(api, cluster, namespace)
        assert again.uid != first.uid
        assert await api.write_status(first, {"observedGeneration": 1}) is None


async def test_a_status_that_is_not_as_we_knew_it_is_made_so(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, wrote):
        found = await create_suspended(api, cluster, namespace)
        newer = await api.write_status(found, {"observedGeneration": 1, "observedIgnore": "*"})
        assert newer is not None
        await api.write_status(newer, {"observedGeneration": 1})
        last = {"observedGeneration": 2, "conditions": [CONDITION]}
        written = await api.write_status(newer, last)
        assert written is not None
        assert written.status == last
        assert wrote == ["status"] * 4


async def test_an_event_that_is_posted_again_after_a_crash_stays_one(cluster: Plane, namespace: str) -> None:
    async with open_client(cluster) as (api, _):
        name = "n" * 199 + "-" + "n" * 20
        made = Resource.of((await api.apply(configuration(namespace, "a", name=name), manager="us"))[0])
        status = {"revision": "main@sha1:1", "digest": "sha256:1"}
        for _ in range(2):
            sink = ApiServerEvents(api.api, CollectorRegistry())
            async with sink.post_in_background():
                for each in (Occurrence("A", "first"), Occurrence("B", "second", warning=True)):
                    sink.accept(event_of(replace(made, status=status), each, NOW))
    events = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
    assert sorted((each["reason"], each["type"], each["count"]) for each in events) == [
        ("A", "Normal", 1), ("B", "Warning", 1),
    ]  # fmt: skip
    assert [each["metadata"]["annotations"] for each in events] == [
        {"flagstaff.dev/revision": "main@sha1:1", "flagstaff.dev/digest": "sha256:1"}
    ] * 2
    assert {each["involvedObject"]["uid"] for each in events} == {made.uid}


async def test_a_secret_is_read_by_its_keys(cluster: Plane, namespace: str) -> None:
    cluster.kubectl("create", "secret", "generic", "s", "-n", namespace, "--from-literal=token=a b")
    async with open_client(cluster) as (api, _):
        assert await api.secret(namespace, "s") == {"token": b"a b"}
        assert await api.secret(namespace, "absent") is None


async def test_annotations_and_labels_are_set_and_removed_and_others_stay(
    cluster: Plane, namespace: str
) -> None:
    async with open_client(cluster) as (api, wrote):
        made = configuration(namespace, "a", annotations={"a": "1", "b": "2"})
        key = Resource.of((await api.apply(made, manager="us"))[0]).key
        await api.patch_metadata(
            FEATURE_FLAG_CONFIGURATION, key, annotations={"a": None, "c": "3"}, labels={"d": "4"}
        )
        found = await api.get(API, KIND, namespace, "c")
        assert found is not None
        assert found["metadata"]["annotations"] == {"b": "2", "c": "3"}
        assert found["metadata"]["labels"] == {LABEL: "s", "d": "4"}
        assert found["metadata"]["generation"] == 1
        assert wrote == ["apply", "metadata"]
        with pytest.raises(Failed):
            await api.patch_metadata(
                FEATURE_FLAG_CONFIGURATION, replace(key, name="absent"), labels={"d": "4"}
            )


async def test_impersonation_has_exactly_the_rights_of_the_service_account(
    cluster: Plane, namespace: str
) -> None:
    cluster.kubectl("create", "serviceaccount", "tenant", "-n", namespace)
    cluster.kubectl(
        "create",
        "role",
        "tenant",
        "-n",
        namespace,
        "--verb=get,create,patch",
        f"--resource={FEATURE_FLAG_CONFIGURATION.plural}",
    )
    cluster.kubectl(
        "create",
        "rolebinding",
        "tenant",
        "-n",
        namespace,
        "--role=tenant",
        f"--serviceaccount={namespace}:tenant",
    )
    async with open_client(cluster) as (api, _):
        tenant = api.impersonate(namespace, "tenant")
        made, _ = await tenant.apply(configuration(namespace, "a"), manager="us")
        # The status may be the controller's by now.
        assert (await tenant.get(API, KIND, namespace, "c") or {})["spec"] == made["spec"]
        for refused in (tenant.secret(namespace, "s"), tenant.delete(API, KIND, namespace, "c")):
            with pytest.raises(Failed, match=f"system:serviceaccount:{namespace}:tenant") as raised:
                await refused
            assert raised.value.reason == "AccessDenied"
        # The account that acts has the rights that it had.
        await api.delete(API, KIND, namespace, "c")


async def test_kinds_that_are_not_installed_have_no_objects(cluster: Plane) -> None:
    async with open_client(cluster) as (api, _):
        assert await api.everywhere("source.example.com/v1", "nothings", ()) == []


async def test_a_forbidden_request_raises_a_setback(cluster: Plane, namespace: str) -> None:
    nobody = await Cluster.connect(str(cluster.config_for("no-token", "nobody")))
    try:
        with pytest.raises(Failed) as raised:
            await nobody.get(API, KIND, namespace, "c")
        assert raised.value.reason == "AccessDenied"
    finally:
        await nobody.close()


async def test_of_a_kind_without_room_for_a_status_nothing_comes_back(cluster: Plane, namespace: str) -> None:
    # As OpenFeature Operator defines FeatureFlag: a status without fields, so that each is pruned.
    group = f"{namespace}.example.com"
    names = {"kind": "FeatureFlag", "plural": "featureflags", "singular": "featureflag"}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": {"type": "object"}}}
    version = {
        "name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"featureflags.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }  # fmt: skip
    made = {
        "apiVersion": f"{group}/v1beta1",
        "kind": "FeatureFlag",
        "metadata": {"name": "f", "namespace": namespace},
    }
    cluster.kubectl("create", "-f", "-", given=json.dumps(definition))
    try:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/featureflags.{group}")
        async with open_client(cluster) as (api, _):
            found = Resource.of((await api.apply(made, manager="us"))[0])
            for _ in range(2):
                written = await api.write_status(found, {"observedGeneration": 1, "conditions": [CONDITION]})
                assert written is not None
                assert dict(written.status) == {}
    finally:
        cluster.kubectl("delete", f"crd/featureflags.{group}", "--wait=false")
