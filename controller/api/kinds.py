"""Every kind that we read or write, once: paths, watches and the CLI read this table."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import (
    evaluatorupgrade,
    featureflagconfiguration,
    featureflagsource,
    flagalert,
    flagd,
    flaggrant,
    flagoverride,
    flagprovider,
    flagreceipt,
    flagreceiver,
    flagrollout,
    flagset,
    flagshard,
    flagsource,
    inprocessconfiguration,
    metrictemplate,
)
from controller.api.artifact_status import SourceStatus
from controller.api.fields import InvalidSpecError, Model, SpecProblem, parse_spec, validate
from controller.api.status import Status

if TYPE_CHECKING:
    from controller.api.definition import Definition
    from controller.api.meta import Resource

FLUX: Final = "source.toolkit.fluxcd.io/v1"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A kind as the API server serves it."""

    api_version: str
    """The `apiVersion` in manifests: `flagstaff.dev/v1beta1`, or `v1` of the core group."""
    kind: str
    plural: str
    content: bool = True
    """False: only metadata is kept, so that what the object holds never reaches us."""
    spec: type[Model] | None = None
    """What its users write, where `validate` says all that is wrong with it."""
    status: type[Status] = Status
    """The model of its status; a kind without a reconciler here may have a wider one in its own module."""

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Return the version without the group."""
        return self.api_version.rpartition("/")[2]

    def validate(self, spec: object) -> tuple[SpecProblem, ...]:
        """Return all problems that an object's spec has by itself. Problems that depend on other objects in
        the cluster, or on options of the installation, are found by the reconciler. Never raises.
        """
        return () if self.spec is None else validate(self.spec, spec)


def _kind_of(definition: Definition, *, judged: bool = True) -> ResourceType:
    """A kind of `DEFINITIONS`; `judged`: whether `validate` judges what users write."""
    status = definition.status
    return ResourceType(
        definition.api_version,
        definition.kind,
        definition.plural,
        spec=definition.spec if judged else None,
        status=status if status is not None and issubclass(status, Status) else Status,
    )


FLAG_SOURCE: Final = _kind_of(flagsource.DEFINITION)
FLAG_SET: Final = _kind_of(flagset.DEFINITION)
FLAG_SHARD: Final = _kind_of(flagshard.DEFINITION, judged=False)
FLAG_GRANT: Final = _kind_of(flaggrant.DEFINITION)
FLAG_OVERRIDE: Final = _kind_of(flagoverride.DEFINITION)
FLAG_ROLLOUT: Final = _kind_of(flagrollout.DEFINITION)
METRIC_TEMPLATE: Final = _kind_of(metrictemplate.DEFINITION)
FLAG_RECEIVER: Final = _kind_of(flagreceiver.DEFINITION)
FLAG_PROVIDER: Final = _kind_of(flagprovider.DEFINITION)
FLAG_ALERT: Final = _kind_of(flagalert.DEFINITION)
FLAG_RECEIPT: Final = _kind_of(flagreceipt.DEFINITION, judged=False)
FEATURE_FLAG_CONFIGURATION: Final = _kind_of(featureflagconfiguration.DEFINITION, judged=False)
FEATURE_FLAG: Final = _kind_of(featureflagconfiguration.FEATURE_FLAG_DEFINITION, judged=False)
FEATURE_FLAG_SOURCE: Final = _kind_of(featureflagsource.DEFINITION)
IN_PROCESS_CONFIGURATION: Final = _kind_of(inprocessconfiguration.DEFINITION)
FLAGD: Final = _kind_of(flagd.DEFINITION)
EVALUATOR_UPGRADE: Final = _kind_of(evaluatorupgrade.DEFINITION)
SECRET: Final = ResourceType("v1", "Secret", "secrets", content=False)
CONFIG_MAP: Final = ResourceType("v1", "ConfigMap", "configmaps", content=False)
POD: Final = ResourceType("v1", "Pod", "pods", content=False)
NAMESPACE: Final = ResourceType("v1", "Namespace", "namespaces")
"""Watched while a FlagAlert selects some by their labels."""
EVENT: Final = ResourceType("v1", "Event", "events")
LEASE: Final = ResourceType("coordination.k8s.io/v1", "Lease", "leases")
DEPLOYMENT: Final = ResourceType("apps/v1", "Deployment", "deployments")
STATEFUL_SET: Final = ResourceType("apps/v1", "StatefulSet", "statefulsets")
DAEMON_SET: Final = ResourceType("apps/v1", "DaemonSet", "daemonsets")
RESTARTED: Final = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET)
"""What an EvaluatorUpgrade restarts."""
JOB: Final = ResourceType("batch/v1", "Job", "jobs")
CRON_JOB: Final = ResourceType("batch/v1", "CronJob", "cronjobs")
FLAG_CARRIERS: Final = (*RESTARTED, JOB, CRON_JOB)
"""What may carry flags in an annotation."""
DISRUPTION_BUDGET: Final = ResourceType("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
SERVICE: Final = ResourceType("v1", "Service", "services")
INGRESS: Final = ResourceType("networking.k8s.io/v1", "Ingress", "ingresses")
HTTP_ROUTE: Final = ResourceType("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
ROLE: Final = ResourceType("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING: Final = ResourceType("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
WORKLOADS: Final = (DEPLOYMENT, SERVICE, INGRESS, HTTP_ROUTE)
"""What runs for users; watched in the namespaces that hold a Flagd, where it is ours."""
FLUX_SOURCES: Final = (
    ResourceType(FLUX, "GitRepository", "gitrepositories", status=SourceStatus),
    ResourceType(FLUX, "OCIRepository", "ocirepositories", status=SourceStatus),
    ResourceType(FLUX, "Bucket", "buckets", status=SourceStatus),
    ResourceType(FLUX, "ExternalArtifact", "externalartifacts", status=SourceStatus),
)

ORDERED: Final = tuple(replace(type_, content=False) for type_ in FLAG_CARRIERS)
"""Workloads whose annotations order flag sets for their pods; only metadata of them is read."""

WATCHED: Final = (
    FLAG_SOURCE,
    FLAG_SET,
    FLAG_SHARD,
    FLAG_GRANT,
    FLAG_OVERRIDE,
    FLAG_ROLLOUT,
    METRIC_TEMPLATE,
    FLAG_RECEIVER,
    FLAG_PROVIDER,
    FLAG_ALERT,
    FLAG_RECEIPT,
    FEATURE_FLAG_CONFIGURATION,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    FLAGD,
    EVALUATOR_UPGRADE,
    *FLUX_SOURCES,
)
"""The kinds that are watched in all namespaces; Secrets only where an object refers to one."""
DEFINITIONS: Final = (
    flagsource.DEFINITION,
    flagset.DEFINITION,
    flagshard.DEFINITION,
    flaggrant.DEFINITION,
    flagoverride.DEFINITION,
    flagrollout.DEFINITION,
    metrictemplate.DEFINITION,
    flagreceiver.DEFINITION,
    flagprovider.DEFINITION,
    flagalert.DEFINITION,
    flagreceipt.DEFINITION,
    featureflagconfiguration.DEFINITION,
    featureflagconfiguration.FEATURE_FLAG_DEFINITION,
    featureflagsource.DEFINITION,
    inprocessconfiguration.DEFINITION,
    flagd.DEFINITION,
    evaluatorupgrade.DEFINITION,
)
"""The kinds that users install, whose CustomResourceDefinitions `make crds` writes."""
DELIVERED: Final = (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG, FLAG_SHARD)
"""What holds flags, and what the proxy watches."""
PLURALS: Final = {
    kind.kind: kind.plural
    for kind in (
        *WATCHED,
        SECRET,
        CONFIG_MAP,
        POD,
        EVENT,
        LEASE,
        ROLE,
        ROLE_BINDING,
        *WORKLOADS,
        *FLAG_CARRIERS,
        DISRUPTION_BUDGET,
    )
}
_STATUSES: Final = {kind.kind: kind.status for kind in WATCHED}


def status_of(resource: Resource | None) -> Status:
    """The status of an object, as the model of its kind; an empty one where there is no object."""
    return Status() if resource is None else _STATUSES.get(resource.key.kind, Status).of(resource)


_SPECS: Final = {kind.kind: kind.spec for kind in WATCHED}


def read_spec(resource: Resource) -> None:
    """Have `parse_spec` know the result for the object, whatever it is: for a thread."""
    if (model := _SPECS.get(resource.key.kind)) is not None:
        with contextlib.suppress(InvalidSpecError):
            parse_spec(model, resource)
