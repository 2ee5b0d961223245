"""Sets up OpenTelemetry's SDK: exporters to one collector, their threads, and the shutdown."""

from __future__ import annotations

import logging
import threading
from functools import partial
from importlib.metadata import version
from os import environ
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from grpc import ChannelCredentials, ssl_channel_credentials
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from evaluator.settings import InvalidSettingError
from evaluator.telemetry.metering import Metering
from evaluator.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from evaluator.server.monitoring.metrics import Metrics
    from evaluator.settings import OtelSettings

E = TypeVar("E")


class Collector:
    """The address of a collector, and the credentials for it."""

    def __init__(self, settings: OtelSettings) -> None:
        """Raises InvalidSettingError for unusable files."""
        uri = settings.collector_uri
        self._settings = settings
        self._files = (settings.ca_path, settings.key_path, settings.cert_path)
        if bool(settings.key_path) != bool(settings.cert_path):
            raise InvalidSettingError(
                "--otel-cert-path and --otel-key-path belong together: give both, or neither"
            )
        # Without a scheme it is flagd's host:port: cleartext unless there are certificates.
        self._secure = uri.startswith("https://") or any(self._files)
        self._address = uri.partition("://")[2] if "://" in uri else uri
        self._address = self._address.rstrip("/")
        self.metric_interval = _milliseconds("OTEL_METRIC_EXPORT_INTERVAL")
        """Seconds between exports of metrics, if the environment sets them."""
        if self._secure:
            try:
                self.credentials()
            except OSError as error:
                raise InvalidSettingError(
                    f"certificates for the collector: {error.filename}: {error.strerror}"
                ) from error

    def exporter(self, kind: Callable[..., E]) -> E:
        """Return a new exporter of one of the SDK's kinds. OTEL_EXPORTER_OTLP_* set all that we do not."""
        if not self._secure:
            return kind(endpoint=self._address, insecure=True)
        return kind(endpoint=self._address, insecure=False, credentials=self.credentials())

    def credentials(self) -> ChannelCredentials:
        """Read the credentials from the files. Raises OSError."""
        authority, key, certificate = self.contents()
        return ssl_channel_credentials(authority, key, certificate)

    def contents(self) -> tuple[bytes | None, ...]:
        """Read CA, key, certificate; None for those that are not configured. Raises OSError."""
        return tuple(Path(path).read_bytes() if path else None for path in self._files)

    def renew_on_change(self, kind: Callable[..., E]) -> Callable[[], E]:
        """Return a function that returns an exporter, a new one once its certificates have changed."""
        return Renewed(partial(self.exporter, kind), self.contents, self._settings.reload_interval)


class Renewed(Generic[E]):
    """An exporter that is replaced when its files change; checked every `interval` seconds."""

    def __init__(self, make: Callable[[], E], contents: Callable[[], object], interval: float) -> None:
        self._make, self._contents, self._interval = make, contents, interval
        self._lock = threading.Lock()
        self._seen, self._exporter = contents(), make()
        self._checked_at = monotonic()

    def __call__(self) -> E:
        """Return the current exporter. Unreadable files change nothing: a replacement may be under way."""
        with self._lock:
            now = monotonic()
            if self._interval and now - self._checked_at >= self._interval:
                self._checked_at = now
                self._check()
            return self._exporter

    def _check(self) -> None:
        try:
            contents = self._contents()
        except OSError:
            return
        if contents != self._seen:
            former: Any = self._exporter
            self._seen, self._exporter = contents, self._make()
            former.shutdown()


class RenewedSpanExporter(SpanExporter):
    """Exports spans with the current exporter."""

    def __init__(self, collector: Collector) -> None:
        self._current = collector.renew_on_change(OTLPSpanExporter)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans."""
        return self._current().export(spans)

    def shutdown(self) -> None:
        """Close the connection."""
        self._current().shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return at once: this exporter buffers nothing."""
        return self._current().force_flush(timeout_millis)


def _milliseconds(name: str) -> float | None:
    text = environ.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise InvalidSettingError(f"{name} is {text!r}: must be a number of milliseconds")
    return int(text) / 1000


EXPORT_SECONDS: Final = 2.0
"""flagd's interval between exports of metrics (core/pkg/telemetry/builder.go)."""
NAME: Final = "flagd"
"""flagd's `service.name`; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""

log = logging.getLogger(__name__)


class Session:
    """Exports from its own threads until closed: a slow collector does not slow the loop."""

    def __init__(self, settings: OtelSettings, metrics: Metrics | None, clock: Callable[[], float]) -> None:
        """Raises InvalidSettingError for certificates that cannot be read."""
        collector = Collector(settings)
        described = resource()
        self._provider = TracerProvider(resource=described, shutdown_on_exit=False)
        exporter = RenewedSpanExporter(collector)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracing = Tracing(self._provider)
        self._stopping = threading.Event()
        self._metering: threading.Thread | None = None
        if metrics is not None:
            metering = Metering(metrics, described, clock)
            self._metering = threading.Thread(
                target=self._export, args=(metering, collector), name="otlp-metrics", daemon=True
            )
            self._metering.start()

    def _export(self, metering: Metering, collector: Collector) -> None:
        renewed = collector.renew_on_change(OTLPMetricExporter)
        interval = collector.metric_interval or EXPORT_SECONDS
        while not self._stopping.wait(interval):
            self._send(metering, renewed)
        self._send(metering, renewed)
        renewed().shutdown()

    def _send(self, metering: Metering, exporter: Callable[[], OTLPMetricExporter]) -> None:
        try:
            exporter().export(metering.collect())
        except Exception:
            log.exception("metrics could not be sent")

    def close(self, seconds: float) -> None:
        """Send the remaining data; blocks for up to `seconds`."""
        self._stopping.set()
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        for thread in (self._metering, ending):
            if thread is not None:
                thread.join(seconds / 2)


def resource() -> Resource:
    """Return the resource of our telemetry: the SDK's own, with our name if it has none."""
    resource = Resource.create()
    ours: dict[str, str] = {}
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        ours[SERVICE_NAME] = NAME
    if SERVICE_VERSION not in resource.attributes:
        ours[SERVICE_VERSION] = version("flagstaff")
    return resource.merge(Resource(ours))
