"""Calls of a port of plain gRPC from their beginning to their end, unary ones and streams: what flagd's sync
server reports of its own.

flagd has it from otelgrpc
(https://pkg.go.dev/go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Code
from evaluator.server.monitoring.families import Histograms
from evaluator.server.monitoring.requests import code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import Call, MessageStream
    from evaluator.http.routes import Routes, StreamHandler, UnaryHandler

End: TypeAlias = "Callable[[Code], None]"
Begin: TypeAlias = "Callable[[Call], End]"
"""Receives a call; returns what receives its status, once."""

MILLISECONDS: Final = (
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0,
    10_000.0,
)  # fmt: skip
"""OpenTelemetry's default bounds of a histogram, which otelgrpc uses."""
LABELS: Final = ("rpc_system", "rpc_service", "rpc_method", "rpc_grpc_status_code")


def watch_calls(routes: Routes, begin: Begin) -> Routes:
    """Return the routes with `begin` called for each call."""
    return replace(
        routes,
        unary={path: partial(unary, run, begin) for path, run in routes.unary.items()},
        streams={path: partial(_stream, run, begin) for path, run in routes.streams.items()},
    )


def service_and_method(path: str) -> tuple[str, str]:
    """(service, method) of an RPC's path."""
    _, service, method = path.split("/")
    return service, method


def unary(run: UnaryHandler, begin: Begin, call: Call, message: bytes) -> bytes | Deferred[bytes]:
    """The answer of `run`, with `begin` called for the call."""
    end = begin(call)
    try:
        answer = run(call, message)
    except Exception as error:
        end(code_of(error))
        raise
    if isinstance(answer, Deferred):
        return answer.watch(lambda _: end(Code.OK), lambda error: end(code_of(error)))
    end(Code.OK)
    return answer


def _stream(run: StreamHandler, begin: Begin, call: Call, message: bytes, stream: MessageStream) -> None:
    end, before = begin(call), stream.on_ended

    def count_end(code: Code) -> None:
        end(code)
        if before is not None:
            before(code)

    stream.on_ended = count_end
    try:
        run(call, message, stream)
    except Exception as error:
        if not stream.closed:
            stream.on_ended = before
            end(code_of(error))
        raise


class Durations:
    """How long calls took, by method and status; of a stream, how long it was open."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._found = Histograms(
            MILLISECONDS, "rpc_server_duration_milliseconds", "Duration of RPCs of the sync port.", LABELS
        )
        self.family = self._found.family

    def begin(self, call: Call) -> End:
        """Measure a call."""
        return partial(self._record, call.path, self._clock())

    def _record(self, path: str, since: float, code: Code) -> None:
        labels = ("grpc", *service_and_method(path), str(int(code)))
        self._found.add(labels, (self._clock() - since) * 1_000)
