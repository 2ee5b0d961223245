"""Sets up OpenTelemetry's SDK: exporters to one collector, our metrics and spans in its model, and the
shutdown.

Counters are kept only for Prometheus; this module converts the families of a scrape into the SDK's data
points, histograms included, for which the SDK has no observable instrument. Everything is cumulative since
the start, as flagd's is.

Each evaluation has a span in the trace of its client (W3C `traceparent`, or as set by OTEL_PROPAGATORS).

Names are flagd's, attributes OpenTelemetry's for feature flags
(https://opentelemetry.io/docs/specs/semconv/feature-flags/). Spans never contain an evaluation context.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from os import environ
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from grpc import ChannelCredentials, ssl_channel_credentials
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, Code, Headers, Request
from evaluator.server import metrics
from evaluator.server.metrics import PROVIDER, End, Metrics, service_and_method, status_of, template
from evaluator.settings import InvalidSettingError, OtelSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer, TracerProvider
    from prometheus_client.core import Metric as Family

    from evaluator.http.routes import Answer, HttpHandler, Routes, UnaryHandler
    from evaluator.resolving.resolution import Resolution
    from evaluator.store.query import Query
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store


NAMES: Final = {
    "feature_flag_flagd_impression": ("feature_flag.flagd.impression", "{impression}"),
    "feature_flag_flagd_result_reason": ("feature_flag.flagd.result.reason", "{reason}"),
    "feature_flag_flagd_sync_active_streams": ("feature_flag.flagd.sync.active_streams", "{stream}"),
    "feature_flag_flagd_sync_stream_duration_seconds": ("feature_flag.flagd.sync.stream.duration", "s"),
    "feature_flag_evaluations": ("feature_flag.evaluations", "{evaluation}"),
    "feature_flag_event_value": ("feature_flag.event.value", "1"),
    "feature_flag_events": ("feature_flag.events", "{event}"),
    "feature_flag_units": ("feature_flag.units", "{unit}"),
    "feature_flag_units_sample_ratio": ("feature_flag.units.sample_ratio", "1"),
    "http_server_request_duration_seconds": ("http.server.request.duration", "s"),
    "http_server_response_body_size_bytes": ("http.server.response.body.size", "By"),
    "http_server_active_requests": ("http.server.active_requests", "{request}"),
    "rpc_server_duration_milliseconds": ("rpc.server.duration", "ms"),
}
"""flagd's names and units (core/pkg/telemetry/metrics.go), and those of flags in a rollout."""
ATTRIBUTES: Final = {
    "feature_flag_key": "feature_flag.key",
    "feature_flag_result_reason": "feature_flag.result.reason",
    "feature_flag_result_variant": "feature_flag.result.variant",
    "feature_flag_provider_name": "feature_flag.provider.name",
    "feature_flag_reason": "feature_flag.reason",
    "http_request_method": "http.request.method",
    "http_response_status_code": "http.response.status_code",
    "http_route": "http.route",
    "rpc_grpc_status_code": "rpc.grpc.status_code",
    "rpc_method": "rpc.method",
    "rpc_service": "rpc.service",
    "rpc_system": "rpc.system",
    "service_name": "service.name",
    "url_scheme": "url.scheme",
}
SCOPE: Final = "flagd"


