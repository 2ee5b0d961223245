"""What `flagstaff check` looks at: versions, kinds, rights, processes, certificates and evaluators."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from controller.api import kinds
from controller.cli.object_rows import RECORD, SHOWN
from controller.kube.answers import require_good, require_object
from controller.pods.installation import CONTAINER
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from controller.runtime.shards import LEASE, LEASE_LABELS
from controller.validation.object_problems import schemas
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from controller.api.kind import ResourceType
    from controller.kube.client import Cluster


_OLDEST: Final = 29
"""The oldest minor version of Kubernetes in which the rules of our kinds are judged by the API server."""
_SOON: Final = timedelta(days=7)
_LATE: Final = timedelta(seconds=60)
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS: Final = (
    ("mutatingwebhookconfigurations", "flagstaff-injection"),
    ("validatingwebhookconfigurations", "flagstaff-validation"),
)
_SELECTOR: Final = {"labelSelector": "app.kubernetes.io/part-of=flagstaff"}
_VERBS: Final = ("get", "list", "watch", "patch")
"""What the verbs of the command line do with objects."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result."""

    __pydantic_config__ = RECORD

    check: str
    """The checked part."""
    result: Literal["ok", "warning", "failed"]
    """A warning is no reason for another exit code."""
    message: str
    """What was found, and what to do."""


def _ok(check: str, message: str) -> CheckResult:
    return CheckResult(check, "ok", message)


def _warn(check: str, message: str) -> CheckResult:
    return CheckResult(check, "warning", message)


def _failure(check: str, message: str) -> CheckResult:
    return CheckResult(check, "failed", message)


async def check_cluster(cluster: Cluster) -> AsyncIterator[CheckResult]:
    """Yield what an installation needs of a cluster. Raises Failed."""
    answer = await cluster.requests.ask("GET", "/version")
    require_good(answer, "version", "")
    shown = str(answer.body.get("gitVersion"))
    minor = "".join(sign for sign in str(answer.body.get("minor")) if sign.isdecimal())
    if minor and int(minor) < _OLDEST:
        yield _failure("Kubernetes", f"{shown} is too old; 1.{_OLDEST} or newer is needed")
    else:
        yield _ok("Kubernetes", shown)


async def check_installation(cluster: Cluster, namespace: str) -> AsyncIterator[CheckResult]:
    """Yield what an installation in `namespace` consists of. What cannot be read is unknown, and the other
    checks go on.
    """
    checks = {
        **{type_.kind: _kind(cluster, type_) for type_ in SHOWN},
        "your rights": _rights(cluster),
        "processes": _processes(cluster, namespace),
        "leader": _leaders(cluster, namespace),
        **{name: _certificate(cluster, plural, name) for plural, name in _WEBHOOKS},
        "evaluators": _evaluators(cluster),
    }
    for check, results in checks.items():
        try:
            async for result in results:
                yield result
        except Setback as failed:
            yield _warn(check, f"unknown: {failed.message}")


async def deployments_of(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The Deployments of an installation. Raises Failed."""
    path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/deployments"
    answer = await cluster.requests.ask("GET", path, _SELECTOR)
    return list(require_object(answer, "deployments", "").get("items") or ())


def images_of(deployment: Mapping[str, Any]) -> list[str]:
    """The images of a Deployment's containers."""
    return [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]]


async def _processes(cluster: Cluster, namespace: str) -> AsyncIterator[CheckResult]:
    # Imported here: `schema` and `init` need no more than the record, and no client of a cluster.
    from controller.cli.connection import has_nodes

    deployments = await deployments_of(cluster, namespace)
    if not deployments:
        yield _failure(
            "processes", f"no Deployment of Flagstaff in {namespace}; install it, or see --system-namespace"
        )
    elif not await has_nodes(cluster):
        yield _warn("nodes", "the cluster has none, so it runs no pods; processes beside it are not checked")
    for deployment in deployments:
        yield _deployment(deployment)


async def _kind(cluster: Cluster, type_: ResourceType) -> AsyncIterator[CheckResult]:
    name = f"{type_.plural}.{type_.group}"
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    answer = await cluster.requests.ask("GET", path)
    if answer.status == HTTPStatus.NOT_FOUND:
        yield _failure(type_.kind, "is not installed; kubectl apply --server-side -f crds/")
        return
    require_good(answer, "CustomResourceDefinition", name)
    versions = {entry["name"]: entry for entry in answer.body["spec"]["versions"] if entry.get("served")}
    if type_.version not in versions:
        yield _failure(type_.kind, f"version {type_.version} is not served, only {', '.join(versions)}")
        return
    installed = versions[type_.version].get("schema", {}).get("openAPIV3Schema", {})
    lacking = sorted({*_fields(schemas(type_)[type_.version])} - {*_fields(installed)})
    if lacking:
        named = ", ".join(lacking[:3])
        yield _warn(
            type_.kind, f"the definition is older than this program: it lacks {named}; apply crds/ again"
        )
        return
    yield _ok(type_.kind, f"{type_.version}, as this program knows it")


