"""What Prometheus reads: flagd's counters of evaluations, requests and calls.

Of requests it has how long their handlers took and how large the answers were.

Handlers are wrapped, so the protocols below know nothing of it.

Of a port of plain gRPC it has the calls from their beginning to their end, unary ones and streams: what
flagd's sync server reports of its own.

flagd has it from otelgrpc
(https://pkg.go.dev/go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc).

A tally is found once per resolution and kept with the snapshot, so that counting is an integer addition.
flagd's names (core/pkg/telemetry/metrics.go), in the form its OpenTelemetry exporter gives them. Labels come
from flags that are served and from fixed sets, never from a request, so their number is bounded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from evaluator.flags.rollouts import ROLLOUT_ARM_KEY
from evaluator.host.loop_lag import NAME, WHAT, LoopLag
from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, Code, MessageStream, Request, Response, RpcError
from evaluator.server.families import Histogram, Histograms, counter, histogram, text
from evaluator.server.rollout_metrics import RolloutMetrics
from evaluator.server.state_metrics import StateMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from evaluator.http.routes import Answer, HttpHandler, Routes, StreamHandler, UnaryHandler
    from evaluator.resolving.resolution import Resolution
    from evaluator.store.query import Query
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store


FINE: Final[tuple[float, ...]] = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3)
COARSE: Final[tuple[float, ...]] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""flagd's bounds of durations (core/pkg/telemetry/metrics.go) in seconds; ours are in FINE."""
SECONDS: Final[tuple[float, ...]] = FINE + COARSE
BYTES: Final[tuple[float, ...]] = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
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


class SeriesLabels(NamedTuple):
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


class RequestMetrics:
    """Measures the requests of all ports whose routes went through `measure`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds, of a high resolution."""
        self._clock = clock
        self._series: dict[SeriesLabels, Series] = {}

    def measure(self, routes: Routes, *, scheme: str = "http") -> Routes:
        """Return the routes with their unary calls and requests measured; streams are counted elsewhere."""
        return replace(
            routes,
            unary={p: self._rpc(scheme, "grpc", p, run) for p, run in routes.unary.items()},
            json_unary={p: self._rpc(scheme, "json", p, run) for p, run in routes.json_unary.items()},
            http={at: self._http(scheme, at, run) for at, run in routes.http.items()},
        )  # fmt: skip

    def _of(self, outcome: SeriesLabels) -> Series:
        return self._series.setdefault(outcome, Series())

    def _rpc(self, scheme: str, protocol: str, path: str, run: UnaryHandler) -> UnaryHandler:
        clock, ok = self._clock, SeriesLabels(scheme, protocol, "POST", path, 200, "0")
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
        clock, like = self._clock, SeriesLabels(scheme, "ofrep", at[0], template(at[1]), 0, "")
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
                record(started, answer.status, len(answer.body))
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


End: TypeAlias = "Callable[[Code], None]"
Begin: TypeAlias = "Callable[[Call], End]"
"""Receives a call; returns what receives its status, once."""

MILLISECONDS: Final[tuple[float, ...]] = (
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


PROVIDER: Final = "flagd"

IMPRESSIONS: Final = ("feature_flag_flagd_impression", "Evaluations of a flag.")
REASONS: Final = ("feature_flag_flagd_result_reason", "Evaluations by reason.")
IMPRESSION_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_result_variant",
    "feature_flag_provider_name",
    "feature_flag_reason",
)
REASON_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_provider_name",
    "feature_flag_reason",
    "ExceptionTypeKeyName",
)


class Tally:
    """A count that only grows."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


Answers: TypeAlias = "Mapping[tuple[str, str], Tally]"
"""The numbers of one flag's answers, by variant and reason."""


class Metrics:
    """The counters of one process."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """`clock`: Unix seconds."""
        self.state = StateMetrics(store, clock)
        self.rollouts = RolloutMetrics(store)
        self.requests = RequestMetrics(perf_counter)
        self.rpcs = Durations(perf_counter)
        self.lag = LoopLag()
        self._answers: dict[str, dict[tuple[str, str], Tally]] = {}
        self._errors: dict[tuple[str, str], Tally] = {}
        self.close = store.subscribe(self._forget_removed)

    def count(self, query: Query, key: str, resolution: Resolution) -> None:
        """Count one evaluation: an `Observer`."""
        kept = query.snapshot.kept[self]
        try:
            kept[resolution].count += 1
        except KeyError:
            tally = self._tally(key, resolution)
            tally.count += 1
            if ROLLOUT_ARM_KEY in resolution.metadata:
                # Such an evaluation counts a user, too, so that no tally of it is kept.
                self.rollouts.count(query, key, resolution)
            elif resolution.error_code is None:
                kept[resolution] = tally

    def _tally(self, key: str, resolution: Resolution) -> Tally:
        # Errors are counted by kind, not by key: unknown keys are unlimited.
        reason = resolution.reason.value
        if resolution.error_code is not None:
            return self._errors.setdefault((reason, resolution.error_code.value), Tally())
        answers = self._answers.setdefault(key, {})
        return answers.setdefault((resolution.variant or "", reason), Tally())

    def text(self) -> bytes:
        """Everything, in Prometheus' text format 0.0.4. Takes some 100 ms with 10,000 flags: for a thread."""
        return text(self.collect())

    def collect(self) -> Iterator[Metric]:
        """Return all families but the process's own. Also called outside the loop, so it reads copies."""
        lag = histogram(NAME, WHAT, ())
        lag.add_metric((), list(self.lag.buckets()), self.lag.seconds)
        rest = self.requests.families(), (self.rpcs.family(),), self.state.families(), (lag,)
        return chain(self._evaluations(), self.rollouts.families(), *rest)

    def _forget_removed(self, snapshot: Snapshot) -> None:
        flags = snapshot.flag_set.flags
        for key in tuple(self._answers):
            if key not in flags:
                del self._answers[key]
                continue
            variants = flags[key].variants
            for variant, reason in tuple(self._answers[key]):
                if variant and variant not in variants:
                    del self._answers[key][variant, reason]

    def _evaluations(self) -> Iterator[Metric]:
        impressions = counter(*IMPRESSIONS, IMPRESSION_LABELS)
        reasons = counter(*REASONS, REASON_LABELS)
        for key, answers in list(self._answers.items()):
            for (variant, reason), tally in list(answers.items()):
                impressions.add_metric((key, variant, PROVIDER, reason), tally.count)
            for reason, count in _by_reason(dict(answers)).items():
                reasons.add_metric((key, PROVIDER, reason, ""), count)
        for (reason, error), tally in list(self._errors.items()):
            reasons.add_metric(("", PROVIDER, reason, error), tally.count)
        yield impressions
        yield reasons


def _by_reason(answers: Answers) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (_, reason), tally in answers.items():
        counts[reason] = counts.get(reason, 0) + tally.count
    return counts