class Metering:
    """Reads the metrics for each export."""

    def __init__(self, metrics: Metrics, resource: Resource, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._resource = resource
        self._clock = clock
        self._start = _nanoseconds(clock())

    def collect(self) -> MetricsData:
        """Return all metrics at this moment."""
        now = _nanoseconds(self._clock())
        metrics = [self._translate(family, now) for family in self._metrics.collect()]
        scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _translate(self, family: Family, now: int) -> Metric:
        cumulative = AggregationTemporality.CUMULATIVE
        points: Sum | Gauge | Histogram
        if family.type == "histogram":
            points = Histogram(self._distributions(family, now), cumulative)
        else:
            numbers = [
                NumberDataPoint(attributes(sample.labels), self._start, now, sample.value)
                for sample in family.samples
            ]
            counts = family.type == "counter"
            points = Sum(numbers, cumulative, is_monotonic=True) if counts else Gauge(numbers)
        name, unit = name_and_unit(family.name)
        return Metric(name, family.documentation, unit, points)

    def _distributions(self, family: Family, now: int) -> list[HistogramDataPoint]:
        buckets: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for sample in family.samples:
            series = tuple(item for item in sample.labels.items() if item[0] != "le")
            part = sample.labels.get("le") or sample.name.rpartition("_")[2]
            buckets.setdefault(series, {})[part] = sample.value
        return [self._distribution(dict(series), parts, now) for series, parts in buckets.items()]

    def _distribution(
        self, labels: Mapping[str, str], parts: Mapping[str, float], now: int
    ) -> HistogramDataPoint:
        bounds = [bound for bound in parts if bound not in ("sum", "count")]
        cumulative = [parts[bound] for bound in bounds]
        return HistogramDataPoint(
            attributes(labels),
            self._start,
            now,
            count=int(parts["count"]),
            sum=parts["sum"],
            bucket_counts=[
                int(now_ - before) for before, now_ in zip([0.0, *cumulative], cumulative, strict=False)
            ],
            explicit_bounds=[float(bound) for bound in bounds if bound != "+Inf"],
            # Minimum and maximum are unknown: only counts per bucket are kept.
            min=None,  # type: ignore[arg-type] # optional in OTLP, and the exporter takes it
            max=None,  # type: ignore[arg-type]
        )


def name_and_unit(name: str) -> tuple[str, str]:
    """Return (name, unit) of a Prometheus family: flagd's if it has the metric, else `flagstaff.…`."""
    if name in NAMES:
        return NAMES[name]
    unit = {"seconds": "s", "bytes": "By"}.get(name.rpartition("_")[2], "1")
    return name.replace("_", ".", 1), unit


def attributes(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as attributes, without empty ones, which mean the same in Prometheus."""
    return {ATTRIBUTES.get(name, name): value for name, value in labels.items() if value}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


OUR_FAULT: Final = frozenset({Code.UNKNOWN, Code.INTERNAL, Code.UNAVAILABLE, Code.DATA_LOSS})
"""Statuses with which a server's span is an error; any other status is the caller's fault."""


class Tracing:
    """Wraps routes, and describes evaluations in their spans. Only one span is open at a time."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._span: Span | None = None

    def routes(self, routes: Routes) -> Routes:
        """Return the same routes, with a span for each unary call and request."""
        return replace(
            routes,
            unary={path: self._rpc(path, run) for path, run in routes.unary.items()},
            json_unary={path: self._rpc(path, run) for path, run in routes.json_unary.items()},
            http={at: self._http(at, run) for at, run in routes.http.items()},
        )

    def begin(self, call: Call) -> End:
        """Open a span for one call of plain gRPC, named as by otelgrpc; it lasts as long as the stream."""
        name, tracer = call.path.removeprefix("/"), self._provider.get_tracer("otelgrpc")
        return partial(_end, _span(tracer, name, call))

    def follow(self, store: Store) -> None:
        """Record a span for each source whose flags changed (flagd: core/pkg/evaluator/json.go)."""
        tracer, held = self._provider.get_tracer("jsonEvaluator"), dict[str, str | None]()

        def on_swap(_: Snapshot) -> None:
            for status in store.statuses:
                if held.get(status.name) != status.digest:
                    held[status.name] = status.digest
                    source = {"feature_flag.source": status.name}
                    tracer.start_span("flagSync", attributes=source).end()

        store.subscribe(on_swap)

    def describe(self, query: Query, key: str, resolution: Resolution) -> None:
        """Describe the evaluation of one flag, not of a bulk answer, in the current span: an `Observer`."""
        if query.key is not None and self._span is not None and self._span.is_recording():
            self._span.set_attributes(attributes_of(query, key, resolution))

    def _rpc(self, path: str, run: UnaryHandler) -> UnaryHandler:
        service, method = service_and_method(path)
        tracer = self._provider.get_tracer(service.removesuffix(".Service"))
        name = method[0].lower() + method[1:]

        def begin(call: Call) -> End:
            self._span = span = _span(tracer, name, call)
            return partial(_end, span)

        def describe_call(call: Call, message: bytes) -> bytes | Deferred[bytes]:
            try:
                return run(call, message)
            finally:
                self._span = None

        return partial(metrics.unary, describe_call, begin)

    def _http(self, at: tuple[str, str], run: HttpHandler) -> HttpHandler:
        tracer = self._provider.get_tracer("flagd.ofrep")
        fixed = {"http.request.method": at[0], "http.route": template(at[1])}

        def end(span: Span, status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

        def trace_request(request: Request) -> Answer:
            span = tracer.start_span(
                "flagd.ofrep", parent(request.headers), SpanKind.SERVER, attributes=fixed
            )
            self._span = span
            try:
                answer = run(request)
            except Exception as error:
                end(span, status_of(error))
                raise
            finally:
                self._span = None
            if isinstance(answer, Deferred):
                return answer.watch(
                    lambda response: end(span, response.status), lambda error: end(span, status_of(error))
                )
            end(span, answer.status)
            return answer

        return trace_request


def _span(tracer: Tracer, name: str, call: Call) -> Span:
    """Start the span of an RPC."""
    service, method = service_and_method(call.path)
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    return tracer.start_span(name, parent(call.headers), SpanKind.SERVER, attributes=attributes)


def _end(span: Span, code: Code) -> None:
    span.set_attribute("rpc.grpc.status_code", int(code))
    if code in OUR_FAULT:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def parent(headers: Headers) -> Any:
    """Return the caller's trace, or none."""
    return propagate.extract(dict(headers))


def attributes_of(query: Query, key: str, resolution: Resolution) -> dict[str, str]:
    """Return an evaluation as attributes."""
    attributes = {
        "feature_flag.key": key,
        "feature_flag.provider.name": PROVIDER,
        "feature_flag.result.reason": resolution.reason.value.lower(),
    }
    if resolution.variant is not None:
        attributes["feature_flag.result.variant"] = resolution.variant
    if (flag_set_id := query.flag_set_id(resolution)) is not None:
        attributes["feature_flag.set.id"] = flag_set_id
    if resolution.error_code is not None:
        attributes["error.type"] = resolution.error_code.value.lower()
        attributes["feature_flag.error.message"] = resolution.error_message
    return attributes


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
        self._provider = SdkTracerProvider(resource=described, shutdown_on_exit=False)
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
