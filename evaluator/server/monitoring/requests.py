"""Counts requests, and measures how long their handlers took and how large the answers were.

Handlers are wrapped, so the protocols below know nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Code, Response, RpcError
from evaluator.server.monitoring.families import Histogram, histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from evaluator.http.messages import Call, Request
    from evaluator.http.routes import Answer, HttpHandler, Routes, UnaryHandler

FINE: Final = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3)
COARSE: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""flagd's bounds of durations (core/pkg/telemetry/metrics.go) in seconds; ours are in FINE."""
SECONDS: Final = FINE + COARSE
BYTES: Final = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
"""flagd's bounds for a response's size."""

HTTP_LABELS: Final = (
    "http_request_method",
    "http_response_status_code",
    "http_route",
    "rpc_grpc_status_code",
    "service_name",
    "url_scheme",
)
SERVICE: Final = "flagd"


class Outcome(NamedTuple):
    """The labels of a series: fixed sets only, never a path or a key from a client."""

    scheme: str
    protocol: str
    """`grpc` (its messages, by whatever protocol), `json` or `ofrep`."""
    method: str
    route: str
    status: int
    """HTTP's: of RPCs 200, whatever became of them, as flagd records it."""
    code: str
    """gRPC's status as a number, or empty."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the values of HTTP_LABELS."""
        return (self.method, str(self.status), self.route, self.code, SERVICE, self.scheme)


class Series:
    """The measurements of one outcome."""

    __slots__ = ("seconds", "sizes")

    def __init__(self) -> None:
        self.seconds, self.sizes = Histogram(SECONDS), Histogram(BYTES)

    def record(self, seconds: float, size: int) -> None:
        """Count a request."""
        self.seconds.add(seconds)
        self.sizes.add(size)

    def include(self, other: Series) -> None:
        """Add the counts of `other`."""
        self.seconds.include(other.seconds)
        self.sizes.include(other.sizes)


class Requests:
    """Measures the requests of all ports whose routes went through `measure`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds, of a high resolution."""
        self._clock = clock
        self._series: dict[Outcome, Series] = {}

    def measure(self, routes: Routes, *, scheme: str = "http") -> Routes:
        """Return the routes with their unary calls and requests measured; streams are counted elsewhere."""
        return replace(
            routes,
            unary={p: self._rpc(scheme, "grpc", p, run) for p, run in routes.unary.items()},
            json_unary={p: self._rpc(scheme, "json", p, run) for p, run in routes.json_unary.items()},
            http={at: self._http(scheme, at, run) for at, run in routes.http.items()},
        )  # fmt: skip

    def _of(self, outcome: Outcome) -> Series:
        return self._series.setdefault(outcome, Series())

    def _rpc(self, scheme: str, protocol: str, path: str, run: UnaryHandler) -> UnaryHandler:
        clock, ok = self._clock, Outcome(scheme, protocol, "POST", path, 200, "0")
        record = self._of(ok).record

        def count_failure(started: float, error: BaseException) -> None:
            self._of(ok._replace(code=str(int(code_of(error))))).record(clock() - started, 0)

        def count_answer(started: float, answer: bytes) -> None:
            record(clock() - started, len(answer))

        def measure(call: Call, message: bytes) -> bytes | Deferred[bytes]:
            started = clock()
            try:
                answer = run(call, message)
            except Exception as error:
                count_failure(started, error)
                raise
            if isinstance(answer, Deferred):
                return answer.watch(partial(count_answer, started), partial(count_failure, started))
            record(clock() - started, len(answer))
            return answer

        return measure

    def _http(self, scheme: str, at: tuple[str, str], run: HttpHandler) -> HttpHandler:
        clock, like = self._clock, Outcome(scheme, "ofrep", at[0], template(at[1]), 0, "")
        by_status: dict[int, Series] = {}

        def record(started: float, status: int, size: int) -> None:
            series = by_status.get(status)
            if series is None:
                series = by_status[status] = self._of(like._replace(status=status))
            series.record(clock() - started, size)

        def count_failure(started: float, error: BaseException) -> None:
            record(started, status_of(error), 0)

        def count_answer(started: float, response: Response) -> None:
            record(started, response.status, len(response.body))

        def measure(request: Request) -> Answer:
            started = clock()
            try:
                answer = run(request)
            except Exception as error:
                count_failure(started, error)
                raise
            if isinstance(answer, Response):
                count_answer(started, answer)
            elif isinstance(answer, Deferred):
                return answer.watch(partial(count_answer, started), partial(count_failure, started))
            return answer

        return measure

    def families(self) -> Iterator[Metric]:
        """Return the present values. Also called outside the loop, so it iterates over copies."""
        seconds = histogram("http_server_request_duration_seconds", "Duration of HTTP requests.", HTTP_LABELS)
        size = histogram("http_server_response_body_size_bytes", "Size of HTTP answers.", HTTP_LABELS)
        evaluation = histogram(
            "flagstaff_evaluation_duration_seconds",
            "Reading, resolving and writing one request, without the protocol below.",
            ("protocol",),
        )
        by_labels: dict[tuple[str, ...], Series] = {}
        by_protocol: dict[tuple[str, ...], Series] = {}
        for outcome, series in list(self._series.items()):
            by_protocol.setdefault((outcome.protocol,), Series()).include(series)
            if any(series.seconds.counts):
                by_labels.setdefault(outcome.labels, Series()).include(series)
        for labels, series in by_labels.items():
            # They are cumulative, so that the fine ones can be left out.
            seconds.add_metric(labels, series.seconds.buckets()[len(FINE) :], series.seconds.total)
            size.add_metric(labels, series.sizes.buckets(), series.sizes.total)
        for labels, series in by_protocol.items():
            evaluation.add_metric(labels, series.seconds.buckets(), series.seconds.total)
        yield from (seconds, size, evaluation)


def code_of(error: BaseException) -> Code:
    """Return the status of a failed call; GeneratorExit: the caller disconnected."""
    if isinstance(error, RpcError):
        return error.code
    return Code.CANCELLED if isinstance(error, GeneratorExit) else Code.INTERNAL


def status_of(error: BaseException) -> int:
    """Return the status of a failed request; 499, as is usual, if the client disconnected."""
    return 499 if isinstance(error, GeneratorExit) else 500


def template(path: str) -> str:
    """Return a route of Routes in OpenTelemetry's notation, with names for its variable parts."""
    return f"{path[:-1]}{{key}}" if path.endswith("/*") else path
