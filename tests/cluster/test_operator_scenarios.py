"""OpenFeature Operator's end-to-end scenarios, written anew: its users' manifests on a real control plane,
and the controller as those run it who move over.

Beside the API server run Kubernetes' own controller-manager and scheduler; kwok says of pods what a kubelet
would. Nothing runs in those pods: where the operator's tests send a request from a Job, the evaluator is
started here from the container that is found in the pod, and is sent the same request.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.admission import admission
from tests.cluster.api import Refused
from tests.cluster.assets import KWOK, find
from tests.cluster.controllers import SYSTEM, controller
from tests.cluster.kubelets import kubelets
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT, without
from tests.cluster.proxies import proxy
from tests.cluster.scenarios.containers import resolve_flag, run_container
from tests.cluster.scenarios.manifests import difference, part
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.cluster.controllers import ControllerProcess
    from tests.cluster.plane import Plane

IMAGE: Final = "ghcr.io/open-feature/flagd:v0.15.4"
COMPAT: Final = (
    "--compat", "openfeature-operator", "--evaluator-image", IMAGE, "--flag-files", "--proxy-replicas", "1",
)  # fmt: skip
PROXY: Final = "flagstaff-proxy"
APPLICATION: Final = "open-feature-e2e-test"
FLAG: Final = "end-to-end-test"


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """The controller with its webhooks, the proxy, and Nodes that pods can run on."""
    kwok = find(KWOK)
    if kwok is None:
        without("NO POD WOULD BE READY: no kwok here; `make kwok` builds it")
    folder = tmp_path_factory.mktemp("operator")
    for name in ("flag-files", "proxy-on-demand"):
        spare.kubectl("apply", "--server-side", "-f", str(ROOT / f"deploy/components/{name}/binding.yaml"))
    asleep(spare)
    with kubelets(spare, kwok), proxy(spare, folder / "proxy") as delivering:
        spare.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready-")
        words = (*COMPAT, "--proxy-address", delivering.target)
        with controller(spare, folder / "controller", *words) as process:
            process.wait_leads()
            with admission(spare, folder / "admission", *words):
                yield process


def asleep(plane: Plane) -> None:
    """The proxy's Deployment of users who run the proxy on demand; a process stands in for its pods."""
    manifest = ROOT / "deploy/components/proxy/proxy.yaml"
    deployment, *_ = yaml.safe_load_all(manifest.read_text(encoding="utf-8"))
    del deployment["spec"]["replicas"]
    plane.kubectl("create", "-f", "-", given=json.dumps(deployment))
    plane.kubectl("scale", "-n", SYSTEM, f"deployment/{PROXY}", "--replicas=0")


class Scenario(Namespace):
    """One of them, in a namespace of its own, from the parts of one file."""

    def __init__(self, plane: Plane, name: str, file: str) -> None:
        super().__init__(plane, name)
        self.file = file

    def manifests(self, *parts: str) -> Iterator[dict[str, Any]]:
        for each in parts:
            yield from part(self.file, each, self.name)

    def submit(self, *parts: str, words: Sequence[str] = (), check: bool = True) -> str:
        """`kubectl apply`; what it prints."""
        items = {"apiVersion": "v1", "kind": "List", "items": [*self.manifests(*parts)]}
        return self.kubectl("apply", *words, "-f", "-", given=json.dumps(items), check=check)

    def expect(self, *parts: str) -> None:
        """Until all of this is found."""
        for each in self.manifests(*parts):
            within(partial(self.has, each), partial(self.difference_from, each))

    def has(self, wanted: Mapping[str, Any]) -> bool:
        """Whether there is such an object."""
        return not self.difference_from(wanted)

    def difference_from(self, wanted: Mapping[str, Any]) -> str:
        """How the nearest object differs; empty where one is as it is wanted."""
        meta, kind = wanted["metadata"], wanted["kind"]
        there = [self.get(kind, meta["name"])] if "name" in meta else self.all(kind)
        differences = [difference(wanted, {**each, **_type(wanted)}) for each in there if each]
        if "" in differences:
            return ""
        return next(iter(differences), f"no {kind} in {json.dumps(self.all('event'))[-3000:]}")

    def wait_refused(self, reason: str) -> None:
        """Until a ReplicaSet was refused its pod for this reason."""
        within(lambda: any(reason in each["message"] for each in self.all("event")))
        assert self.all("pod") == []

    def injected_container(self) -> dict[str, Any]:
        """The evaluator's container in the only pod."""
        (pod,) = self.all("pod")
        (container,) = pod["spec"]["initContainers"]
        found: dict[str, Any] = container
        return found


