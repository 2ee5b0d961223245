"""Every setting of an evaluator, with its default. What each is called outside is in `options`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import EMPTY, Bucketing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from evaluator.sync.config import SourceConfig


CORS_OFF: Final = "off"


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPaths:
    """Where a port's certificate is; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """Given: a client must show a certificate of this authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """Where metrics and traces go by OTLP."""

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
    """Seconds between looks at the three files above."""
    headers: str = field(default="", repr=False)
    """`name=value,…`; may hold a credential."""
    protocol: str = ""
    """`grpc` or `http/protobuf`; empty: grpc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodName:
    """Which pod this is, as its manifest says by the downward API; empty where it does not."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One evaluator's settings; where flagd has the setting, the default is flagd's."""

    host: str = "0.0.0.0"  # noqa: S104 - a sidecar is probed and scraped from outside its pod
    """Address that all ports listen on."""
    management_host: str = ""
    ofrep_host: str = ""
    sync_host: str = ""
    """Addresses of these ports, where they are others; empty: `host`."""
    port: int = 8013
    """Evaluation; 0 takes a free port, here and below."""
    management_port: int = 8014
    sync_port: int = 8015
    ofrep_port: int = 8016
    socket_path: str = ""
    """A Unix socket that takes the place of the port; here and below."""
    sync_socket_path: str = ""
    ofrep_socket_path: str = ""
    socket_mode: str = "0660"
    """Who may connect to Unix sockets, octal."""
    server_tls: TlsPaths | None = None
    """Of evaluation and sync, as flagd's; None: cleartext, here and below."""
    ofrep_tls: TlsPaths | None = None
    management_tls: TlsPaths | None = None
    sources: tuple[SourceConfig, ...] = ()
    """A later one wins over an earlier one."""
    receipts: str = "on"
    """`on`: a gRPC source that accepts receipts receives what is served of it; `off`: none does."""
    receipts_to: tuple[SourceConfig, ...] = ()
    """Servers of receipts, one for each source that is a file, in their order; or none."""
    pod: PodName = field(default_factory=PodName)
    state_dir: Path | None = None
    """Where the last good flags of each source are kept; None: nowhere."""
    start_deadline: float = 0.0
    """Seconds after which /startz is 200 without flags; 0: never."""
    bucketing: Bucketing = Bucketing.V2
    show_bucketing: bool = False
    """Name the generation of `fractional` in every answer's metadata."""
    cors_origins: tuple[str, ...] = ()
    """Origins that a browser may ask from; empty or `*`: all, as flagd; CORS_OFF alone: none."""
    context_values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Laid over every evaluation context."""
    context_from_header: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Context key by header name, in lower case."""
    stream_deadline: float = 0.0
    """Seconds after which event and sync streams end with DEADLINE_EXCEEDED; 0: never."""
    disable_sync_metadata: bool = False
    """GetMetadata is UNIMPLEMENTED."""
    ofrep_sse_enabled: bool = True
    ofrep_sse_inactivity_delay: int = 120
    """Seconds after which a client may close an idle event stream; sent to clients."""
    ofrep_sse_public_url: str = ""
    """Origin of the event stream, sent to clients; empty: the one that they asked."""
    keep_alive_min_time: float = 0.0
    """Seconds between a sync client's pings, at least; 0: it pings as often as it likes, short of a flood."""
    keep_alive_permit_without_stream: bool = True
    """Whether a sync client may ping as often without a stream."""
    max_request_body: int = 1_000_000
    """Bytes; 0: no limit."""
    max_request_header: int = 65_536
    """Bytes of a header block, at least 1."""
    max_connections: int = 20_000
    max_connections_per_host: int = 10_000
    max_buffered_bytes: int = 16_777_216
    """Bytes that a port keeps of requests and of answers that are not read."""
    log_format: str = "console"
    log_level: str = "info"
    metrics_exporter: str = "prometheus"
    """`prometheus` or `otel`; `/metrics` answers in either case."""
    otel: OtelSettings = field(default_factory=OtelSettings)
    shutdown_seconds: float = 5.0
    """Time that requests in flight have to end at shutdown; flagd's, which has no option for it."""
