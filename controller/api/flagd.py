"""Flagd: OpenFeature Operator's kind of an evaluator that stands by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.fields import Model, Name, Status

KIND: Final = "Flagd"

Host = Annotated[str, Field(min_length=1, max_length=253)]
Path = Annotated[str, Field(pattern="^/", max_length=1024)]


class IngressSpec(Model):
    """How it is reached through an Ingress."""

    enabled: bool | None = None
    annotations: dict[str, str] | None = None
    hosts: Annotated[tuple[Host, ...], Field(max_length=64)]
    tls: tuple[dict[str, Any], ...] = ()
    """As an Ingress has them."""
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
    """As an HTTPRoute has them."""


class FlagdSpec(Model):
    """What the user asks for."""

    replicas: Annotated[int | None, Field(ge=0)] = None
    """None: Kubernetes starts one, and leaves the number to an autoscaler."""
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
