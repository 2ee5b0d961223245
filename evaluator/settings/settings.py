"""All settings of an evaluator, with defaults. The names of options and variables are in `options`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import EMPTY, Bucketing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from evaluator.sync.config import SourceConfig


CORS_OFF: Final = "off"
TRACK_OFF: Final = "off"


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and the accepted values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPaths:
    """Paths of a port's certificate, key and client CA; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """The authority of clients' certificates; None: a client needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """Settings of the OTLP export of metrics and traces."""

    collector_uri: str = ""
    """Empty: nothing is exported."""
    by_option: bool = False
    """Whether flagd's option names the collector: OpenFeature Operator writes it, whatever the image is, so
    that flags are served where OpenTelemetry's SDK is not installed.
    """
    cert_path: str = ""
    key_path: str = ""
    ca_path: str = ""
    reload_interval: float = 3600.0
    """Seconds between two checks of the three files above for changes."""
    headers: str = field(default="", repr=False)
    """`name=value,…`; may hold a credential."""
    protocol: str = ""
    """`grpc` or `http/protobuf`; empty: grpc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodName:
    """The pod's name and namespace from the downward API; empty if not set."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One evaluator's settings; where flagd has the setting, the default is flagd's."""

    host: str = "0.0.0.0"  # noqa: S104 - a sidecar is probed and scraped from outside its pod
    """Address on which all ports listen."""
    management_host: str = ""
    ofrep_host: str = ""
    sync_host: str = ""
    """Addresses of these ports, if different from `host`; empty: `host`."""
    port: int = 8013
    """Evaluation; 0 takes a free port, here and below."""
    management_port: int = 8014
    sync_port: int = 8015
    ofrep_port: int = 8016
    socket_path: str = ""
    """A Unix socket in place of the port; here and below."""
    sync_socket_path: str = ""
    ofrep_socket_path: str = ""
    socket_mode: str = "0660"
    """Mode of Unix sockets, octal."""
    server_tls: TlsPaths | None = None
    """TLS for evaluation and sync, as in flagd; None: cleartext, here and below."""
    ofrep_tls: TlsPaths | None = None
    management_tls: TlsPaths | None = None
    sources: tuple[SourceConfig, ...] = ()
    """A later one wins over an earlier one."""
    receipts: str = "on"
    """`on`: send receipts to every gRPC source that accepts them; `off`: to none."""
    receipts_to: tuple[SourceConfig, ...] = ()
    """Servers of receipts, one for each file source, in their order; or none."""
    pods_from: SourceConfig | None = None
    """The proxy of an evaluator that serves the pods of its node; None: it serves `sources` to everyone."""
    max_flag_sets: int = 200
    """Most flag sets that are kept for these pods."""
    pod: PodName = field(default_factory=PodName)
    state_dir: Path | None = None
    """Folder of the last good flags of each source; None: they are not saved."""
    start_deadline: float = 0.0
    """Seconds after which /startz is 200 without flags; 0: never."""
    bucketing: Bucketing = Bucketing.V2
    show_bucketing: bool = False
    """Name the generation of `fractional` in every answer's metadata."""
    cors_origins: tuple[str, ...] = ()
    """Origins allowed by CORS; empty or `*`: all, as in flagd; CORS_OFF alone: none."""
    track_events: tuple[str, ...] = ()
    """Events that `POST /track` counts; empty or `*`: all; TRACK_OFF alone: there is no such path."""
    context_values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Values that override those of every evaluation context."""
    context_from_header: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Context key by header name, in lower case."""
    stream_deadline: float = 0.0
    """Seconds after which event and sync streams end with DEADLINE_EXCEEDED; 0: never."""
    disable_sync_metadata: bool = False
    """Whether GetMetadata is UNIMPLEMENTED."""
    ofrep_sse_enabled: bool = True
    ofrep_sse_inactivity_delay: int = 120
    """Seconds after which a client may close an idle event stream; sent to clients."""
    ofrep_sse_public_url: str = ""
    """Origin of the event stream, sent to clients; empty: that of their request."""
    keep_alive_min_time: float = 0.0
    """Least seconds between a sync client's pings; 0: no limit but that against floods."""
    keep_alive_permit_without_stream: bool = True
    """Whether a sync client without a stream may ping as often as one with a stream."""
    max_request_body: int = 1_000_000
    """Most bytes of a request body; 0: no limit."""
    max_request_header: int = 65_536
    """Most bytes of a header block, at least 1."""
    max_connections: int = 20_000
    max_connections_per_host: int = 10_000
    max_buffered_bytes: int = 16_777_216
    """Most bytes that a port buffers of requests and of unread answers."""
    log_format: str = "console"
    log_level: str = "info"
    metrics_exporter: str = "prometheus"
    """`prometheus` or `otel`; `/metrics` is served in either case."""
    otel: OtelSettings = field(default_factory=OtelSettings)
    shutdown_seconds: float = 5.0
    """Most seconds for requests in flight at shutdown; flagd's value, for which it has no option."""
