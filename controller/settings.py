"""How the controller and the proxy run. The only reader of their environment."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.flagsets.provenance import ProvenanceDetail

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE: Final = "flagstaff-system"


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


class LogFormat(StrEnum):
    """How the log is written."""

    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """One controller process. Names of variables are FLAGSTAFF_ and the field's name in upper case."""

    kubeconfig: str = ""
    """A kubeconfig's path; empty: $KUBECONFIG, or the pod's service account."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to work in, parted by commas; none: all of them."""
    storage_path: Path = Path("/data")
    """Where artifacts and mirrors of repositories are kept. Safe to lose."""
    host: str = "0.0.0.0"  # noqa: S104 - its ports are reached from other pods
    """Address that all ports listen on."""
    artifact_port: int = 9090
    """The artifact server; 0 takes a free port, here and below."""
    artifact_address: str = ""
    """host:port under which others reach the artifact server; empty: the Service's, in our namespace."""
    artifact_tokens_file: str = ""
    """A file with the bearer tokens that the artifact server accepts, one a line; empty: it asks for none."""
    receiver_port: int = 9292
    """Webhooks."""
    management_port: int = 8014
    """Health, readiness, metrics."""
    leader_election: bool = True
    """Ask for the Lease before working."""
    lease_name: str = "flagstaff-controller"
    namespace: str = DEFAULT_NAMESPACE
    """Our own: of the Lease and of the Services. FLAGSTAFF_NAMESPACE, or the service account's."""
    identity: str = ""
    """Our name among replicas: POD_NAME, or the host's name and the process' number."""
    workers: int = 8
    """Reconciles at a time, by kind and namespace; of all namespaces together twice as many."""
    allow_local: bool = False
    """Whether a FlagSource may name a folder of this machine (file://). Never on a cluster that is shared."""
    pod: str = ""
    """The Pod that we run in, POD_NAME: the leader's bears a label. Empty outside of one."""
    artifact_hosts: tuple[str, ...] = (".svc", ".svc.cluster.local")
    """Hosts that other sources' artifacts are downloaded from, parted by commas: a name, name:port, or
    .ending.
    """
    provenance: ProvenanceDetail = ProvenanceDetail.FULL
    """`commit`: metadata, status and Events name revisions and times, and no author of a commit."""
    log_format: LogFormat = LogFormat.CONSOLE
    """Of the log on standard error: one line an event."""


class AuthMode(StrEnum):
    """What a proxy does about subscribers that the cluster does not vouch for."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """One proxy process. Names of variables are FLAGSTAFF_ and the field's name in upper case."""

    kubeconfig: str = ""
    """A kubeconfig's path; empty: $KUBECONFIG, or the pod's service account."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose flags are served, parted by commas; none: all of them."""
    host: str = "0.0.0.0"  # noqa: S104 - its ports are reached from other pods
    sync_port: int = 8015
    """flagd.sync.v1, sync.v1 and receipts; 0 takes a free port, here and below."""
    management_port: int = 8014
    """Health, readiness, metrics."""
    tls_cert: str = ""
    """PEM file with the certificate of the sync port, re-read when it changes; empty: plain text."""
    tls_key: str = ""
    tls_client_ca: str = ""
    """PEM file with the CAs that clients' certificates must come from; empty: none are asked for."""
    auth: AuthMode = AuthMode.WARN
    auth_audiences: tuple[str, ...] = ("flagstaff-proxy",)
    """Audiences of which bearer tokens must name one, parted by commas: no API server takes such a token.
    None: the API server's own.
    """
    context: Mapping[str, Any] = field(default_factory=dict)
    """A JSON object that in-process providers lay over each evaluation context."""
    max_streams: int = 20_000
    """Open streams of all subscribers together."""
    max_streams_per_host: int = 20_000
    """And from one address: lower it where every subscriber has its own."""
    stream_seconds: int = 0
    """A stream ends after so long, and its client opens another; 0: never, or after an hour with `enforce`,
    as tokens expire.
    """
    drain_delay: int = 3
    """Seconds from no longer being ready to sending subscribers elsewhere: so long it takes until no new ones
    come.
    """
    drain_seconds: int = 10
    """Over how long subscribers are sent elsewhere."""
    namespace: str = DEFAULT_NAMESPACE
    """Our own."""
    identity: str = ""
    """Our name among replicas: POD_NAME, or the host's name."""
    log_format: LogFormat = LogFormat.CONSOLE
    """Of the log on standard error: one line an event."""


S = TypeVar("S", bound=ControllerSettings | ProxySettings)
_OF_THE_POD: Final = frozenset({"identity", "pod"})
"""Told by POD_NAME."""
_BOUNDS: Final = {"workers": (1, 256)}
_PORTS: Final = (0, 65_535)
_NUMBERS: Final = (0, 10_000_000)


def from_env(kind: type[S], environ: Mapping[str, str]) -> S:
    """Settings of `environ`, defaults for what it does not set. Raises InvalidSettingError."""
    found: dict[str, Any] = {}
    for each in fields(kind):
        name = f"FLAGSTAFF_{each.name.upper()}"
        if each.name not in _OF_THE_POD and name in environ:
            found[each.name] = value_of(kind, each.name, environ[name], f"{name} is")
    found["namespace"] = found.get("namespace") or _own_namespace()
    pod = environ.get("POD_NAME", "")
    found["identity"] = pod or socket.gethostname()
    if kind is ControllerSettings:
        # Two on one machine must not take each other's Lease for their own.
        found |= {"identity": pod or f"{socket.gethostname()}-{os.getpid()}", "pod": pod}
    return kind(**found)


def value_of(kind: type[S], field_name: str, text: str, told: str) -> Any:
    """The value of one setting as its text says; `told` begins the error. Raises InvalidSettingError."""
    default = getattr(kind(), field_name)
    if isinstance(default, StrEnum):
        return type(default)(_one_of(text, told, tuple(type(default))))
    if isinstance(default, bool):
        return _one_of(text.lower(), told, ("true", "false")) == "true"
    if isinstance(default, int):
        usual = _PORTS if field_name.endswith("_port") else _NUMBERS
        return _number(text, told, _BOUNDS.get(field_name, usual))
    if isinstance(default, tuple):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    if isinstance(default, str | Path):
        return type(default)(text)
    return _object(text, told)


def _own_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _one_of(text: str, told: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise InvalidSettingError(f"{told} {text!r}: must be one of {', '.join(known)}")
    return text


def _number(text: str, told: str, bounds: tuple[int, int]) -> int:
    lowest, highest = bounds
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise InvalidSettingError(f"{told} {text!r}: must be a whole number from {lowest} to {highest}")
    return int(text)


def _object(text: str, told: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InvalidSettingError(f"{told} {text[:100]!r}: must be a JSON object")
    return values
