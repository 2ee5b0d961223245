"""The steps of the cut-over, in order, and what each changes in a cluster. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagd
from controller.migration.finding import Fate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.migration.migrated_objects import MigratedObject

NAMESPACE: Final = "open-feature-operator-system"
DEPLOYMENT: Final = "open-feature-operator-controller-manager"
MUTATING: Final = "open-feature-operator-mutating-webhook-configuration"
VALIDATING: Final = "open-feature-operator-validating-webhook-configuration"
BINDING: Final = "open-feature-operator-flagd-kubernetes-sync"
PROXY_SERVICE: Final = "flagd-proxy-svc"
OUR_PROXY: Final = "flagstaff-proxy.flagstaff-system.svc.cluster.local"
CRDS: Final = tuple(
    f"{plural}.core.openfeature.dev"
    for plural in ("featureflags", "featureflagsources", "flagds", "inprocessconfigurations")
)
POLICY: Final = "helm.sh/resource-policy"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change of an object."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    """A merge patch, where the method is PATCH."""


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One step of the cut-over."""

    text: str
    commands: tuple[str, ...] = ()
    changes: tuple[ObjectChange, ...] = ()
    """What of it can be tried without doing it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What of OpenFeature Operator is in a cluster; by default all of it, as where it was not looked up."""

    unkept: tuple[str, ...] = CRDS
    """Definitions that go with `helm uninstall`."""
    operator: bool = True
    webhooks: tuple[str, ...] = (MUTATING, VALIDATING)
    proxy_service: bool = True
    binding: bool = True
    unserved: tuple[str, ...] = ()
    """NAMESPACE/NAME of running pods that ask, and have no evaluator."""


def steps(subjects: Sequence[MigratedObject], installed: Installed) -> Iterator[MigrationStep]:
    """Return the steps that are still to be done."""
    if installed.unkept:
        names, kept = " ".join(installed.unkept), {"metadata": {"annotations": {POLICY: "keep"}}}
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        yield MigrationStep(
            "Keep the definitions of the kinds: with them helm uninstall would delete every FeatureFlag",
            (f"kubectl annotate --overwrite crd {names} {POLICY}=keep",),
            tuple(ObjectChange("PATCH", f"{path}/{name}", kept) for name in installed.unkept),
        )
    refused = [
        subject for subject in subjects if any(finding.fate is Fate.REFUSED for finding in subject.findings)
    ]
    if refused:
        yield MigrationStep(f"Change what is refused ({len(refused)} objects), and check again")
    yield MigrationStep(
        "Install Flagstaff beside it, without its webhook; both kinds of proxies serve the same objects",
        (
            "kubectl apply --server-side --force-conflicts -f crds/",
            "kubectl apply -k deploy/without-admission",
            "kubectl rollout status -n flagstaff-system deployment",
        ),
    )
    if installed.operator or installed.webhooks:
        yield _webhook(installed)
    if installed.proxy_service:
        yield _service()
    flagds = [subject for subject in subjects if subject.kind == flagd.KIND]
    if flagds:
        yield MigrationStep(
            "Hand over what was made of each Flagd, when it suits you: its pods are replaced one by one",
            tuple(command for subject in flagds for command in _hand_over_commands(subject)),
        )
    if installed.unserved:
        pods = ", ".join(installed.unserved)
        yield MigrationStep(f"Replace pods that ask for an evaluator and have none: {pods}")
    workloads = [
        subject for subject in subjects if subject.kind in {"Deployment", "StatefulSet", "DaemonSet"}
    ]
    if workloads:
        yield MigrationStep(
            "Restart workloads when it suits you; until then their evaluators go on",
            tuple(
                f"kubectl rollout restart -n {workload.namespace} {workload.kind.lower()}/{workload.name}"
                for workload in workloads
            ),
        )
    if installed.operator or installed.binding:
        yield MigrationStep(
            f"Once no pod has a container flagd that reads the cluster itself (they need {BINDING}), remove "
            "the operator",
            (f"helm uninstall open-feature-operator -n {NAMESPACE}",),
        )


def _webhook(installed: Installed) -> MigrationStep:
    commands, changes = [], []
    if installed.operator:
        commands.append(f"kubectl scale -n {NAMESPACE} deployment/{DEPLOYMENT} --replicas=0")
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}/scale"
        changes.append(ObjectChange("PATCH", path, {"spec": {"replicas": 0}}))
    for webhook in installed.webhooks:
        plural = "mutatingwebhookconfigurations" if webhook == MUTATING else "validatingwebhookconfigurations"
        commands.append(f"kubectl delete {plural} {webhook}")
        changes.append(ObjectChange("DELETE", f"/apis/admissionregistration.k8s.io/v1/{plural}/{webhook}"))
    return MigrationStep(
        "Change webhooks, never having both: pods created in between have no evaluator, and the next check "
        "names them",
        (*commands, "kubectl apply -k deploy"),
        tuple(changes),
    )


def _hand_over_commands(subject: MigratedObject) -> Iterator[str]:
    kinds = ["deployment,service,ingress"]
    if any(finding.path == ("spec", "gatewayApiRoutes") for finding in subject.findings):
        # A command of its own: where Gateway API is not installed, it would label nothing else.
        kinds.append("httproute")
    label = "app.kubernetes.io/managed-by"
    for kind in kinds:
        yield (
            f"kubectl label --overwrite -n {subject.namespace} {kind} "
            f"-l app={subject.name},{label}=open-feature-operator {label}=flagstaff"
        )


def _service() -> MigrationStep:
    body = {
        "metadata": {"ownerReferences": None},
        "spec": {"type": "ExternalName", "externalName": OUR_PROXY, "selector": None},
    }
    patch = json.dumps(body, separators=(",", ":"))
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{PROXY_SERVICE}"
    return MigrationStep(
        "Hand over the name that running evaluators ask, so that they follow our proxy once flagd-proxy ends",
        (
            f"kubectl patch -n {NAMESPACE} service {PROXY_SERVICE} --type=merge -p '{patch}'",
            f"kubectl delete -n {NAMESPACE} deployment flagd-proxy",
        ),
        (ObjectChange("PATCH", path, body),),
    )
