"""What watches an evaluator's requests: metrics always, spans and OTLP where a collector is configured.

OpenTelemetry's SDK is the extra `otel`, imported only for a collector; nothing is paid without one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from evaluator.server import metrics as rpcs
from evaluator.server.metrics import Metrics
from evaluator.settings import InvalidSettingError, OtelSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.routes import Routes
    from evaluator.store.query import Observer
    from evaluator.store.store import Store
    from evaluator.telemetry.session import Session

log = logging.getLogger(__name__)

FAREWELL_SECONDS: Final = 3.0
"""Most seconds of the last export at the end."""


class Observed:
    """The observers of one evaluator, and the wrapped routes."""

    def __init__(self, store: Store, settings: Settings, clock: Callable[[], float]) -> None:
        """clock: Unix seconds. Raises InvalidSettingError if a setting of the collector cannot be met."""
        self.metrics = Metrics(store, clock)
        sent = self.metrics if settings.metrics_exporter == "otel" else None
        self._session = open_session(settings.otel, sent, clock)
        self.observers: list[Observer] = [self.metrics.count]
        if self._session is not None:
            self.observers.append(self._session.tracing.describe)
            self._session.tracing.follow(store)

    def routes(self, routes: Routes, *, secure: bool) -> Routes:
        """Return the same routes, observed; `secure` if they are behind TLS."""
        measured = self.metrics.requests.measure(routes, scheme="https" if secure else "http")
        return measured if self._session is None else self._session.tracing.routes(measured)

    def rpcs(self, routes: Routes) -> Routes:
        """Return the same routes of plain gRPC, observed with their streams."""
        measured = rpcs.watch_calls(routes, self.metrics.rpcs.begin)
        return measured if self._session is None else rpcs.watch_calls(measured, self._session.tracing.begin)

    def close(self) -> None:
        """Send the remaining data; blocks for up to FAREWELL_SECONDS, so not on the loop."""
        if self._session is not None:
            self._session.close(FAREWELL_SECONDS)


def open_session(
    settings: OtelSettings, metrics: Metrics | None, clock: Callable[[], float]
) -> Session | None:
    """Start to send traces, and `metrics` if given; None without a collector. clock: Unix seconds. If the
    extra `otel` is not installed: None if flagd's option names the collector, InvalidSettingError if
    OpenTelemetry's variable does. Raises InvalidSettingError for unsupported settings, too.
    """
    if not settings.collector_uri:
        return None
    if settings.protocol not in ("", "grpc"):
        raise InvalidSettingError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {settings.protocol!r}: OTLP is sent by gRPC "
            "only; unset it, or set grpc"
        )
    try:
        from evaluator.telemetry.session import Session  # noqa: PLC0415 - imports the SDK
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("opentelemetry", "grpc"):
            raise
        from evaluator.host.build_version import install_command  # noqa: PLC0415 - said at a failure alone

        reason = f"a collector is configured, and that needs OpenTelemetry's SDK: {install_command('otel')}"
        if not settings.by_option:
            raise InvalidSettingError(reason) from missing
        log.warning("no metrics and traces are sent: %s", reason)
        return None
    return Session(settings, metrics, clock)
