"""Flagd: OpenFeature Operator's kind of an evaluator that stands by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

from controller.api.objects.conditions import FALSE
from controller.api.objects.definition import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Column, Definition
from controller.api.objects.fields import Model, between, one_of, that
from controller.api.objects.meta import OPENFEATURE_VERSION
from controller.api.objects.schema_words import INT32
from controller.api.objects.status import Status
from controller.api.parsing import InvalidTextError
from controller.api.parsing.names import require_object_name

KIND: Final = "Flagd"

_PATH_TYPES: Final = ("Exact", "Prefix", "ImplementationSpecific")
_SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def _require_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise InvalidTextError("must begin with /")


# As in OpenFeature Operator's definition, there are no bounds: the status names what cannot be used.
Path = Annotated[str, that(_require_absolute)]


class IngressSpec(Model):
    """How it is reached through an Ingress."""

    enabled: bool | None = None
    """Whether there is one."""
    annotations: dict[str, str] | None = None
    """Of the Ingress."""
    hosts: tuple[str, ...] = ()
    """Names under which it is reached; an empty one, and none at all, is any name."""
    tls: tuple[dict[str, Any], ...] = ()
    """Certificates, as an Ingress has them."""
    ingress_class_name: str | None = None
    """Of the Ingress."""
    path_type: Annotated[str, one_of(_PATH_TYPES)] | None = None
    """Of each path; default Prefix."""
    flagd_path: Path | None = None
    """Of evaluation; default /flagd.evaluation.v1.Service."""
    ofrep_path: Path | None = None
    """Of OFREP; default /ofrep."""
    sync_path: Path | None = None
    """Of sync; default /flagd.sync.v1.Service."""


class GatewayApiRoutesSpec(Model):
    """How it is reached through Gateways."""

    enabled: bool | None = None
    """Whether there is one."""
    annotations: dict[str, str] | None = None
    """Of the HTTPRoute."""
    hosts: tuple[str, ...] = ()
    """Names under which it is reached; an empty one, and none at all, is any name."""
    parent_refs: tuple[dict[str, Any], ...]
    """The Gateways, as an HTTPRoute names them."""


class FlagdSpec(Model):
    """What the user asks for."""

    replicas: Annotated[int, INT32, between(0, 2**31 - 1)] | None = None
    """Of the Deployment. Where it is not given there is one, and an autoscaler may change that."""
    service_type: Annotated[str, one_of(_SERVICE_TYPES)] | None = None
    """Of the Service; default ClusterIP."""
    service_account_name: str | None = None
    """Of the pods; default: the namespace's default."""
    feature_flag_source: Annotated[str, that(require_object_name)]
    """The FeatureFlagSource beside this object that the evaluator follows."""
    ingress: IngressSpec | None = None
    """An Ingress for the Service."""
    gateway_api_routes: GatewayApiRoutesSpec | None = None
    """An HTTPRoute of Gateway API for the Service."""


class FlagdStatus(Status):
    """What became of it."""

    replicas: Annotated[int, INT32] | None = None
    """Pods that are asked for."""
    ready_replicas: Annotated[int, INT32] | None = None
    """Pods that serve flags."""
    image: str | None = None
    """The evaluator's."""


class DeploymentStatus(Status):
    """What Kubernetes says of the Deployment."""

    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0

    @property
    def stuck(self) -> str:
        """Why the Deployment's controller has given up; empty while it has not."""
        progressing = self.condition("Progressing")
        return progressing.message if progressing.status == FALSE else ""

    def is_rolled_out(self, generation: int, replicas: int) -> bool:
        """Whether that many replicas are of the template of that generation, and ready."""
        counts = {self.replicas, self.updated_replicas, self.ready_replicas, self.available_replicas}
        return self.observed_generation >= generation and counts == {replicas}


DEFINITION: Final = Definition(
    KIND,
    "flagds",
    "fd",
    "Flagd is an evaluator that stands by itself, in a Deployment, and how others reach it.",
    spec=FlagdSpec,
    status=FlagdStatus,
    columns=(
        READY_COLUMN,
        Column("Replicas", ".status.readyReplicas", "integer"),
        Column("Source", ".spec.featureFlagSource"),
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
    api_version=OPENFEATURE_VERSION,
    note=(
        "Where OpenFeature Operator's own definition is installed, replace it by this one: that one has no "
        "room for a status."
    ),
)
