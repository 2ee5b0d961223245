"""Another cluster that a FlagSet writes to: the reference in its spec, and the record in its status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controller.api.fields import LocalReference, Model, RuledModel, SpecRule


class KubeConfigSecret(LocalReference):
    """A Secret in the same namespace with a kubeconfig."""

    key: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """The key of the kubeconfig in the Secret; `value` if it is not set, or else `value.yaml`."""


class KubeConfig(RuledModel):
    """How another cluster is reached."""

    RULES = (
        SpecRule(
            "has(self.secretRef) != has(self.configMapRef)",
            "set exactly one of secretRef and configMapRef",
            lambda config: (config.secret_ref is None) != (config.config_map_ref is None),
        ),
    )

    secret_ref: KubeConfigSecret | None = None
    """A Secret in the same namespace with a self-contained
    [kubeconfig](../remote-clusters.md#a-kubeconfig).
    """
    config_map_ref: LocalReference | None = None
    """A ConfigMap in the same namespace with the address of a cluster that [trusts tokens of this
    one](../remote-clusters.md#tokens-of-this-cluster).
    """

    def __str__(self) -> str:
        """`Secret eu` or `ConfigMap eu`."""
        if self.secret_ref is not None:
            return f"Secret {self.secret_ref.name}"
        return "ConfigMap " + ("" if self.config_map_ref is None else self.config_map_ref.name)


class RemoteClusterStatus(Model):
    """Another cluster that has objects of the FlagSet."""

    server: str
    """The URL of its API server."""
    kube_config: KubeConfig
    """How it was reached."""
    service_account_name: str | None = None
    """The service account there that wrote; absent: the kubeconfig's user."""
