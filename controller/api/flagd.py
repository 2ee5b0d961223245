"""Flagd: OpenFeature Operator's kind of an evaluator that stands by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

from controller.api.fields import INT32, Model, between, one_of, that
from controller.api.kind import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Kind, PrinterColumn
from controller.api.meta import OPENFEATURE_VERSION
from controller.api.parsing import InvalidTextError, require_object_name
from controller.api.status import FALSE, Status

KIND: Final = "Flagd"

_PATH_TYPES: Final = ("Exact", "Prefix", "ImplementationSpecific")
_SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def _require_absolute(path: str) -> None:
    # To OpenFeature Operator an empty text is its default.
    if path and not path.startswith("/"):
        raise InvalidTextError("must begin with /")


# As in OpenFeature Operator's definition, there are no bounds: the status names what cannot be used.
Path = Annotated[str, that(_require_absolute)]


class IngressSpec(Model):
    """How it is reached through an Ingress."""

    enabled: bool | None = None
    """Whether there is an Ingress."""
    annotations: dict[str, str] | None = None
    """Annotations of the Ingress."""
    hosts: tuple[str, ...] = ()
    """The names under which it is reached. An empty name, or no names, stand for any name."""
    tls: tuple[dict[str, Any], ...] = ()
    """Certificates, as in `spec.tls` of an Ingress."""
    ingress_class_name: str | None = None
    """The class of the Ingress."""
    path_type: Annotated[str, one_of(_PATH_TYPES)] | None = None
    """`Exact`, `Prefix` or `ImplementationSpecific`; `Prefix` if it is not set."""
    flagd_path: Path | None = None
    """The path of evaluation, `/flagd.evaluation.v1.Service` if it is not set."""
    ofrep_path: Path | None = None
    """The path of OFREP, `/ofrep` if it is not set."""
    sync_path: Path | None = None
    """The path of sync, `/flagd.sync.v1.Service` if it is not set."""


class GatewayApiRoutesSpec(Model):
    """How it is reached through Gateways."""

    enabled: bool | None = None
    """Whether there is an HTTPRoute, with the same paths as the Ingress. Gateway API must be installed."""
    annotations: dict[str, str] | None = None
    """Annotations of the HTTPRoute."""
    hosts: tuple[str, ...] = ()
    """The names under which it is reached. An empty name, or no names, stand for any name."""
    parent_refs: tuple[dict[str, Any], ...]
    """The Gateways, as in `spec.parentRefs` of an HTTPRoute."""


class FlagdSpec(Model):
    """What the user asks for."""

    replicas: Annotated[int, INT32, between(0, 2**31 - 1)] | None = None
    """The number of pods: 1 if it is not set, and an autoscaler may change it."""
    service_type: Annotated[str, one_of(_SERVICE_TYPES)] | None = None
    """The type of the Service: `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`; `ClusterIP` if it
    is not set.
    """
    service_account_name: str | None = None
    """Of the pods, and whose rights are used to make them. With `--auth enforce` on the proxy it needs the
    right to [read the flag sets](../reference/proxy.md#who-may-read).
    """
    feature_flag_source: Annotated[str, that(require_object_name)]
    """A FeatureFlagSource in the same namespace, which configures the evaluator."""
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


RECORD: Final = Kind(
    OPENFEATURE_VERSION,
    KIND,
    "flagds",
    short_name="fd",
    description="Flagd is an evaluator that stands by itself, in a Deployment, and how others reach it.",
    spec=FlagdSpec,
    status=FlagdStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Replicas", ".status.readyReplicas", "integer"),
        PrinterColumn("Source", ".spec.featureFlagSource"),
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
    note=(
        "Where OpenFeature Operator's own definition is installed, replace it by this one: that one has no "
        "room for a status."
    ),
    modules=(
        "pods/flag_files pods/flag_readers pods/flagd_objects pods/flagd_reconciler pods/marked_pods "
        "pods/proxy_scale pods/stage"
    ),
    quota=5,
)
