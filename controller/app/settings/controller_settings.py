"""Settings of the controller."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pydantic import Field

from controller.app.settings.injection_settings import InjectionSettings
from controller.app.settings.settings_values import (
    EventsAddress,
    Hosts,
    Names,
    Port,
    Quota,
    SharedSettings,
    own_pod,
)
from controller.flagsets.building.commit_provenance import ProvenanceDetail
from controller.pods.workloads.exposure import ALL
from controller.runtime.tenancy.hosts import DENIED


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
    lease_name: str = Field(default="flagstaff-controller", description="Lease that replicas compete for")
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
        description="let no source read a bucket with the controller's own identity at AWS, Azure or Google: "
        "each needs a Secret",
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
        description="hosts that MetricTemplates and webhooks of FlagRollouts may have, also in the cluster "
        "and by plain http, written as for --source-hosts (default: public ones, by https)",
    )
    denied_rollout_hosts: Hosts = Field(
        default=DENIED,
        description="hosts that they may not have; wins over --rollout-hosts (default: this machine and "
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