def _type(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Items of a list do not say it."""
    return {name: wanted[name] for name in ("apiVersion", "kind")}


@pytest.fixture
def application(installed: ControllerProcess, spare: Plane, spare_namespace: str) -> Scenario:
    assert installed.leads
    return Scenario(spare, spare_namespace, "application")


@pytest.fixture
def standing(installed: ControllerProcess, spare: Plane, spare_namespace: str) -> Scenario:
    assert installed.leads
    found = Scenario(spare, spare_namespace, "flagd")
    found.submit("flags")
    return found


@pytest.fixture
def validating(installed: ControllerProcess, spare: Plane, spare_namespace: str) -> Scenario:
    """Once the API server asks about flags: where it cannot ask, it lets them pass."""
    found = Scenario(spare, spare_namespace, "validation")
    within(
        lambda: "denied" in found.submit("bad", words=("--dry-run=server",), check=False), installed.log_text
    )
    return found


def deployed_before_its_source(application: Scenario, provider: str) -> None:
    """The workload is there first: its pod is refused, and comes once what it names is there."""
    application.submit("flags", "surroundings", "deployed")
    application.wait_refused("has no FeatureFlagSource source-configuration")
    spec = {"sources": [{"source": FLAG, "provider": provider}], "port": 8013, "evaluator": "json"}
    source = manifest("FeatureFlagSource", "source-configuration", spec)
    application.kubectl("apply", "-f", "-", given=json.dumps(source))
    application.expect("found")


def answers(application: Scenario, folder: Path, mounts: Mapping[str, Path]) -> None:
    """Whether the pod's evaluator would answer the application's request."""
    with run_container(application.injected_container(), folder, mounts) as running:
        port = running.next_event("listening")["grpc"]
        running.next_event("flags served")
        answer = resolve_flag(port)
    assert (answer["value"], answer["reason"], answer["variant"]) == (True, "STATIC", "on")


def test_flagd_disabled(application: Scenario) -> None:
    application.submit("flags", "surroundings", "disabled")
    application.expect("found-disabled")
    (pod,) = application.all("pod")
    assert "initContainers" not in pod["spec"]
    assert "env" not in pod["spec"]["containers"][0]


def test_fsconfig_file_sync(application: Scenario, tmp_path: Path) -> None:
    deployed_before_its_source(application, "file")
    name = f"{application.name}_{FLAG}"
    container = application.injected_container()
    (path,) = [each["mountPath"] for each in container["volumeMounts"] if name in each["mountPath"]]
    (tmp_path / "flags").mkdir()
    written = within(lambda: application.get("configmap", FLAG)).get("data", {})
    (tmp_path / "flags" / f"{name}.flagd.json").write_text(written[f"{name}.flagd.json"])
    answers(application, tmp_path, {path: tmp_path / "flags"})


def test_fsconfig_kubernetes_sync(application: Scenario, tmp_path: Path) -> None:
    deployed_before_its_source(application, "kubernetes")
    application.expect("found-kubernetes")
    answers(application, tmp_path, {})


def test_fsconfig_flagd_proxy_sync(application: Scenario, tmp_path: Path) -> None:
    deployed_before_its_source(application, "flagd-proxy")
    system = Namespace(application.plane, SYSTEM)
    system.wait("deployment", lambda found: found["status"].get("readyReplicas") == 1, PROXY)
    answers(application, tmp_path, {})


def test_in_process(installed: ControllerProcess, spare: Plane, spare_namespace: str) -> None:
    assert installed.leads
    scenario = Scenario(spare, spare_namespace, "in-process")
    scenario.submit("deployed")
    scenario.wait_refused("has no InProcessConfiguration source-configuration")
    scenario.submit("configured")
    scenario.expect("found")


def test_flagd_with_custom_ports(standing: Scenario) -> None:
    standing.submit("source-with-ports", "flagd")
    standing.expect("found-ports")


def test_flagd_with_gateway_api(standing: Scenario) -> None:
    kind = json.dumps(part("httproutes", "definition", standing.name)[0])
    standing.plane.kubectl("apply", "-f", "-", given=kind)
    standing.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", given=kind)
    standing.submit("source", "flagd-with-routes")
    standing.expect("found-two", "found-routes")


def test_flagd_with_ingress_default_paths(standing: Scenario) -> None:
    standing.submit("source", "flagd-with-ingress")
    standing.expect("found-two", "found-ingress")


def test_flagd_with_ingress_custom_paths(standing: Scenario) -> None:
    standing.submit("source", "flagd-with-paths")
    standing.expect("found-two", "found-paths")


SAMPLE: Final = "featureflag-sample"
REFUSAL: Final = (
    'admission webhook "validate.flagstaff.dev" denied the request: '
    "FeatureFlag featureflag-sample: spec.flagSpec.flags.fibAlgo.targeting.fractional[0]: fractional buckets"
)


def test_validate_featureflag_create(validating: Scenario) -> None:
    assert REFUSAL in validating.submit("bad", check=False)
    assert validating.get("ff", SAMPLE) == {}
    validating.submit("plain")
    validating.expect("plain")
    validating.delete("ff", SAMPLE)
    said = validating.submit("with-a-reference", check=False)
    assert f"Warning: FeatureFlag {SAMPLE}: spec.flagSpec.flags.fibAlgo.targeting.if[0].$ref: $ref" in said
    validating.expect("with-a-reference")


def test_validate_featureflag_update(validating: Scenario) -> None:
    for good in ("plain", "with-a-reference"):
        validating.submit(good)
        assert REFUSAL in validating.submit("bad", check=False)
        validating.expect(good)
    validating.submit("plain")
    validating.wait(
        "ff", lambda found: "targeting" not in found["spec"]["flagSpec"]["flags"]["fibAlgo"], SAMPLE
    )


def test_what_is_bad_already_can_be_labelled_and_what_a_flag_set_wrote_is_not_asked_about(
    validating: Scenario,
) -> None:
    (bad,) = validating.manifests("bad")
    bad["metadata"]["labels"] = {"flagstaff.dev/flagset": "somebody"}
    manager = f"--field-manager=flagstaff-flagset/{validating.name}/somebody"
    account = f"--as=system:serviceaccount:{SYSTEM}:flagstaff-controller"
    words = ("apply", "--server-side", manager, account, "--as-group=system:masters", "-f", "-")
    validating.kubectl(*words, given=json.dumps(bad))
    # Without the label it is nobody's but its writer's, and its flags are as they were.
    validating.patch("ff", {"metadata": {"labels": {"flagstaff.dev/flagset": None, "team": "shop"}}}, SAMPLE)
    with pytest.raises(Refused, match="denied the request"):
        validating.patch("ff", {"spec": {"flagSpec": {"metadata": {"version": "2"}}}}, SAMPLE)
    validating.delete("ff", SAMPLE)
    validating.wait_gone("ff", SAMPLE)
