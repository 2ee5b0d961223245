"""A Flagd on a real API server: what it asks for is made, kept and removed."""

from __future__ import annotations

import contextlib
import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.api import MERGE, Refused, path_of
from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, current, manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane

RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
INGRESS = {"enabled": True, "hosts": ["flags.example.com"]}
MADE = ("deployment", "service", "ingress")


def source(**spec: Any) -> dict[str, Any]:
    sources = [{"source": "checkout"}]
    return manifest("FeatureFlagSource", "source", {"sources": sources, **spec})


def flagd(**spec: Any) -> dict[str, Any]:
    return manifest("Flagd", "flags", {"featureFlagSource": "source", **spec})


def is_another(uid: str, found: dict[str, Any]) -> bool:
    return bool(found["metadata"]["uid"] != uid)


def make_ready(space: Namespace) -> None:
    """Say of each pod what a kubelet would, until the Flagd is ready."""
    good = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}

    def ready() -> bool:
        for each in space.all("pod"):
            if condition(each, "Ready").get("status") != "True":
                path = path_of("pod", space.name, each["metadata"]["name"]) + "/status"
                # A pod of the Deployment before may go meanwhile.
                with contextlib.suppress(Refused):
                    space.api.ask("PATCH", path, good, MERGE)
        found = space.get("flagd")
        return current(found) and condition(found, "Ready").get("status") == "True"

    within(ready, lambda: str(space.get("flagd").get("status")))


def test_what_a_flagd_asks_for_is_made_kept_and_removed(space: Namespace, cluster: Plane) -> None:
    space.api.ask("PATCH", f"/api/v1/namespaces/{space.name}", RESTRICTED, MERGE)
    space.apply(flagd(replicas=1, ingress=INGRESS))
    space.wait_reason("flagd", "SourceNotFound")
    space.apply(source())
    make_ready(space)
    # Pod security let the pod in.
    (pod,) = space.all("pod")
    assert "--host=0.0.0.0" in pod["spec"]["containers"][0]["args"]
    assert space.get("flagd")["status"]["readyReplicas"] == 1

    # What is removed comes back, and what is changed by hand is restored.
    uids = {kind: space.get(kind)["metadata"]["uid"] for kind in MADE}
    for kind in MADE:
        space.delete(kind)
    for kind in MADE:
        space.wait(kind, partial(is_another, uids[kind]))
    space.patch("service", {"spec": {"type": "NodePort"}})
    space.wait("service", lambda found: found["spec"]["type"] == "ClusterIP")
    within(lambda: {"Applied", "DriftCorrected"} <= {each["reason"] for each in space.events()})

    # The source's change reaches the pods, and what is switched off goes.
    space.apply(source(port=8888))
    space.wait("service", lambda found: found["spec"]["ports"][0]["targetPort"] == 8888)
    space.apply(flagd(replicas=1, ingress={**INGRESS, "enabled": False}))
    space.wait_gone("ingress")
    make_ready(space)

    # What is not asked for any more is not written.
    before = {kind: space.get(kind)["metadata"]["resourceVersion"] for kind in ("deployment", "service")}
    space.poke_and_wait("flagd")
    assert before == {kind: space.get(kind)["metadata"]["resourceVersion"] for kind in before}

    space.delete("flagd")
    for kind in ("deployment", "service"):
        space.wait_gone(kind)
    assert cluster.kubectl("get", "flagd", "-n", space.name).strip() == ""


