"""A span for each evaluation, in the trace of its client (W3C `traceparent`, or as set by OTEL_PROPAGATORS).

Names are flagd's, attributes OpenTelemetry's for feature flags
(https://opentelemetry.io/docs/specs/semconv/feature-flags/). Spans never contain an evaluation context.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Code
from evaluator.server.monitoring import rpcs
from evaluator.server.monitoring.metrics import PROVIDER
from evaluator.server.monitoring.requests import status_of, template
from evaluator.server.monitoring.rpcs import service_and_method

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

    from evaluator.http.messages import Call, Headers, Request
    from evaluator.http.routes import Answer, HttpHandler, Routes, UnaryHandler
    from evaluator.resolving.resolution import Resolution
    from evaluator.server.monitoring.rpcs import End
    from evaluator.store.evaluate import Query
    from evaluator.store.store import Snapshot, Store

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

        return partial(rpcs.unary, describe_call, begin)

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
