"""What becomes of OpenFeature Operator's objects, field by field."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from controller.migration.finding import Fate, FieldFinding
from controller.migration.migrated_objects import GivenObjects, subject
from controller.migration.steps import Installed, steps
from controller.pods.installation import Options
from tests.worlds.objects import workload

ENABLED = {"openfeature.dev/enabled": "true"}
ASKS = {**ENABLED, "openfeature.dev/featureflagsource": "a,b"}
OF_PODS = "spec.template.metadata.annotations.openfeature.dev"
BEARER: dict[str, Any] = {"httpSyncBearerToken": "t"}
BEARER_FIELD = "spec.sources[0].httpSyncBearerToken"
HISTORIC = {"featureFlagSpec": '{"flags":{}}', "syncProvider": {"name": "http"}}


def body(kind: str, spec: Any, name: str = "x", version: str = "v1beta1") -> dict[str, Any]:
    return {
        "apiVersion": f"core.openfeature.dev/{version}", "kind": kind,
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec,
    }  # fmt: skip


def deployment(annotations: dict[str, str]) -> dict[str, Any]:
    return workload(below=annotations, name="app", namespace="shop")


def find_findings(
    given: dict[str, Any], *beside: dict[str, Any], compat: bool = False
) -> dict[str, FieldFinding]:
    """By field; of several for one field, the worst."""
    known = GivenObjects([given, *beside], "default", whole=False)
    about = subject(given, "default", Options(compat=compat), known)
    assert about is not None
    order = [*Fate]
    return {each.field: each for each in sorted(about.findings, key=lambda each: order.index(each.fate))}


def source(**spec: Any) -> dict[str, Any]:
    return body("FeatureFlagSource", {"sources": [{"source": "flags"}], **spec})


def of_source(**each: Any) -> dict[str, Any]:
    return body("FeatureFlagSource", {"sources": [{"source": "flags", **each}]})


def in_process(**spec: Any) -> dict[str, Any]:
    return body("InProcessConfiguration", spec)


@pytest.mark.parametrize(
    ("given", "field", "fate", "broken"),
    [
        (of_source(provider="file"), "spec.sources[0].provider", Fate.CHANGED, "never follows the flags"),
        (of_source(provider="file", source="other/flags"), "spec.sources[0].source", Fate.REFUSED,
         "never starts"),
        (of_source(provider="http", **BEARER), BEARER_FIELD, Fate.REFUSED, "flagd ignores"),
        (of_source(provider="http", **BEARER, secretRef={"name": "s"}), BEARER_FIELD, Fate.IGNORED, ""),
        (of_source(provider="grpc", **BEARER), BEARER_FIELD, Fate.REFUSED, "without a token"),
        (of_source(provider="s3", **BEARER), BEARER_FIELD, Fate.IGNORED, ""),
        (of_source(provider="grpc", secretRef={"name": "s"}), "spec.sources[0].secretRef", Fate.KEPT, ""),
        (of_source(provider="s3", secretRef={"name": "s"}), "spec.sources[0].secretRef", Fate.REFUSED, ""),
        (of_source(source="other/flags"), "spec.sources[0].source", Fate.REFUSED, "any namespace"),
        (of_source(source="../x"), "spec.sources[0].source", Fate.REFUSED, "any namespace"),
        (of_source(provider="grpc", certPath="/x"), "spec.sources[0].certPath", Fate.KEPT, "no volume"),
        (of_source(provider="nfs"), "spec.sources[0].provider", Fate.REFUSED, ""),
        (of_source(provider="http", tls=True), "spec.sources[0].tls", Fate.IGNORED, ""),
        (of_source(), "spec.sources[0]", Fate.CHANGED, ""),
        (source(syncProviderArgs=["a"]), "spec.syncProviderArgs", Fate.IGNORED, "ends flagd"),
        (source(socketPath="/run/flagd/s"), "spec.socketPath", Fate.CHANGED, "there is no socket"),
        (source(rolloutOnChange=True), "spec.rolloutOnChange", Fate.IGNORED,
         "whenever the operator restarts"),
        (source(rolloutOnChange=False), "spec.rolloutOnChange", Fate.KEPT, ""),
        (source(defaultSyncProvider="flagd-proxy"), "spec.defaultSyncProvider", Fate.KEPT, "not deployed"),
        (source(envVars=[{"name": "AWS_KEY"}]), "spec.envVars[0]", Fate.CHANGED, "every container"),
        (source(image="x"), "spec.image", Fate.IGNORED, ""),
        (source(port=9013), "spec.port", Fate.KEPT, ""),
        (body("Flagd", {}), "spec", Fate.REFUSED, ""),
        (body("Flagd", {"featureFlagSource": "flags"}), "spec", Fate.CHANGED, "does not reach it"),
        (body("Flagd", {"featureFlagSource": "flags", "replicas": 2}), "spec.replicas", Fate.KEPT, ""),
        (body("Flagd", {"featureFlagSource": "flags", "affinity": {}}), "spec.affinity", Fate.IGNORED, ""),
        (in_process(selector="flags"), "spec", Fate.CHANGED, "nothing listens"),
        (in_process(), "spec", Fate.REFUSED, "nothing listens"),
        (in_process(selector="other/fs"), "spec.selector", Fate.REFUSED, ""),
        (in_process(selector="other/fs", host="mine"), "spec.selector", Fate.KEPT, ""),
        (in_process(socketPath="/run/flagd/s", port=99999), "spec.socketPath", Fate.KEPT, ""),
        (source(socketPath="/tmp/f.sock"), "spec.socketPath", Fate.REFUSED, "there is no socket"),
        (source(logFormat="text"), "spec.logFormat", Fate.REFUSED, ""),
        (source(managementPort=99999), "spec.managementPort", Fate.REFUSED, ""),
        (source(port=9013, ofrepPort=9013), "spec.port", Fate.REFUSED, ""),
        (source(port=8014, managementPort=8013), "spec.port", Fate.KEPT, ""),
        (source(resources={"limits": "much"}), "spec.resources", Fate.REFUSED, ""),
        (of_source(provider="http", interval="often"), "spec.sources[0]", Fate.REFUSED, ""),
        (body("FeatureFlagSource", {}), "spec", Fate.REFUSED, ""),
        (in_process(host="mine", new=1), "spec.new", Fate.IGNORED, ""),
        (body("FlagSourceConfiguration", {}, version="v1alpha3"), "spec", Fate.REFUSED, "no version since"),
        (body("FeatureFlagConfiguration", HISTORIC, version="v1alpha1"), "spec.syncProvider.name",
         Fate.IGNORED, "since 0.5"),
        (body("FeatureFlag", {"flagSpec": {"flags": {"a": 1}}}), "spec.flagSpec", Fate.REFUSED, ""),
        (body("FeatureFlag", {"flagSpec": {"flags": {}}}), "spec.flagSpec", Fate.KEPT, ""),
        (deployment({"openfeature.dev": "enabled"}), OF_PODS, Fate.IGNORED, "since 0.5"),
        (deployment({**ENABLED, "openfeature.dev/flagsourceconfiguration": "a"}),
         f"{OF_PODS}/flagsourceconfiguration", Fate.CHANGED, "since 0.5"),
        (deployment({**ASKS, "openfeature.dev/featureflagconfiguration": "a"}),
         f"{OF_PODS}/featureflagconfiguration", Fate.IGNORED, ""),
        ({**deployment({}), "metadata": {"name": "app", "annotations": ASKS}},
         "metadata.annotations.openfeature.dev/enabled", Fate.IGNORED, "not read"),
        ({"kind": "Pod", "metadata": {"name": "p", "annotations": ENABLED}, "spec": {}},
         "metadata.annotations.openfeature.dev/enabled", Fate.CHANGED, "without an owner are refused"),
    ],
)  # fmt: skip
def test_each_field_has_its_fate(given: dict[str, Any], field: str, fate: Fate, broken: str) -> None:
    finding = find_findings(given)[field]
    assert finding.fate is fate
    assert broken in finding.broken
    assert bool(broken) == bool(finding.broken)


def test_under_compat_a_token_is_passed_on() -> None:
    for provider, fate in (("http", Fate.CHANGED), ("grpc", Fate.IGNORED), ("s3", Fate.IGNORED)):
        assert find_findings(of_source(provider=provider, **BEARER), compat=True)[BEARER_FIELD].fate is fate
    secret = of_source(provider="http", secretRef={"name": "s"})
    assert find_findings(secret, compat=True)["spec.sources[0].secretRef"].fate is Fate.REFUSED
    collector = find_findings(source(otelCollectorUri="x"), compat=True)["spec.otelCollectorUri"]
    assert collector.fate is Fate.CHANGED
    assert "with the extra otel" in collector.message


def test_each_refusal_is_reported_at_its_field() -> None:
    given = source(logFormat="text", socketPath="/tmp/f.sock", ofrepPort=99999, port=9013)
    refused = {name: each.message for name, each in find_findings(given).items() if each.fate is Fate.REFUSED}
    assert sorted(refused) == ["spec.logFormat", "spec.ofrepPort", "spec.socketPath"]
    assert refused["spec.logFormat"] == "FeatureFlagSource logFormat: is 'text'; write one of json, console"
    several = body("FeatureFlagSource", {"sources": [{"source": "a b"}, {"source": "ok"}, {"source": "c d"}]})
    assert {name for name, each in find_findings(several).items() if each.fate is Fate.REFUSED} == {
        "spec.sources[0]",
        "spec.sources[2]",
    }


def test_under_compat_what_comes_to_nothing_is_ignored() -> None:
    given = source(onMissingFlags="Start", startDeadline="5s")
    assert {each.fate for name, each in find_findings(given).items() if "[" not in name} == {Fate.KEPT}
    fields = find_findings(given, compat=True)
    assert fields["spec.onMissingFlags"].fate is fields["spec.startDeadline"].fate is Fate.IGNORED
    assert "without --compat" in fields["spec.onMissingFlags"].message


def test_under_compat_an_in_process_configuration_without_a_host_is_kept() -> None:
    finding = find_findings(body("InProcessConfiguration", {}), compat=True)["spec"]
    assert finding.fate is Fate.KEPT
    assert "nothing listens" in finding.broken


@pytest.mark.parametrize(
    ("container", "compat", "fate", "said"),
    [
        ({"name": "flagd", "ports": [{"containerPort": 8013}]}, False, Fate.REFUSED, "uses port 8013"),
        ({"name": "flagd"}, False, Fate.CHANGED, "is put beside it"),
        ({"name": "flagd", "ports": [{"containerPort": 8013}]}, True, Fate.CHANGED, "brings its own"),
        ({"name": "flagstaff-evaluator"}, False, Fate.REFUSED, "has one of this name already"),
        ({"name": "mine", "ports": [{"containerPort": 8013}]}, True, Fate.CHANGED, "uses port 8013"),
    ],
)
def test_a_template_with_an_evaluator_of_its_own_is_judged_by_the_webhooks_function(
    container: dict[str, Any], compat: bool, fate: Fate, said: str
) -> None:
    given = deployment({**ASKS, "openfeature.dev/featureflagsource": "x"})
    given["spec"]["template"]["spec"]["containers"].append(container)
    finding = find_findings(given, source(), compat=compat)["spec.template.spec"]
    assert finding.fate is fate
    assert said in finding.message


def test_a_pod_that_runs_with_an_evaluator_stays() -> None:
    pod = {
        "kind": "Pod", "metadata": {"name": "p", "uid": "u", "annotations": ASKS},
        "spec": {"containers": [{"name": "flagd", "ports": [{"containerPort": 8013}]}]},
    }  # fmt: skip
    assert find_findings(pod)["spec"].fate is Fate.CHANGED


def test_a_workload_is_judged_by_what_would_be_injected() -> None:
    given, first = deployment(ASKS), {**source(port=9013), "metadata": {"name": "a", "namespace": "shop"}}
    assert "is not among the manifests" in find_findings(given, first)["spec.template.spec"].message
    second = {**source(port=8013), "metadata": {"name": "b", "namespace": "shop"}}
    both = find_findings(given, first, second)
    assert "spec.template.spec" not in both
    overlaid = both["spec.template.metadata.annotations.openfeature.dev/featureflagsource"]
    assert overlaid.message == "port 8013 of b wins over 9013 of a; remove it from the later one"


@pytest.mark.parametrize(
    "given", [None, {"kind": "Pod"}, deployment({}), body("Secret", {}) | {"apiVersion": "v1"}]
)
def test_what_is_not_openfeatures_is_passed_over(given: Any) -> None:
    assert subject(given, "default", Options(), GivenObjects([], "default", whole=False)) is None


def test_steps_are_in_order_and_those_that_are_done_are_left_out() -> None:
    about = subject(
        of_source(provider="file"), "default", Options(), GivenObjects([], "default", whole=False)
    )
    assert about is not None
    first_words = [each.text.split()[0] for each in steps([about], Installed())]
    assert first_words == ["Keep", "Change", "Install", "Change", "Hand", "Once"]
    gone = Installed(
        unkept=(), operator=False, webhooks=(), proxy_service=False, binding=False, unserved=("shop/p",)
    )
    assert [each.text.partition(":")[0] for each in steps([], gone)] == [
        "Install Flagstaff beside it, without its webhook; both kinds of proxies serve the same objects",
        "Replace pods that ask for an evaluator and have none",
    ]


def test_what_was_made_of_a_flagd_is_handed_over_by_its_label() -> None:
    given = body("Flagd", {"featureFlagSource": "flags"})
    about = subject(given, "default", Options(), GivenObjects([given], "default", whole=False))
    assert about is not None
    (step,) = [each for each in steps([about], Installed()) if "each Flagd" in each.text]
    assert step.commands == (
        f"kubectl label --overwrite -n shop deployment,service,ingress -l app={about.name},"
        "app.kubernetes.io/managed-by=open-feature-operator app.kubernetes.io/managed-by=flagstaff",
    )


def test_a_route_is_handed_over_by_a_command_of_its_own() -> None:
    """Where Gateway API is not installed it fails, and the others do not."""
    routes = {"parentRefs": [{"name": "gateway"}]}
    given = body("Flagd", {"featureFlagSource": "flags", "gatewayApiRoutes": routes})
    about = subject(given, "default", Options(), GivenObjects([given], "default", whole=False))
    assert about is not None
    (step,) = [each for each in steps([about], Installed()) if "each Flagd" in each.text]
    assert [each.split()[5] for each in step.commands] == ["deployment,service,ingress", "httproute"]


def test_a_reference_across_namespaces_is_refused_with_the_grant_that_lets_it() -> None:
    given = of_source(source="platform/flags")
    finding = find_findings(given)["spec.sources[0].source"]
    written = yaml.safe_load(finding.message.partition("may apply: ")[2])
    assert (written["kind"], written["metadata"]["namespace"]) == ("FlagGrant", "platform")
    assert find_findings(given, written)["spec.sources[0].source"].fate is Fate.KEPT
