"""A Flagd and its objects over time: what is written, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey
from controller.pods.flagd_objects import ExposureRules
from controller.runtime.setbacks import Failed
from tests.statuses import find
from tests.worlds.flagds import INGRESS, OPTIONS, ROUTES, World, source
from tests.worlds.stages import ready

if TYPE_CHECKING:
    from controller.runtime.result import Settled


def events_of(settled: Settled) -> list[tuple[str, str]]:
    return [(each.reason, each.message) for each in settled.events]


async def test_it_is_ready_once_the_deployment_is() -> None:
    world = World()
    first = await world.look(replicas=2)
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]
    assert world.managers == {"flagstaff-flagd"}
    assert ready(first) == ("False", "Progressing", "0 of 2 replicas are ready")
    assert events_of(first) == [("Applied", "Deployment flags created"), ("Applied", "Service flags created")]
    world.rolled_out(2)
    second = await world.look(replicas=2)
    assert ready(second) == ("True", "Succeeded", "2 of 2 replicas are ready")
    assert {name: second.status[name] for name in ("replicas", "readyReplicas", "image")} == {
        "replicas": 2, "readyReplicas": 2, "image": "example/evaluator:1",
    }  # fmt: skip
    assert world.take_writes() == []


@pytest.mark.parametrize(
    "status", [{"updatedReplicas": 0}, {"readyReplicas": 0}, {"replicas": 2}, {"observedGeneration": 0}]
)
async def test_it_is_not_ready_before_all_replicas_are_of_the_newest_template(status: dict[str, Any]) -> None:
    world = World()
    await world.look()
    world.rolled_out(1, **status)
    assert ready(await world.look())[:2] == ("False", "Progressing")


async def test_a_rollout_that_kubernetes_gave_up_stalls_with_its_words() -> None:
    world = World()
    await world.look()
    given_up = {"type": "Progressing", "status": "False", "message": "has timed out progressing"}
    world.rolled_out(0, conditions=[given_up])
    settled = await world.look()
    assert ready(settled) == (
        "False", "DeploymentFailed", "0 of 1 replicas are ready; has timed out progressing",
    )  # fmt: skip
    assert find(settled.status, "Stalled") is not None


async def test_what_was_removed_is_made_anew_and_what_was_changed_is_restored() -> None:
    world = World()
    await world.look()
    world.take_writes()
    world.objects.forget(ObjectKey("Deployment", "shop", "flags"))
    assert events_of(await world.look()) == [("DriftCorrected", "Deployment flags was removed; restored")]
    world.edit("Service", "flags", type="NodePort")
    assert events_of(await world.look()) == [
        ("DriftCorrected", "Service flags was changed by kubectl-edit; restored")
    ]
    assert world.the("Service", "flags").spec["type"] == "ClusterIP"
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]


async def test_what_is_switched_off_is_removed() -> None:
    world = World()
    await world.look(ingress=INGRESS, gatewayApiRoutes=ROUTES)
    assert world.take_writes() == [
        "apply Deployment/flags",
        "apply Service/flags",
        "apply Ingress/flags",
        "apply HTTPRoute/flags",
    ]
    settled = await world.look(ingress={**INGRESS, "enabled": False})
    assert sorted(world.take_writes()) == ["delete HTTPRoute/flags", "delete Ingress/flags"]
    assert sorted(events_of(settled)) == [
        ("Pruned", "HTTPRoute flags removed"),
        ("Pruned", "Ingress flags removed"),
    ]


async def test_a_changed_source_changes_the_deployment_alone() -> None:
    world = World()
    await world.look()
    world.take_writes()
    world.objects.learn(replace(source(debugLogging=True), resource_version="2"))
    assert events_of(await world.look()) == [("Applied", "Deployment flags changed")]
    assert world.take_writes() == ["apply Deployment/flags"]


async def test_a_controller_that_starts_changes_nothing() -> None:
    world = World()
    await world.look()
    world.reconciler.forget(ObjectKey("Flagd", "shop", "flags"))
    assert events_of(await world.look()) == []


async def test_it_waits_for_its_source() -> None:
    world = World()
    world.objects.forget(source().key)
    assert ready(await world.look()) == ("False", "SourceNotFound", "FeatureFlagSource source not found")
    assert world.take_writes() == []


async def test_a_source_that_cannot_be_followed_stalls_and_what_runs_stays() -> None:
    world = World()
    await world.look()
    world.take_writes()
    bad = source(sources=[{"source": "x", "provider": "nfs"}])
    world.objects.learn(replace(bad, resource_version="2"))
    status, reason, message = ready(await world.look())
    assert (status, reason) == ("False", "InvalidSource")
    assert "provider 'nfs' is not supported" in message
    assert world.take_writes() == []


async def test_a_spec_that_cannot_be_read_stalls() -> None:
    assert ready(await World().look(replicas=-1))[1] == "InvalidSpec"


async def test_an_object_of_somebody_else_is_left_alone() -> None:
    world = World()
    key = ObjectKey("Service", "shop", "flags")
    world.unwatched[key] = {"kind": "Service", "metadata": {"name": "flags", "namespace": "shop"}}
    settled = await world.look()
    assert ready(settled)[1:] == (
        "OwnershipConflict",
        "Service flags is there already and does not belong to this Flagd; remove it, or give the Flagd "
        "another name",
    )
    assert world.take_writes() == ["apply Deployment/flags"]
    assert ("Applied", "Deployment flags created") in events_of(settled)


async def test_what_the_operator_made_is_handed_over_by_its_label() -> None:
    world = World()
    key = ObjectKey("Deployment", "shop", "flags")
    owners = [{"kind": "Flagd", "name": "flags", "uid": "flagd-uid"}]
    meta = {"name": "flags", "namespace": "shop", "ownerReferences": owners}
    labels = {"app.kubernetes.io/managed-by": "open-feature-operator"}
    world.unwatched[key] = {"kind": "Deployment", "metadata": {**meta, "labels": labels}}
    assert ready(await world.look())[2].endswith(
        "kubectl label --overwrite -n shop deployment flags app.kubernetes.io/managed-by=flagstaff"
    )
    world.unwatched[key]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "flagstaff"}
    await world.look()
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]


async def test_without_gateway_api_all_else_is_made() -> None:
    world = World(gateways=False)
    settled = await world.look(gatewayApiRoutes=ROUTES)
    assert ready(settled)[1] == "GatewayApiMissing"
    assert settled.requeue_after == 60
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]
    world.gateways = True
    await world.look(gatewayApiRoutes=ROUTES)
    assert world.take_writes() == ["apply HTTPRoute/flags"]


async def test_without_gateway_api_an_ingress_is_removed_and_replicas_are_counted() -> None:
    world = World(gateways=False)
    await world.look(ingress={"enabled": True, "hosts": ["flags.example.com"]})
    world.rolled_out()
    world.take_writes()
    settled = await world.look(gatewayApiRoutes=ROUTES)
    assert world.take_writes() == ["delete Ingress/flags"]
    assert ("Pruned", "Ingress flags removed") in events_of(settled)
    assert ready(settled)[1] == "GatewayApiMissing"
    assert settled.status["readyReplicas"] == 1
    assert settled.requeue_after == 60


async def test_a_failed_write_is_tried_again_and_the_writes_that_succeeded_are_reported() -> None:
    world = World(refused={"apply Service/flags": Failed("AccessDenied", "forbidden")})
    settled = await world.look()
    assert settled.retry
    assert ("Applied", "Deployment flags created") in events_of(settled)
    world.failing = {}
    await world.look()
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]


async def test_fields_that_nothing_comes_of_are_named() -> None:
    world = World()
    world.objects.learn(replace(source(rolloutOnChange=True), resource_version="2"))
    await world.look()
    world.rolled_out()
    assert "rolloutOnChange is ignored" in ready(await world.look())[2]


async def test_a_token_in_its_arguments_is_warned_of() -> None:
    world = World(options=replace(OPTIONS, compat=True))
    web = {"source": "https://x", "provider": "http", "httpSyncBearerToken": "hush"}
    world.objects.learn(replace(source(sources=[web]), resource_version="2"))
    await world.look()
    world.rolled_out()
    message = ready(await world.look())[2]
    assert "sources[0]: httpSyncBearerToken stands in the pod's arguments" in message
    assert "hush" not in message


async def test_objects_are_written_as_the_service_account_that_it_names() -> None:
    world = World()
    await world.look()
    await world.look(serviceAccountName="till")
    assert world.accounts == [None, "till"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"ingress": {**INGRESS, "hosts": ["evil.example.com"]}}, "HostDenied"),
        ({"ingress": {**INGRESS, "hosts": []}}, "HostDenied"),
        ({"ingress": {**INGRESS, "tls": [{"hosts": ["evil.example.com"]}]}}, "HostDenied"),
        ({"gatewayApiRoutes": {**ROUTES, "hosts": ["evil.example.com"]}}, "HostDenied"),
        ({"gatewayApiRoutes": ROUTES}, "HostDenied"),
        ({"ingress": {**INGRESS, "annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"}}},
         "AnnotationDenied"),
        ({"gatewayApiRoutes": {**ROUTES, "hosts": ["flags.example.com"], "annotations": {"a": "b"}}},
         "AnnotationDenied"),
    ],
)  # fmt: skip
async def test_hosts_and_annotations_that_the_installation_does_not_allow_stall_it(
    spec: dict[str, Any], reason: str
) -> None:
    world = World(exposure=ExposureRules(("flags.*",), ("example.com/*",)))
    assert ready(await world.look(**spec))[:2] == ("False", reason)
    assert world.take_writes() == []


async def test_hosts_and_annotations_that_the_installation_allows_are_made() -> None:
    world = World(exposure=ExposureRules(("flags.*",), ("example.com/*",)))
    await world.look(ingress={**INGRESS, "annotations": {"example.com/class": "x"}})
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags", "apply Ingress/flags"]
    world = World(exposure=ExposureRules((), ()))
    await world.look(ingress={**INGRESS, "enabled": False})
    assert world.take_writes() == ["apply Deployment/flags", "apply Service/flags"]
