"""The SDK set up: exporters to one collector, who sends what, and the end of it."""

from __future__ import annotations

import logging
import threading
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from evaluator.telemetry.collector import Collector, RenewedSpanExporter
from evaluator.telemetry.metering import Metering
from evaluator.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.server.monitoring.metrics import Metrics
    from evaluator.settings import OtelSettings

EXPORT_SECONDS: Final = 2.0
"""flagd's interval between exports of metrics (core/pkg/telemetry/builder.go)."""
NAME: Final = "flagd"
"""flagd's `service.name`; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""

log = logging.getLogger(__name__)


class Session:
    """Sends from threads of its own until it is closed: a slow collector costs the loop nothing."""

    def __init__(self, settings: OtelSettings, metrics: Metrics | None, clock: Callable[[], float]) -> None:
        """Raises InvalidSettingError for certificates that cannot be read."""
        collector = Collector(settings)
        described = resource()
        self._provider = TracerProvider(resource=described, shutdown_on_exit=False)
        exporter = RenewedSpanExporter(lambda: collector.exporter(OTLPSpanExporter), collector)
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
        renewed = collector.renewed(lambda: collector.exporter(OTLPMetricExporter))
        interval = collector.metric_interval or EXPORT_SECONDS
        while not self._stopping.wait(interval):
            self._send(metering, renewed)
        self._send(metering, renewed)
        renewed().shutdown()

    def _send(self, metering: Metering, exporter: Callable[[], OTLPMetricExporter]) -> None:
        try:
            exporter().export(metering.collected())
        except Exception:
            log.exception("metrics could not be sent")

    def close(self, seconds: float) -> None:
        """Send what is left, for up to `seconds`; blocks as long."""
        self._stopping.set()
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        for thread in (self._metering, ending):
            if thread is not None:
                thread.join(seconds / 2)


def resource() -> Resource:
    """The resource of our telemetry: the SDK's own, under our name where that gives none."""
    found = Resource.create()
    ours: dict[str, str] = {}
    if str(found.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        ours[SERVICE_NAME] = NAME
    if SERVICE_VERSION not in found.attributes:
        ours[SERVICE_VERSION] = version("flagstaff")
    return found.merge(Resource(ours))