def _fields(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the paths of all fields but those of the metadata."""
    inner = schema.get("items", schema)
    for name, field in (inner.get("properties") or {}).items():
        if not (above == "" and name == "metadata"):
            yield f"{above}{name}"
            yield from _fields(field, f"{above}{name}.")


async def _rights(cluster: Cluster) -> AsyncIterator[CheckResult]:
    rights = [
        (type_, verb)
        for type_ in (kinds.FLAG_SOURCE, kinds.FLAG_SET, kinds.FEATURE_FLAG_CONFIGURATION)
        for verb in _VERBS
    ]
    denied = [
        f"{verb} {type_.plural}" for type_, verb in rights if not await _is_allowed(cluster, type_, verb)
    ]
    if denied:
        yield _warn("your rights", f"you may not, in all namespaces: {', '.join(denied)}")
        return
    yield _ok("your rights", f"you may {', '.join(_VERBS)} sources, sets and configurations everywhere")


async def _is_allowed(cluster: Cluster, type_: ResourceType, verb: str) -> bool:
    attributes = {"group": type_.group, "resource": type_.plural, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await cluster.requests.ask("POST", path, {}, review)
    require_good(answer, "SelfSubjectAccessReview", "")
    return bool((answer.body.get("status") or {}).get("allowed"))


def _deployment(deployment: Mapping[str, Any]) -> CheckResult:
    name, wanted = deployment["metadata"]["name"], deployment["spec"].get("replicas", 1)
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    images = images_of(deployment)
    if ready < wanted:
        return _failure(name, f"{ready} of {wanted} replicas are ready; see kubectl describe pods")
    if skew := _other_versions(images):
        return _warn(name, f"{ready} replicas run {', '.join(skew)}, and this program is {_own()}")
    return _ok(name, f"{ready} of {wanted} replicas are ready, {', '.join(images)}")


def _own() -> str:
    return version("flagstaff")


def _other_versions(images: Sequence[str]) -> list[str]:
    """The images whose tag is a version other than this program's."""
    tags = {image: image.partition("@")[0].rpartition(":")[2] for image in images}
    return sorted(
        image for image, tag in tags.items() if tag[:1].isdecimal() and tag.removeprefix("v") != _own()
    )


async def _leaders(cluster: Cluster, namespace: str) -> AsyncIterator[CheckResult]:
    leases = await cluster.leases(namespace, LEASE_LABELS)
    if not leases:
        yield _warn("leader", "no controller has led yet")
    for name, lease in sorted(leases.items()):
        check = "leader" if name == LEASE else f"leader by Lease {name}"
        spec = lease.get("spec") or {}
        holder, renewed = str(spec.get("holderIdentity") or "nobody"), spec.get("renewTime")
        moment = parse_time(renewed)
        if moment is None or now() - moment > _LATE:
            yield _failure(check, f"{holder} has not renewed the Lease since {renewed or 'its start'}")
        else:
            yield _ok(check, holder)


async def _certificate(cluster: Cluster, plural: str, name: str) -> AsyncIterator[CheckResult]:
    """The authority by which the API server knows admission; nothing where that is not installed."""
    answer = await cluster.requests.ask("GET", f"{_HOOKS}/{plural}/{name}")
    if answer.status == HTTPStatus.NOT_FOUND:
        return
    require_good(answer, plural, name)
    bundles = [hook.get("clientConfig", {}).get("caBundle") for hook in answer.body.get("webhooks") or ()]
    yield _authority(name, bundles)


def _authority(name: str, bundles: Sequence[str | None]) -> CheckResult:
    if not bundles or None in bundles:
        return _failure(name, "a webhook has no caBundle yet: the controller writes it; see flagstaff logs")
    from cryptography import x509

    try:
        ends = min(
            certificate.not_valid_after_utc
            for bundle in bundles
            for certificate in x509.load_pem_x509_certificates(base64.b64decode(bundle or ""))
        )
    except (binascii.Error, ValueError):
        return _failure(name, "the caBundle is no certificate")
    until = timestamp(ends)
    if ends <= now():
        return _failure(name, f"the certificate ended at {until}; the controller should have renewed it")
    if ends <= now() + _SOON:
        return _warn(name, f"the certificate ends at {until}")
    return _ok(name, f"the certificate is valid until {until}")


async def _evaluators(cluster: Cluster) -> AsyncIterator[CheckResult]:
    """Yield the images of evaluators in pods that are of another version."""
    pods = await cluster.everywhere(kinds.POD.api_version, kinds.POD.plural, ())
    images: dict[str, int] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            if container.get("name") == CONTAINER:
                image = str(container.get("image"))
                images[image] = images.get(image, 0) + 1
    if skew := _other_versions([*images]):
        shown = ", ".join(f"{images[image]} run {image}" for image in skew)
        yield _warn(
            "evaluators", f"{shown}, and this program is {_own()}; an EvaluatorUpgrade restarts their pods"
        )
    elif images:
        yield _ok("evaluators", f"{sum(images.values())} in pods are of version {_own()}")
