"""Settings of admission, the controller, the page and the proxy. Nothing else reads their environment.

Admission injects by the settings that say what evaluators get, and the controller runs and upgrades
evaluators by the same ones.
"""

from __future__ import annotations

import json
import os
import re
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from controller.api.addresses import AddressRefused, require_usable
from controller.flagsets.compose import ProvenanceDetail
from controller.pods.flagd_objects import ALL
from controller.pods.installation import AUDIENCE, IMAGE, Options
from controller.runtime.hosts import DENIED, require_entries
from controller.runtime.shards import LEASE, LabelSelector, Shard

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE: Final = "flagstaff-system"
PREFIX: Final = "FLAGSTAFF_"


class LogFormat(StrEnum):
    """The format of the log."""

    CONSOLE = "console"
    JSON = "json"


def _names(value: Any) -> Any:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def own_namespace(value: Any = None) -> Any:
    """Return `value`, or if it is empty the namespace of this process' pod."""
    try:
        return value or NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _events_address(value: str) -> str:
    try:
        if value:
            require_usable(value, allow_local=True)
    except AddressRefused as error:
        raise ValueError(str(error).replace("it must", "must", 1)) from error
    return value


def _label_value(value: str) -> str:
    if value and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", value):
        raise ValueError("must be a name of at most 63 lower-case letters, digits, '-' and '.'")
    return value


def _selector(value: str | None) -> str | None:
    if value is not None:
        LabelSelector.parse(value)
    return value


