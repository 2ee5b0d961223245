"""Metrics and traces to an OpenTelemetry collector, as flagd sends them: OTLP over gRPC, by the official SDK.

The SDK is the extra `otel`, imported only where a collector is configured; nothing is paid without one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from evaluator.settings import InvalidSettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.server.monitoring.metrics import Metrics
    from evaluator.settings import OtelSettings
    from evaluator.telemetry.session import Session

__all__ = ["open_session"]

log = logging.getLogger(__name__)


def open_session(
    settings: OtelSettings, metrics: Metrics | None, clock: Callable[[], float]
) -> Session | None:
    """Send traces, and `metrics` where they are given; None without a collector, and where flagd's
    option names one and the extra is not installed. `clock`: Unix seconds.

    Raises InvalidSettingError: OpenTelemetry's own variable names a collector and the extra is not installed,
    or what is asked for cannot be done.
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
        reason = "a collector is configured, and that needs OpenTelemetry's SDK: install flagstaff[otel]"
        if not settings.by_option:
            raise InvalidSettingError(reason) from missing
        log.warning("no metrics and traces are sent: %s", reason)
        return None
    return Session(settings, metrics, clock)
