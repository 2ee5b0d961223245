"""Settings that say what evaluators get: admission injects by them, and the controller runs and upgrades
evaluators by the same ones. Those of admission alone, too.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from controller.app.settings.settings_values import Names, Namespace, Port, SharedSettings, own_namespace
from controller.pods.settings.installation import AUDIENCE, IMAGE, Options


class InjectionSettings(SharedSettings):
    """What admission and the controller have in common: give both the same."""

    namespaces: Names = Field(
        default=(), description="namespaces to work in, separated by commas (default all)"
    )
    namespace: Namespace = Field(
        default_factory=own_namespace, description="our own namespace (default: the pod's)"
    )
    evaluator_image: str = Field(default=IMAGE, description="image of injected evaluators")
    compat: Literal["", "openfeature-operator"] = Field(
        default="", description="openfeature-operator: injected containers are as its own (default: as ours)"
    )
    proxy_address: str = Field(
        default="", description="host:port where injected evaluators find the proxy (default: its Service's)"
    )
    proxy_audience: str = Field(
        default=AUDIENCE, description="audience of the tokens that injected evaluators show to the proxy"
    )
    proxy_ca: str = Field(
        default="",
        description="ConfigMap in a pod's namespace whose ca.crt signed the proxy's certificate "
        "(default: plain text)",
    )
    flag_files: bool = Field(
        default=False,
        description="write flag sets into ConfigMaps, for pods whose FeatureFlagSource has the provider "
        "file; needs the component flag-files",
    )
    proxy_replicas: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="have the Deployment flagstaff-proxy run on demand: with so many replicas once a pod "
        "asks for flags, with none after ten minutes without; 0: it is left as it is",
    )
    flag_readers: bool = Field(
        default=False,
        description="with --compat: the provider kubernetes has flagd read FeatureFlags from the API server, "
        "by Roles for pods' service accounts; needs the component flag-readers (default: through the proxy)",
    )
    direct_sets: bool = Field(
        default=False,
        description="serve the flags that workloads carry in the annotation openfeature.dev/flags; needs the "
        "component direct-sets",
    )
    allow_cross_namespace: Literal["", "ofo"] = Field(
        default="",
        description="ofo: pods may refer to objects of other namespaces without a FlagGrant, as with "
        "OpenFeature Operator; each is warned of (default: a FlagGrant must let them)",
    )

    def injection(self) -> Options:
        """The options that all evaluators share."""
        return Options(
            image=self.evaluator_image,
            proxy_address=self.proxy_address or f"flagstaff-proxy.{self.namespace}.svc:8015",
            proxy_audience=self.proxy_audience,
            proxy_ca=self.proxy_ca,
            compat=bool(self.compat),
            flag_files=self.flag_files,
            flag_readers=self.flag_readers,
            proxy_on_demand=self.proxy_replicas > 0,
        )


class AdmissionSettings(InjectionSettings):
    """One process of admission. A field is an option of `flagstaff admission` and FLAGSTAFF_<NAME>."""

    admission_host: str = Field(default="", description="address of --admission-port (default: --host)")
    admission_port: Port = Field(default=9443, description="port of the webhooks; 0 takes a free port")
    admission_cert: str = Field(
        default="",
        description="PEM certificate of --admission-port, read again when it changes; the controller "
        "keeps one in the Secret flagstaff-admission",
    )
    admission_key: str = Field(default="", description="private key of --admission-cert")
    override_max_days: float = Field(
        default=7.0, gt=0, le=366, description="days ahead that a FlagOverride may end at most"
    )
    admission_client_ca: str = Field(
        default="",
        description="CAs that must have issued the API server's certificate (default: none needed)",
    )
