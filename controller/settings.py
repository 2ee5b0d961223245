"""How the controller and the proxy run. The only reader of their environment."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE: Final = "flagstaff-system"


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


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
    """Our name among replicas: POD_NAME, or the host's name and a number of the process."""
    workers: int = 8
    """Reconciles at a time, by kind."""
    allow_local: bool = False
    """Whether a FlagSource may name a folder of this machine (file://). Never on a cluster that is shared."""


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
    auth_audiences: tuple[str, ...] = ()
    """Audiences that bearer tokens must be for, parted by commas; none: the API server's own."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """A JSON object that in-process providers lay over each evaluation context."""
    max_streams: int = 20_000
    """Open streams of all subscribers together."""
    max_streams_per_host: int = 20_000
    """And from one address: lower it where every subscriber has its own."""
    stream_seconds: int = 0
    """A stream ends after so long, and its client opens another; 0: never, or after an hour with `enforce`, as tokens expire."""
    drain_delay: int = 3
    """Seconds from no longer being ready to sending subscribers elsewhere: so long it takes until no new ones come."""
    drain_seconds: int = 10
    """Over how long subscribers are sent elsewhere."""
    namespace: str = DEFAULT_NAMESPACE
    """Our own."""
    identity: str = ""
    """Our name among replicas: POD_NAME, or the host's name."""


def proxy_from_env(environ: Mapping[str, str]) -> ProxySettings:
    """Settings of `environ`, defaults for what it does not set. Raises InvalidSettingError."""
    found: dict[str, Any] = {}
    for each in fields(ProxySettings):
        name = f"FLAGSTAFF_{each.name.upper()}"
        if each.name != "identity" and name in environ:
            found[each.name] = proxy_value(each.name, environ[name], f"{name} is")
    found.setdefault("namespace", _own_namespace())
    identity = environ.get("POD_NAME") or socket.gethostname()
    return ProxySettings(**{"identity": identity, **found})


def proxy_value(field_name: str, text: str, told: str) -> Any:
    """The value of one proxy setting as its text says; `told` begins the error. Raises InvalidSettingError."""
    default = getattr(ProxySettings(), field_name)
    if isinstance(default, AuthMode):
        if text not in set(AuthMode):
            raise InvalidSettingError(f"{told} {text!r}: must be one of {', '.join(AuthMode)}")
        return AuthMode(text)
    if isinstance(default, tuple):
        return _listed(text)
    if isinstance(default, str):
        return text
    if isinstance(default, int):
        most = 65_535 if field_name.endswith("_port") else 10_000_000
        return _number(text, told, (0, most))
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InvalidSettingError(f"{told} {text[:100]!r}: must be a JSON object")
    return values


def from_env(environ: Mapping[str, str]) -> ControllerSettings:
    """Settings of `environ`, defaults for what it does not set. Raises InvalidSettingError."""
    defaults = ControllerSettings()
    return ControllerSettings(
        kubeconfig=environ.get("FLAGSTAFF_KUBECONFIG", ""),
        namespaces=_listed(environ.get("FLAGSTAFF_NAMESPACES", "")),
        storage_path=Path(environ.get("FLAGSTAFF_STORAGE_PATH", str(defaults.storage_path))),
        host=environ.get("FLAGSTAFF_HOST", defaults.host),
        artifact_port=_port(environ, "FLAGSTAFF_ARTIFACT_PORT", defaults.artifact_port),
        artifact_address=environ.get("FLAGSTAFF_ARTIFACT_ADDRESS", ""),
        artifact_tokens_file=environ.get("FLAGSTAFF_ARTIFACT_TOKENS_FILE", ""),
        receiver_port=_port(environ, "FLAGSTAFF_RECEIVER_PORT", defaults.receiver_port),
        management_port=_port(environ, "FLAGSTAFF_MANAGEMENT_PORT", defaults.management_port),
        leader_election=_flag(environ, "FLAGSTAFF_LEADER_ELECTION", default=True),
        lease_name=environ.get("FLAGSTAFF_LEASE_NAME", defaults.lease_name),
        namespace=environ.get("FLAGSTAFF_NAMESPACE") or _own_namespace(),
        identity=environ.get("POD_NAME") or socket.gethostname(),
        workers=_whole(environ, "FLAGSTAFF_WORKERS", defaults.workers, (1, 256)),
        allow_local=_flag(environ, "FLAGSTAFF_ALLOW_LOCAL", default=False),
    )


def _own_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    return _whole(environ, name, default, (0, 65535))


def _whole(environ: Mapping[str, str], name: str, default: int, bounds: tuple[int, int]) -> int:
    text = environ.get(name)
    return default if text is None else _number(text, f"{name} is", bounds)


def _number(text: str, told: str, bounds: tuple[int, int]) -> int:
    lowest, highest = bounds
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise InvalidSettingError(
            f"{told} {text!r}: must be a whole number from {lowest} to {highest}"
        )
    return int(text)


def _flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise InvalidSettingError(f"{name} is {text!r}: must be true or false")
    return text.lower() == "true"
