"""Settings of the controller."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

from pydantic import Field

from controller.app.settings_values import (
    EventsAddress,
    Hosts,
    Names,
    Namespace,
    Port,
    Quota,
    SharedSettings,
    own_namespace,
    own_pod,
)
from controller.flagsets.building.provenance import ProvenanceDetail
from controller.pods.injection.installation import AUDIENCE, IMAGE
from controller.runtime.tenancy.hosts import DENIED


class ControllerSettings(SharedSettings):
    """One controller process. A field is an option of `flagstaff controller` and FLAGSTAFF_<NAME>."""

    namespaces: Names = Field(
        default=(), description="namespaces to work in, separated by commas (default all)"
    )
    storage_path: Path = Field(
        default=Path("/data"), description="folder for artifacts and mirrors; safe to lose"
    )
    receiver_host: str = Field(default="", description="address of the receiver's port (default: --host)")
    admission_host: str = Field(
        default="", description="address of the admission webhook's port (default: --host)"
    )
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
    admission_port: Port = Field(
        default=9443, description="port of the webhook that injects evaluators; 0 takes a free port"
    )
    admission_cert: str = Field(
        default="",
        description="PEM certificate of --admission-port, read again when it changes (default: made by us)",
    )
    admission_key: str = Field(default="", description="private key of --admission-cert")
    admission_client_ca: str = Field(
        default="",
        description="CAs that must have issued the API server's certificate (default: none needed)",
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
    proxy_certificates: bool = Field(
        default=False,
        description="make and renew the proxy's certificate, in the Secret flagstaff-proxy-tls; its "
        "authority is written into each ConfigMap that --proxy-ca names",
    )
    flag_files: bool = Field(
        default=False,
        description="write flag sets into ConfigMaps, for pods whose FeatureFlagSource has the provider "
        "file; needs deploy/flag-files.yaml",
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
        "by Roles for pods' service accounts; needs deploy/flag-readers.yaml (default: through the proxy)",
    )
    leader_election: bool = Field(
        default=True, description="work without a Lease; only where there is one replica"
    )
    allow_cross_namespace: Literal["", "ofo"] = Field(
        default="",
        description="ofo: pods may refer to objects of other namespaces without a FlagGrant, as with "
        "OpenFeature Operator; each is warned of (default: a FlagGrant must let them)",
    )
    lease_name: str = Field(default="flagstaff-controller", description="Lease that replicas compete for")
    namespace: Namespace = Field(
        default_factory=own_namespace,
        description="the controller's own namespace, which holds the Lease (default: the pod's)",
    )
    identity: str = Field(
        # Two on one machine must not take each other's Lease for their own.
        default_factory=lambda: own_pod() or f"{socket.gethostname()}-{os.getpid()}",
        description="this replica's name (default $POD_NAME, or host name and process id)",
    )
    workers: int = Field(
        default=8,
        ge=1,
        le=256,
        description="reconciles at the same time, for each kind and namespace; for each kind, twice as many",
    )
    quota_sources: Quota = Field(
        default=0, description="most FlagSources in one namespace; 0: no limit, here and below"
    )
    quota_flag_sets: Quota = Field(default=0, description="most FlagSets in one namespace")
    quota_artifact_bytes: Quota = Field(
        default=0, description="most bytes that the artifacts of one namespace have together"
    )
    quota_mirror_bytes: Quota = Field(
        default=0, description="most bytes that the mirrors of one namespace's Git repositories have together"
    )
    quota_git_processes: Quota = Field(
        default=0, description="most programs of Git that run for one namespace at a time; others wait"
    )
    quota_flags: Quota = Field(
        default=0, description="most flags that the FlagSets of one namespace have together"
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
        description="let no source read a bucket with the controller's own identity at AWS, Azure or Google: "
        "each needs a Secret",
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
