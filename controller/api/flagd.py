"""Flagd: OpenFeature Operator's kind of an evaluator that stands by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.objects.conditions import FALSE
from controller.api.objects.fields import Model, Name
from controller.api.objects.status import Status

KIND: Final = "Flagd"

Host = Annotated[str, Field(min_length=1, max_length=253)]
Path = Annotated[str, Field(pattern="^/", max_length=1024)]


class IngressSpec(Model):
    """How it is reached through an Ingress."""

    enabled: bool | None = None
    annotations: dict[str, str] | None = None
    hosts: Annotated[tuple[Host, ...], Field(max_length=64)]
    tls: tuple[dict[str, Any], ...] = ()
    """Entries as in `spec.tls` of an Ingress."""
    ingress_class_name: str | None = None
    path_type: Literal["Exact", "Prefix", "ImplementationSpecific"] | None = None
    flagd_path: Path | None = None
    ofrep_path: Path | None = None
    sync_path: Path | None = None


class GatewayApiRoutesSpec(Model):
    """How it is reached through Gateways."""

    enabled: bool | None = None
    annotations: dict[str, str] | None = None
    hosts: Annotated[tuple[Host, ...], Field(max_length=16)] = ()
    parent_refs: Annotated[tuple[dict[str, Any], ...], Field(max_length=32)]
    """Entries as in `spec.parentRefs` of an HTTPRoute."""


class FlagdSpec(Model):
    """What the user asks for."""

    replicas: Annotated[int | None, Field(ge=0)] = None
    """The number of pods; None: Kubernetes starts one, and an autoscaler may change the number."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] | None = None
    service_account_name: str | None = None
    feature_flag_source: Name
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
