"""Every kind that we read or write, once: the records of ours, and the kinds of others."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import (
    evaluatorupgrade,
    featureflagconfiguration,
    featureflagsource,
    flagalert,
    flagd,
    flaggrant,
    flagoverride,
    flagpolicy,
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
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.kind import CONTROLLER, ResourceType
from controller.api.records import FLUX_SOURCES, RECORDS
from controller.api.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.kind import Kind
    from controller.api.meta import Resource


FLAG_SOURCE: Final = flagsource.RECORD
FLAG_SET: Final = flagset.RECORD
FLAG_SHARD: Final = flagshard.RECORD
FLAG_GRANT: Final = flaggrant.RECORD
FLAG_OVERRIDE: Final = flagoverride.RECORD
FLAG_POLICY: Final = flagpolicy.RECORD
FLAG_ROLLOUT: Final = flagrollout.RECORD
METRIC_TEMPLATE: Final = metrictemplate.RECORD
FLAG_RECEIVER: Final = flagreceiver.RECORD
FLAG_PROVIDER: Final = flagprovider.RECORD
FLAG_ALERT: Final = flagalert.RECORD
FLAG_RECEIPT: Final = flagreceipt.RECORD
FEATURE_FLAG_CONFIGURATION: Final = featureflagconfiguration.RECORD
FEATURE_FLAG: Final = featureflagconfiguration.FEATURE_FLAG_RECORD
FEATURE_FLAG_SOURCE: Final = featureflagsource.RECORD
IN_PROCESS_CONFIGURATION: Final = inprocessconfiguration.RECORD
FLAGD: Final = flagd.RECORD
EVALUATOR_UPGRADE: Final = evaluatorupgrade.RECORD
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
ORDERED: Final = tuple(replace(type_, content=False) for type_ in FLAG_CARRIERS)
"""Workloads whose annotations order flag sets for their pods; only metadata of them is read."""

KINDS: Final = (*RECORDS, FLAG_GRANT, FLAG_ALERT)
"""The kinds that users install. What `make crds` writes is made from their records."""


def watched_by(role: str, kinds: Iterable[Kind] = KINDS) -> tuple[ResourceType, ...]:
    """Return the kinds that the process with this role watches in all of its namespaces."""
    return tuple(each for each in (*kinds, *FLUX_SOURCES) if "watch" in each.verbs_of(role))


WATCHED: Final = watched_by(CONTROLLER)
"""The kinds that the controller watches in all namespaces; Secrets only where an object refers to one."""
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
_STATUSES: Final = {
    kind.kind: kind.status
    for kind in (*KINDS, *FLUX_SOURCES)
    if kind.status is not None and issubclass(kind.status, Status)
}


def status_of(resource: Resource | None) -> Status:
    """The status of an object, as the model of its kind; an empty one where there is no object."""
    return Status() if resource is None else _STATUSES.get(resource.key.kind, Status).of(resource)


_SPECS: Final = {kind.kind: kind.spec for kind in KINDS if kind.judged}


def read_spec(resource: Resource) -> None:
    """Have `parse_spec` know the result for the object, whatever it is: for a thread."""
    if (model := _SPECS.get(resource.key.kind)) is not None:
        with contextlib.suppress(InvalidSpecError):
            parse_spec(model, resource)