def test_what_the_operator_made_goes_on_as_ours_once_it_is_handed_over(space: Namespace) -> None:
    space.apply(flagd())
    uid = space.wait_reason("flagd", "SourceNotFound")["metadata"]["uid"]
    labels = {"app": "flags", "app.kubernetes.io/name": "flags"}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "flags",
            "labels": {**labels, "app.kubernetes.io/managed-by": "open-feature-operator"},
            "ownerReferences": [
                {"apiVersion": flagd()["apiVersion"], "kind": "Flagd", "name": "flags", "uid": uid}
            ],
        },
        "spec": {
            "selector": {"matchLabels": {"app": "flags"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [
                        {
                            "name": "flagd",
                            "image": "flagd:1",
                            "args": ["start"],
                            "ports": [{"name": "management", "containerPort": 8014}],
                            "env": [{"name": "FLAGD_PORT", "value": "8013"}],
                        }
                    ]
                },
            },
        },
    }
    space.kubectl("create", "-f", "-", given=json.dumps(theirs))
    space.apply(source())
    message = condition(space.wait_reason("flagd", "OwnershipConflict"), "Ready")["message"]
    assert space.get("deployment")["spec"]["template"]["spec"]["containers"][0]["image"] == "flagd:1"
    space.kubectl(*shlex.split(message.partition("kubectl ")[2]))
    found = space.wait(
        "deployment", lambda it: it["spec"]["template"]["spec"]["containers"][0]["image"] != "flagd:1"
    )
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["args"][1].startswith("--sources=")
    assert [each["containerPort"] for each in container["ports"]].count(8014) == 1
    assert len(found["metadata"]["ownerReferences"]) == 1
    make_ready(space)


@pytest.fixture
def gateways(cluster: Plane) -> Iterator[Callable[[], str]]:
    """Installs the kind HTTPRoute, for as long as the test lasts; of its fields all are taken."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "httproutes.gateway.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "HTTPRoute", "plural": "httproutes"},
            "versions": [version],
        },
    }
    given = json.dumps(definition)
    yield lambda: cluster.kubectl("apply", "-f", "-", given=given)
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", given=given)


def test_without_gateway_api_the_rest_is_made_and_an_object_of_somebody_else_stays(
    space: Namespace, gateways: Callable[[], str]
) -> None:
    theirs = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
        "spec": {"selector": {"app": "mine"}, "ports": [{"port": 8013}]},
    }  # fmt: skip
    space.apply(source(), theirs)
    routes = {"enabled": True, "parentRefs": [{"name": "gateway"}]}
    space.apply(flagd(gatewayApiRoutes=routes), {**flagd(), "metadata": {"name": "other"}})
    space.wait_reason("flagd", "GatewayApiMissing")
    assert space.get("service")["spec"]["selector"] == {"app": "flags"}
    space.wait_reason("flagd", "OwnershipConflict", "other")
    assert space.get("service", "other")["spec"]["selector"] == {"app": "mine"}

    gateways()

    def has_route() -> bool:
        space.poke_and_wait("flagd")
        return bool(space.get("httproute"))

    within(has_route, lambda: str(space.get("flagd").get("status")))
    assert space.get("httproute")["spec"]["parentRefs"] == [{"name": "gateway"}]
    space.apply(flagd())
    space.wait_gone("httproute")


def has_events(space: Namespace, name: str, reasons: set[str]) -> bool:
    return reasons <= {each["reason"] for each in space.events(name)}


def test_what_configures_pods_says_whether_they_would_be_injected(space: Namespace) -> None:
    spec = {"selector": "checkout"}
    space.apply(source(), manifest("InProcessConfiguration", "flags", spec))
    space.wait_reason("featureflagsource", "FlagSetNotFound", "source")
    space.wait_reason("inprocessconfiguration", "FlagSetNotFound")
    space.apply(configuration("checkout", flagSpec=json.loads(flags(banner="on"))))
    space.wait_ready("featureflagsource", "source")
    space.wait_ready("inprocessconfiguration")
    space.apply(source(port=8014), manifest("InProcessConfiguration", "flags", {"tls": False}))
    space.wait_reason("featureflagsource", "InvalidSpec", "source")
    space.wait_reason("inprocessconfiguration", "InvalidSpec")
    space.apply(source(port=8013), manifest("InProcessConfiguration", "flags", spec))
    for name in ("source", "flags"):
        within(partial(has_events, space, name, {"InvalidSpec", "Recovered"}))
