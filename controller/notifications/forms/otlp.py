"""Formats messages for an OpenTelemetry collector: log records, and a revision's journey as a trace. Pure.

https://opentelemetry.io/docs/specs/otlp/#otlphttp, in protobuf, which every receiver takes
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Final

from controller.api.receipt import OBSERVED_AT
from controller.notifications.reporting.journeys import APPLIED_AT, SERVED_AT, STORED_AT
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message as Encoded
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    from controller.notifications.forms.posts import Notice, Post

TYPE: Final = "otlp"
_SEVERITIES: Final = {"info": (9, "INFO"), "warning": (13, "WARN"), "error": (17, "ERROR")}
_STEPS: Final = (
    ("fetch", OBSERVED_AT, STORED_AT),
    ("apply", STORED_AT, APPLIED_AT),
    ("propagate", APPLIED_AT, SERVED_AT),
)
"""Child spans of a journey: (name, metadata key of the start, that of the end)."""


def trace_id(namespace: str, revision: str) -> bytes:
    """Derive a trace ID from the namespace and the revision."""
    return hashlib.sha256(f"{namespace}\n{revision}".encode()).digest()[:16]


def post(notice: Notice) -> Post:
    """Return a trace for a completed journey, a log record for any other message."""
    found, path = (_trace, "traces") if OBSERVED_AT in notice.message.metadata else (_log, "logs")
    body = found(notice).SerializeToString(deterministic=True)
    headers = {"Content-Type": "application/x-protobuf", **notice.target.bearer}
    return notice.post(body, f"{notice.target.base}/v1/{path}", **headers)


def _log(notice: Notice) -> Encoded:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber

    message, target = notice.message, notice.target
    number, text = _SEVERITIES[message.severity]
    revision = message.metadata.get(REVISION_KEY)
    record = LogRecord(
        time_unix_nano=_nanoseconds(message.time),
        observed_time_unix_nano=_nanoseconds(message.time),
        severity_number=SeverityNumber.ValueType(number),
        severity_text=text,
        body=AnyValue(string_value=message.message),
        event_name=f"flagstaff.{message.kind}.{message.reason}",
        attributes=_attributes(_facts(notice)),
        trace_id=trace_id(target.namespace, revision) if revision else b"",
    )
    resource, scope = _origin(target.instance)
    records = ScopeLogs(scope=scope, log_records=[record])
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource, scope_logs=[records])])


def _trace(notice: Notice) -> Encoded:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

    message, target = notice.message, notice.target
    trace = trace_id(target.namespace, message.metadata.get(REVISION_KEY, ""))
    known = (OBSERVED_AT, STORED_AT, APPLIED_AT, SERVED_AT)
    moments = {name: _nanoseconds(text) for name, text in message.metadata.items() if name in known}
    whole = Span(
        trace_id=trace,
        span_id=_span_id(trace, message.uid),
        name=f"{message.kind} {target.namespace}/{message.name}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=min(moments.values()),
        end_time_unix_nano=max(moments.values()),
        attributes=_attributes(_facts(notice)),
    )
    steps = [
        Span(
            trace_id=trace,
            span_id=_span_id(trace, message.uid, name),
            parent_span_id=whole.span_id,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=moments[start],
            end_time_unix_nano=moments[end],
        )
        for name, start, end in _STEPS
        if start in moments and end in moments
    ]
    resource, scope = _origin(target.instance)
    spans = ScopeSpans(scope=scope, spans=[whole, *steps])
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[spans])])


def _span_id(trace: bytes, uid: str, step: str = "") -> bytes:
    """Derive a span ID: the same for each retry."""
    return hashlib.sha256(trace + f"{uid}\n{step}".encode()).digest()[:8]


def _facts(notice: Notice) -> dict[str, str]:
    message = notice.message
    facts = {
        "k8s.namespace.name": notice.target.namespace,
        "flagstaff.kind": message.kind,
        "flagstaff.name": message.name,
        "flagstaff.uid": message.uid,
        "flagstaff.reason": message.reason,
        "flagstaff.alert": message.alert,
        "flagstaff.state": message.state or "",
        "flagstaff.idempotency_key": message.key,
    }
    return {**message.metadata, **{name: text for name, text in facts.items() if text}}


def _origin(instance: str) -> tuple[Resource, InstrumentationScope]:
    """Return the resource and the scope."""
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    named = {"service.name": "flagstaff-controller", "service.instance.id": instance}
    return Resource(attributes=_attributes(named)), InstrumentationScope(name="flagstaff")


def _attributes(facts: Mapping[str, str]) -> list[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    return [KeyValue(key=name, value=AnyValue(string_value=text)) for name, text in sorted(facts.items())]


def _nanoseconds(moment: str) -> int:
    """Convert to nanoseconds since 1970."""
    return round(datetime.fromisoformat(moment).timestamp() * 1_000) * 1_000_000
