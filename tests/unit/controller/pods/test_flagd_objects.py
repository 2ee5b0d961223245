"""What is made of a Flagd, as the API server is sent it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from controller.api.featureflagsource import FeatureFlagSourceSpec
from controller.api.fields import read
from controller.api.flagd import FlagdSpec, IngressSpec
from controller.pods.flagd_objects import manifests
from controller.pods.known_objects import KnownObjects
from controller.pods.pod_settings import read as read_wanted
from controller.runtime.cache import Cache
from tests.worlds.flagds import INGRESS, OPTIONS, ROUTES, flagd, source


def make_objects(
    spec: dict[str, Any], *, compat: bool = False, annotations: dict[str, str] | None = None, **of_source: Any
) -> dict[str, dict[str, Any]]:
    """By kind; `annotations`: of the Flagd."""
    objects = Cache()
    objects.learn(source(**of_source))
    asks = {"openfeature.dev/featureflagsource": "source"}
    wanted = read_wanted(asks, "shop", replace(OPTIONS, compat=compat), KnownObjects(objects, ()))
    resource = replace(flagd(**spec), annotations=annotations or {})
    found = manifests(resource, read(FlagdSpec, resource.spec), wanted)
    return {each["kind"]: each for each in found}


def container(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_all_is_owned_labelled_and_named_as_the_flagd() -> None:
    for each in make_objects({"ingress": INGRESS, "gatewayApiRoutes": ROUTES}).values():
        meta = each["metadata"]
        assert (meta["name"], meta["namespace"]) == ("flags", "shop")
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "flagstaff"
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Flagd", "flagd-uid", True)


def test_nothing_is_made_of_what_is_not_enabled() -> None:
    assert [*make_objects({})] == ["Deployment", "Service"]
    off = {"ingress": {**INGRESS, "enabled": False}, "gatewayApiRoutes": {**ROUTES, "enabled": False}}
    assert [*make_objects(off)] == ["Deployment", "Service"]


def test_the_evaluator_is_the_injected_one_but_listens_on_all_addresses() -> None:
    found = make_objects({})
    words = container(found)["args"]
    assert "--host=0.0.0.0" in words
    (sources,) = json.loads(words[1].removeprefix("--sources="))
    assert (sources["selector"], sources["uri"]) == ("shop/checkout", "proxy:8015")
    assert "restartPolicy" not in container(found)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {each["name"] for each in container(found)["volumeMounts"]} == {
        each["name"] for each in pod["volumes"]
    }
    assert container(found)["securityContext"]["runAsNonRoot"] is True


def test_the_service_keeps_its_ports_whatever_the_evaluators_are() -> None:
    found = make_objects({"serviceType": "NodePort"}, port=8888, managementPort=9999)
    ports = {each["name"]: (each["port"], each["targetPort"]) for each in found["Service"]["spec"]["ports"]}
    assert ports == {
        "flagd": (8013, 8888),
        "ofrep": (8016, 8016),
        "sync": (8015, 8015),
        "metrics": (8014, 9999),
    }
    assert found["Service"]["spec"]["type"] == "NodePort"
    assert {each["containerPort"] for each in container(found)["ports"]} == {8888, 8016, 8015, 9999}


def test_a_socket_of_the_source_does_not_close_the_port() -> None:
    words = container(make_objects({}, socketPath="/var/run/flagd/flagd.sock"))["args"]
    assert "--port=8013" in words


def test_the_number_of_replicas_is_only_ours_where_it_is_given() -> None:
    assert "replicas" not in make_objects({})["Deployment"]["spec"]
    assert make_objects({"replicas": 0})["Deployment"]["spec"]["replicas"] == 0


def test_an_ingress_has_three_paths_for_each_host() -> None:
    asked = {
        **INGRESS, "hosts": ["a", "b"], "annotations": {"x": "y"}, "ingressClassName": "nginx",
        "pathType": "ImplementationSpecific", "ofrepPath": "/flags", "tls": [{"secretName": "tls"}],
    }  # fmt: skip
    found = make_objects({"ingress": asked})["Ingress"]
    assert found["metadata"]["annotations"] == {"x": "y"}
    assert (found["spec"]["ingressClassName"], found["spec"]["tls"]) == ("nginx", [{"secretName": "tls"}])
    assert [each["host"] for each in found["spec"]["rules"]] == ["a", "b"]
    paths = [
        (each["path"], each["pathType"], each["backend"]["service"]["port"]["number"])
        for each in found["spec"]["rules"][0]["http"]["paths"]
    ]
    assert paths == [
        ("/flagd.evaluation.v1.Service", "ImplementationSpecific", 8013),
        ("/flags", "ImplementationSpecific", 8016),
        ("/flagd.sync.v1.Service", "ImplementationSpecific", 8015),
    ]


EMPTY_OF_FLAGD: dict[str, Any] = {"serviceType": "", "serviceAccountName": "", "ingress": None}
EMPTY_OF_INGRESS: dict[str, Any] = {
    "annotations": {}, "tls": [], "ingressClassName": "", "pathType": "", "flagdPath": "", "ofrepPath": "",
    "syncPath": "", "hosts": [],
}  # fmt: skip
EMPTY_OF_SOURCE: dict[str, Any] = {
    "managementPort": 0, "port": 0, "ofrepPort": 0, "socketPath": "", "evaluator": "", "envVars": [],
    "syncProviderArgs": [], "defaultSyncProvider": "", "logFormat": "", "envVarPrefix": "",
    "rolloutOnChange": None, "probesEnabled": None, "debugLogging": None, "otelCollectorUri": "",
    "resources": {}, "contextValues": {}, "headerToContextMappings": {}, "cors": [],
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY_OF_FLAGD)
def test_an_empty_value_of_a_flagd_is_the_operators_default(name: str) -> None:
    assert make_objects({name: EMPTY_OF_FLAGD[name]}) == make_objects({})


@pytest.mark.parametrize("name", EMPTY_OF_INGRESS)
def test_an_empty_value_of_an_ingress_is_the_operators_default(name: str) -> None:
    without = {key: value for key, value in INGRESS.items() if key != name}
    asked = {**without, name: EMPTY_OF_INGRESS[name]}
    assert make_objects({"ingress": asked}) == make_objects({"ingress": without})


@pytest.mark.parametrize("name", EMPTY_OF_SOURCE)
def test_an_empty_value_of_a_source_is_the_operators_default(name: str) -> None:
    assert make_objects({}, **{name: EMPTY_OF_SOURCE[name]}) == make_objects({})


def test_every_field_of_the_operators_kinds_has_a_row_of_its_empty_value() -> None:
    ours = {"onMissingFlags", "startDeadline"}
    for model, rows, others in (
        (FeatureFlagSourceSpec, EMPTY_OF_SOURCE, {"sources", *ours}),
        (IngressSpec, EMPTY_OF_INGRESS, {"enabled"}),
        (FlagdSpec, EMPTY_OF_FLAGD, {"replicas", "featureFlagSource", "gatewayApiRoutes"}),
    ):
        names = {field.alias or to_camel(name) for name, field in model.model_fields.items()}
        assert names == rows.keys() | others


@pytest.mark.parametrize("hosts", [[], [""]])
def test_without_the_name_of_a_host_any_is_served(hosts: list[str]) -> None:
    both = {"ingress": {**INGRESS, "hosts": hosts}, "gatewayApiRoutes": {**ROUTES, "hosts": hosts}}
    objects = make_objects(both)
    (rule,) = objects["Ingress"]["spec"]["rules"]
    assert "host" not in rule
    assert "hostnames" not in objects["HTTPRoute"]["spec"]


def test_an_http_route_has_the_operators_rules_in_its_order() -> None:
    found = make_objects({"gatewayApiRoutes": {**ROUTES, "hosts": ["a"]}})["HTTPRoute"]["spec"]
    assert (found["parentRefs"], found["hostnames"]) == ([{"name": "gateway"}], ["a"])
    rules = [(each["matches"][0]["path"]["value"], each["backendRefs"][0]["port"]) for each in found["rules"]]
    assert rules == [
        ("/ofrep", 8016),
        ("/flagd.evaluation.v1.Service", 8013),
        ("/flagd.sync.v1.Service", 8015),
    ]


def test_with_compat_the_container_is_the_operators_with_all_four_ports() -> None:
    found = container(make_objects({}, compat=True))
    assert found["args"][:3] == ["start", "--management-port", "8014"]
    ports = [(each["name"], each["containerPort"]) for each in found["ports"]]
    assert ports == [("management", 8014), ("flagd", 8013), ("ofrep", 8016), ("sync", 8015)]


def test_with_compat_it_has_the_installations_resources_and_probes() -> None:
    """OpenFeature Operator merged its defaults into sidecars alone: a Flagd whose FeatureFlagSource said
    nothing of probes had none.
    """
    found = container(make_objects({}, compat=True))
    assert found["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}
    assert found["livenessProbe"]["httpGet"]["port"] == found["readinessProbe"]["httpGet"]["port"] == 8014


def test_the_container_listens_where_the_service_leads() -> None:
    """OpenFeature Operator's Service led to 8013 whatever the FeatureFlagSource's port was, where nobody
    listened.
    """
    found = make_objects({}, compat=True, port=8888)
    words = container(found)["args"]
    assert words[words.index("--port") + 1] == "8888"
    assert {"name": "flagd", "containerPort": 8888} in container(found)["ports"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == 8888


def test_annotations_of_the_flagd_stay_its_own() -> None:
    """OpenFeature Operator copied them to the Service, `last-applied-configuration` and all, so that
    `kubectl apply` and GitOps tools treated the Service as their own.
    """
    noted = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "shop"}
    for each in make_objects({"ingress": INGRESS, "gatewayApiRoutes": ROUTES}, annotations=noted).values():
        assert not noted.keys() & each["metadata"].get("annotations", {}).keys()