def own_pod() -> str:
    """The name of the Pod that we run in; empty outside of one."""
    return os.environ.get("POD_NAME", "")


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
Hosts = Annotated[Names, AfterValidator(require_entries)]
EventsAddress = Annotated[str, AfterValidator(_events_address)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Quota = Annotated[int, Field(ge=0)]
Namespace = Annotated[str, BeforeValidator(own_namespace)]


class SharedSettings(BaseSettings):
    """What our processes in a cluster have in common."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    kubeconfig: str = Field(
        default="", description="path of a kubeconfig (default $KUBECONFIG, or the pod's account)"
    )
    host: str = Field(
        default="0.0.0.0",  # noqa: S104 - other pods call it
        description="address that all ports listen on",
    )
    management_host: str = Field(default="", description="address of the management port (default: --host)")
    management_port: Port = Field(
        default=8014, description="port for health, readiness and metrics; 0 takes a free port"
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="form of the log on standard error: console or json"
    )


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
    node_evaluator: bool = Field(
        default=False,
        description="pods may ask the evaluator of their node, by the annotation flagstaff.dev/evaluator; "
        "needs the component node-evaluator",
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
            node_host=f"flagstaff-node-evaluator.{self.namespace}.svc" if self.node_evaluator else "",
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


class ControllerSettings(InjectionSettings, SharedSettings):
    """One controller process. A field is an option of `flagstaff controller` and FLAGSTAFF_<NAME>."""

    storage_path: Path = Field(
        default=Path("/data"), description="folder for artifacts and mirrors; safe to lose"
    )
    receiver_host: str = Field(default="", description="address of the receiver's port (default: --host)")
    artifact_port: Port = Field(default=9090, description="port of the artifact server; 0 takes a free port")
    artifact_address: str = Field(
        default="",
        description="host:port under which others reach the artifact server (default: the Service's)",
    )
    artifact_tokens_file: str = Field(
        default="",
        description="file of bearer tokens that the artifact server accepts, one per line "
        "(default: none needed)",
    )
    artifact_hosts: Names = Field(
        default=(".svc", ".svc.cluster.local"),
        description="hosts that Flux's artifacts may come from, separated by commas: a name, "
        "name:port or .ending",
    )
    denied_artifact_hosts: Hosts = Field(
        default=DENIED,
        description="hosts that no artifact may come from, whatever their name in --artifact-hosts; written "
        "as for --denied-source-hosts (default: this machine and link-local addresses)",
    )
    receiver_port: Port = Field(default=9292, description="port for webhooks; 0 takes a free port")
    proxy_certificates: bool = Field(
        default=False,
        description="make and renew the proxy's certificate, in the Secret flagstaff-proxy-tls; its "
        "authority is written into each ConfigMap that --proxy-ca names",
    )
    leader_election: bool = Field(
        default=True, description="work without a Lease; only where there is one replica"
    )
    lease_name: Annotated[str, AfterValidator(_label_value)] = Field(
        default="",
        description="Lease that replicas compete for, and the value of the leader's label (default: "
        "flagstaff-controller, on a shard with its name behind it)",
    )
    watch_label_selector: Annotated[str | None, AfterValidator(_selector)] = Field(
        default=None,
        description="reconcile only objects with such labels: sharding.fluxcd.io/key=shard1 on a shard, "
        "!sharding.fluxcd.io/key on the default controller beside shards (default: all objects)",
    )
    identity: str = Field(
        # Two on one machine must not take each other's Lease for their own.
        default_factory=lambda: own_pod() or f"{socket.gethostname()}-{os.getpid()}",
        description="this replica's name (default $POD_NAME, or host name and process id)",
    )
    cluster_name: Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")] = (
        Field(
            default="",
            description="name of this cluster, such as eu, in the names of statuses of commits: needed where "
            "several clusters write to one repository (default: the names have no cluster)",
        )
    )
    workers: int = Field(
        default=8,
        ge=1,
        le=256,
        description="reconciles at the same time, for each kind and namespace; for each kind, twice as many",
    )
    quota_artifact_bytes: Quota = Field(
        default=0,
        description="most bytes that the artifacts of one namespace have together; 0: no limit, here and "
        "below",
    )
    quota_mirror_bytes: Quota = Field(
        default=0, description="most bytes that the mirrors of one namespace's Git repositories have together"
    )
    quota_git_processes: Quota = Field(
        default=0, description="most programs of Git that run for one namespace at a time; others wait"
    )
    flagd_hosts: Names = Field(
        default=ALL,
        description="hosts that Flagds may have in Ingresses and HTTPRoutes, separated by commas: names and "
        "globs such as *.example.com; no host is any host, which * alone allows; empty: none",
    )
    flagd_annotations: Names = Field(
        default=ALL,
        description="annotations that Flagds may give their Ingresses and HTTPRoutes, separated by commas: "
        "names and globs; empty: none",
    )
    default_service_account: str = Field(
        default="",
        description="service account beside each object with whose rights its Secrets are read and its flags "
        "are written, where it names none (default: the controller's own rights)",
    )
    require_secret_hosts: bool = Field(
        default=False,
        description="send no Secret that lacks the annotation flagstaff.dev/allowed-hosts to any host",
    )
    source_hosts: Hosts = Field(
        default=(),
        description="hosts that sources may be on, separated by commas: names, globs such as *.example.com, "
        "addresses, networks such as 10.0.0.0/8 (default: all that are not denied)",
    )
    denied_source_hosts: Hosts = Field(
        default=DENIED,
        description="hosts that no source may be on; wins over --source-hosts (default: this machine and "
        "link-local addresses)",
    )
    deny_cluster_hosts: bool = Field(
        default=False,
        description="let no source be on a Service of the cluster or in a private network; wins over "
        "--source-hosts",
    )
    deny_http_sources: bool = Field(
        default=False, description="refuse http:// in sources: of Git, registries and buckets"
    )
    deny_cloud_identity: bool = Field(
        default=False,
        description="let no source read a bucket or registry with the controller's own identity at AWS, "
        "Azure or Google: each needs a Secret",
    )
    page_url: str = Field(
        default="",
        description="URL of the page of the cluster, such as https://flags.example.com: what is reported of "
        "FlagRollouts links to it (default: no link)",
    )
    allow_local: bool = Field(
        default=False, description="allow file:// URLs in FlagSources; unsafe where tenants share a cluster"
    )
    allow_local_providers: bool = Field(
        default=False,
        description="allow FlagProviders plain http, and addresses of this machine and of private networks; "
        "unsafe where tenants share a cluster",
    )
    provider_hosts: Hosts = Field(
        default=(),
        description="hosts that FlagProviders may have, written as for --source-hosts (default: all that are "
        "not denied)",
    )
    denied_provider_hosts: Hosts = Field(
        default=(),
        description="hosts that no FlagProvider may have; wins over --provider-hosts (default: the API "
        "server alone)",
    )
    rollout_hosts: Hosts = Field(
        default=(),
        description="hosts that MetricTemplates, webhooks of FlagRollouts and deletion guards of FlagSets "
        "may have, also in the cluster and by plain http, written as for --source-hosts (default: public "
        "ones, by https)",
    )
    denied_rollout_hosts: Hosts = Field(
        default=DENIED,
        description="hosts that they may not have; wins over --rollout-hosts (default: this machine and "
        "link-local addresses)",
    )
    kubeconfig_hosts: Hosts = Field(
        default=(),
        description="hosts that API servers of other clusters (spec.kubeConfig of FlagSets) may have, "
        "written as for --source-hosts (default: all that are not denied)",
    )
    denied_kubeconfig_hosts: Hosts = Field(
        default=DENIED,
        description="hosts that they may not have; wins over --kubeconfig-hosts (default: this machine and "
        "link-local addresses)",
    )
    events_addr: EventsAddress = Field(
        default="",
        description="URL of Flux's notification-controller, to which every Event is posted "
        "(default: to none), such as http://notification-controller.flux-system.svc.cluster.local./",
    )
    pod: str = Field(default_factory=own_pod)
    """The Pod that we run in: the leader's gets a label. Empty outside of one."""
    provenance: ProvenanceDetail = Field(
        default=ProvenanceDetail.FULL,
        description="full or commit: commit names no author of a commit anywhere",
    )

    @property
    def shard(self) -> Shard:
        """What this controller reconciles."""
        return Shard.of(self.watch_label_selector, self.namespaces)

    @property
    def lease(self) -> str:
        """The name of the Lease."""
        return self.lease_name or _with_shard(LEASE, self.shard)

    def artifact_server(self, port: int) -> str:
        """Host and port at which others reach the artifact server, which listens on `port`."""
        service = _with_shard("flagstaff-artifacts", self.shard)
        return self.artifact_address or f"{service}.{self.namespace}.svc.cluster.local.:{port}"


def _with_shard(name: str, shard: Shard) -> str:
    return f"{name}-{shard.name}" if shard.name else name


class AuthMode(StrEnum):
    """What a proxy does about subscribers that the cluster does not vouch for."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


def _object(value: Any) -> Any:
    try:
        entries = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise ValueError("must be a JSON object")  # noqa: TRY004 - pydantic turns only this one into its own
    return entries


class ProxySettings(SharedSettings):
    """One proxy process. Each field is an option of `flagstaff proxy` and a variable FLAGSTAFF_<NAME>."""

    namespaces: Names = Field(
        default=(), description="namespaces whose flags are served, separated by commas (default all)"
    )
    node_evaluators: str = Field(
        default="",
        pattern=r"(\S+/\S+)?",
        description="NAMESPACE/NAME of the service account of evaluators that serve all pods of their "
        "node; needs the component node-evaluator",
    )
    sync_port: Port = Field(
        default=8015, description="port for flagd.sync.v1 and receipts; 0 takes a free port"
    )
    tls_cert: str = Field(
        default="",
        description="PEM certificate of the sync port, read again when it changes (default: plain text)",
    )
    tls_key: str = Field(default="", description="private key of --tls-cert")
    tls_client_ca: str = Field(
        default="", description="CAs that must have issued clients' certificates (default: none needed)"
    )
    auth: AuthMode = Field(
        default=AuthMode.WARN,
        description="what to do with subscribers that may not read: off, warn or enforce",
    )
    auth_audiences: Names = Field(
        default=("flagstaff-proxy",),
        description="audiences, separated by commas, one of which a token must name; "
        "empty: the API server's own",
    )
    context: Annotated[dict[str, Any], NoDecode, BeforeValidator(_object)] = Field(
        default_factory=dict,
        description="JSON object that in-process providers merge into every evaluation context",
    )
    max_streams: Count = Field(default=20_000, description="most open streams")
    max_streams_per_host: Count = Field(
        default=10_000,
        description="most open streams from one address; lower it where every subscriber has its own",
    )
    max_connections: Count = Field(default=20_000, description="most open connections of the sync port")
    max_connections_per_host: Count = Field(
        default=10_000, description="most open connections of the sync port from one address"
    )
    max_buffered_bytes: int = Field(
        default=16_777_216,
        ge=1,
        description="bytes of requests and unread answers that the sync port keeps; beyond it the "
        "largest connection is refused",
    )
    quota_streams: Quota = Field(
        default=0,
        description="most open streams of the subscribers of one namespace, as their tokens name it; "
        "0: no limit, here and below",
    )
    quota_receipts: Quota = Field(
        default=0, description="most receipts of the pods of one namespace, one for each flag set of a pod"
    )
    stream_seconds: Count = Field(
        default=0,
        description="seconds after which a stream ends; 0: never, or 3600 with --auth enforce, "
        "as tokens expire",
    )
    drain_delay: Count = Field(
        default=3, description="at shutdown, seconds between not ready and disconnecting subscribers"
    )
    drain_seconds: Count = Field(
        10, description="at shutdown, seconds over which subscribers are disconnected"
    )
    namespace: Namespace = Field(
        default_factory=own_namespace, description="the proxy's own namespace (default: the pod's)"
    )
    identity: str = Field(
        default_factory=lambda: own_pod() or socket.gethostname(),
        description="this replica's name (default $POD_NAME, or the host name)",
    )


class PageSettings(SharedSettings):
    """One process of the page. A field is an option of `flagstaff page` and a variable FLAGSTAFF_<NAME>."""

    namespaces: Names = Field(
        default=(), description="namespaces that are shown, separated by commas (default all)"
    )
    page_host: str = Field(default="", description="address of --page-port (default: --host)")
    page_port: Port = Field(default=8080, description="port of the page; 0 takes a free port")
    tls_cert: str = Field(
        default="",
        description="PEM certificate of --page-port, read again when it changes (default: plain text)",
    )
    tls_key: str = Field(default="", description="private key of --tls-cert")
    tls_client_ca: str = Field(
        default="", description="CAs that must have issued clients' certificates (default: none needed)"
    )
    auth_audiences: Names = Field(
        default=(),
        description="audiences, separated by commas, one of which a token must name (default: the API "
        "server's own)",
    )
    proxies: str = Field(
        default="",
        description="host:port of the management ports of the proxies, each address of which is asked for "
        "its evaluators (default: none)",
    )


__all__ = [
    "OPERATORS", "OPERATORS_DEBUG", "AdmissionSettings", "AuthMode", "ControllerSettings",
    "InvalidOptionError", "LogFormat", "PageSettings", "ProxySettings", "proxy_logs_debug", "settings_of",
]  # fmt: skip

S = TypeVar("S", bound=AdmissionSettings | ControllerSettings | PageSettings | ProxySettings)

OPERATORS: Final = {"sync_port": "FLAGD_PROXY_PORT", "management_port": "FLAGD_PROXY_MANAGEMENT_PORT"}
"""OpenFeature Operator's variables of its proxy, which ours reads where its own are not set."""
OPERATORS_DEBUG: Final = "FLAGD_PROXY_DEBUG_LOGGING"
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
"""The texts for true that Go's parser of booleans reads."""


class InvalidOptionError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


def settings_of(kind: type[S], **given: Any) -> S:
    """`given`, of the command line, over the environment. Raises InvalidSettingError, naming the option."""
    theirs: dict[str, Any] = {} if kind is not ProxySettings else {
        field: os.environ[name]
        for field, name in OPERATORS.items()
        if name in os.environ and field not in given and PREFIX + field.upper() not in os.environ
    }  # fmt: skip
    try:
        return kind(**given, **theirs)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        name = f"--{field.replace('_', '-')}" if field in given else PREFIX + field.upper()
        name = OPERATORS[field] if field in theirs else name
        must = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise InvalidOptionError(f"{name} is {str(first['input'])[:100]!r}: {must}") from None


def proxy_logs_debug() -> bool:
    """Return whether OpenFeature Operator's variable asks for debug logs."""
    return os.environ.get(OPERATORS_DEBUG) in _TRUE
