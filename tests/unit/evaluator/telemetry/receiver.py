"""A collector as far as OTLP goes: the services of opentelemetry-proto on grpcio, keeping what it is sent."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0


class Receiver:
    """Listens on loopback until it is closed."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.spans: list[Any] = []
        self.metrics: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.peers: list[str] = []
        self._came = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._server)  # type: ignore[no-untyped-call]  # generated
        metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(self), self._server)  # type: ignore[no-untyped-call]  # generated
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def keep(self, context: Any, resource: Any) -> None:
        with self._came:
            self.headers.append(dict(context.invocation_metadata()))
            self.peers.append((context.auth_context().get("x509_common_name") or [b""])[0].decode())
            self.resources.append(attributes(resource))
            self._came.notify_all()

    def wait(self, wanted: Callable[[], Any]) -> None:
        """Until `wanted` is true of what came."""
        with self._came:
            assert self._came.wait_for(wanted, PATIENCE), "the collector was not sent it"

    def close(self) -> None:
        self._server.stop(None).wait()


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self._receiver.spans += [(scope.scope.name, span) for span in scope.spans]
            self._receiver.keep(context, resource.resource)
        return trace_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
        for resource in request.resource_metrics:
            found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
            self._receiver.metrics.append(found)
            self._receiver.keep(context, resource.resource)
        return metrics_pb2.ExportMetricsServiceResponse()


def attributes(carrier: Any) -> dict[str, Any]:
    """The attributes of a span, a data point or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in carrier.attributes}
