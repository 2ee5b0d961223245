"""Settings of the proxy."""

from __future__ import annotations

import json
import socket
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from controller.app.settings.settings_values import (
    Count,
    Names,
    Namespace,
    Port,
    Quota,
    SharedSettings,
    own_namespace,
    own_pod,
)


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
