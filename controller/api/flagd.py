"""Flagd: OpenFeature Operator's kind of an evaluator that stands by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

from controller.api.objects.conditions import FALSE
from controller.api.objects.fields import Model, between, one_of, that
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
    annotations: dict[str, str] | None = None
    hosts: tuple[str, ...] = ()
    """Names; an empty one, and none at all, is any name."""
    tls: tuple[dict[str, Any], ...] = ()
    """Entries as in `spec.tls` of an Ingress."""
    ingress_class_name: str | None = None
    path_type: Annotated[str, one_of(_PATH_TYPES)] | None = None
    flagd_path: Path | None = None
    ofrep_path: Path | None = None
    sync_path: Path | None = None


class GatewayApiRoutesSpec(Model):
    """How it is reached through Gateways."""

    enabled: bool | None = None
    annotations: dict[str, str] | None = None
    hosts: tuple[str, ...] = ()
    """Names; an empty one, and none at all, is any name."""
    parent_refs: tuple[dict[str, Any], ...]
    """Entries as in `spec.parentRefs` of an HTTPRoute."""


class FlagdSpec(Model):
    """What the user asks for."""

    replicas: Annotated[int, between(0, 2**31 - 1)] | None = None
    """The number of pods; None: Kubernetes starts one, and an autoscaler may change the number."""
    service_type: Annotated[str, one_of(_SERVICE_TYPES)] | None = None
    service_account_name: str | None = None
    feature_flag_source: Annotated[str, that(require_object_name)]
    ingress: IngressSpec | None = None
    gateway_api_routes: GatewayApiRoutesSpec | None = None


class FlagdStatus(Status):
    """What became of it."""

    replicas: int | None = None
    ready_replicas: int | None = None
    image: str | None = None


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
