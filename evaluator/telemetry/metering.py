"""Converts our metrics to OpenTelemetry's data model, with flagd's names.

Counters are kept only for Prometheus; this module converts the families of a scrape into the SDK's data
points, histograms included, for which the SDK has no observable instrument. Everything is cumulative since
the start, as flagd's is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.sdk.resources import Resource
    from prometheus_client.core import Metric as Family

    from evaluator.server.monitoring.metrics import Metrics

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
