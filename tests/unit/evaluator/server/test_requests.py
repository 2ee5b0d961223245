from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from evaluator.http.deferred import Deferred, at_once
from evaluator.http.messages import Code, Request, Response, RpcError, Streamed
from evaluator.http.routes import Routes
from evaluator.server.families import Histogram
from evaluator.server.metrics import COARSE, SECONDS, RequestMetrics
from tests.clock import Clock
from tests.worlds.evaluator import call

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from evaluator.http.messages import Call

PATH = "/flagd.evaluation.v2.Service/ResolveBoolean"
TEMPLATE = "/ofrep/v1/evaluate/flags/{key}"


def answer_rpc(_: Call, message: bytes) -> bytes:
    if message == b"missing":
        raise RpcError(Code.NOT_FOUND, "no such flag")
    if message == b"broken":
        raise KeyError
    return message


def answer_http(request: Request) -> Response:
    return Response(int(request.body), b"x" * 150)


def observed_routes(clock: Clock) -> tuple[RequestMetrics, Routes]:
    requests = RequestMetrics(clock)
    plain = Routes(
        unary={PATH: answer_rpc},
        json_unary={PATH: answer_rpc},
        http={("POST", "/ofrep/v1/evaluate/flags/*"): answer_http},
    )
    return requests, requests.measure(plain)


def samples(requests: RequestMetrics, name: str, **labels: str) -> list[tuple[Mapping[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in requests.families()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def count_requests(requests: RequestMetrics, **labels: str) -> float:
    name = "http_server_request_duration_seconds_count"
    return sum(value for _, value in samples(requests, name, **labels))


def post(routes: Routes, status: int, key: str = "any") -> Response:
    path = f"/ofrep/v1/evaluate/flags/{key}"
    handler = routes.http["POST", "/ofrep/v1/evaluate/flags/*"]
    answer = handler(Request("POST", path, "", (), str(status).encode(), ""))
    assert isinstance(answer, Response)
    return answer


def test_an_answer_is_what_it_was_and_is_counted_once() -> None:
    requests, routes = observed_routes(Clock(step=0.02))
    assert routes.unary[PATH](call(), b"yes") == b"yes"
    assert count_requests(requests, http_route=PATH, rpc_grpc_status_code="0") == 1
    sums = samples(requests, "http_server_request_duration_seconds_sum")
    assert [value for _, value in sums] == [pytest.approx(0.02)]


@pytest.mark.parametrize(
    ("message", "error", "code"),
    [(b"missing", RpcError, "5"), (b"broken", KeyError, "13")],
    ids=["refused", "failed"],
)
def test_an_error_passes_and_is_counted_by_its_status(
    message: bytes, error: type[Exception], code: str
) -> None:
    requests, routes = observed_routes(Clock())
    for _ in range(3):
        with pytest.raises(error):
            routes.unary[PATH](call(), message)
    assert count_requests(requests, http_route=PATH, rpc_grpc_status_code=code) == 3
    assert count_requests(requests, rpc_grpc_status_code="0") == 0


def test_a_path_that_was_asked_for_is_no_label() -> None:
    requests, routes = observed_routes(Clock())
    for number in range(50):
        post(routes, 200, f"unknown-{number}")
    assert count_requests(requests, http_route=TEMPLATE, http_response_status_code="200") == 50
    assert len(samples(requests, "http_server_request_duration_seconds_count")) == 1


def test_each_status_is_a_series_and_sizes_have_flagds_bounds() -> None:
    requests, routes = observed_routes(Clock())
    for status in (200, 404, 404):
        assert post(routes, status).status == status
    assert count_requests(requests, http_response_status_code="404") == 2
    name = "http_server_response_body_size_bytes_bucket"
    found = samples(requests, name, http_response_status_code="404")
    assert {labels["le"]: value for labels, value in found}["100.0"] == 0
    assert {labels["le"]: value for labels, value in found}["1000.0"] == 2


def test_a_handler_that_fails_is_a_500() -> None:
    requests, routes = observed_routes(Clock())
    with pytest.raises(ValueError, match="invalid literal"):
        routes.http["POST", "/ofrep/v1/evaluate/flags/*"](Request("POST", "", "", (), b"x", ""))
    assert count_requests(requests, http_response_status_code="500") == 1


def test_a_stream_is_no_request_that_was_answered() -> None:
    requests = RequestMetrics(Clock())
    stream = Streamed(200, (), lambda _: None)
    routes = requests.measure(Routes(http={("GET", "/sse"): lambda _: stream}))
    assert routes.http["GET", "/sse"](Request("GET", "/sse", "", (), b"", "")) is stream
    assert not count_requests(requests)


def test_formats_are_distinguished_in_the_time_that_evaluation_takes() -> None:
    requests, routes = observed_routes(Clock(step=2e-5))
    routes.unary[PATH](call(), b"")
    routes.json_unary[PATH](call(), b"")
    post(routes, 200)
    name = "flagstaff_evaluation_duration_seconds_bucket"
    found = {labels["protocol"]: v for labels, v in samples(requests, name, le="2.5e-05")}
    assert found == {"grpc": 1, "json": 1, "ofrep": 1}
    assert sum(value for _, value in samples(requests, name, le="1e-05")) == 0


def test_flagds_buckets_hold_all_that_ours_part_more_finely() -> None:
    requests, routes = observed_routes(Clock(step=2e-5))
    routes.unary[PATH](call(), b"")
    found = samples(requests, "http_server_request_duration_seconds_bucket")
    assert [labels["le"] for labels, _ in found] == [*(str(bound) for bound in COARSE), "+Inf"]
    assert {value for _, value in found} == {1}


def test_each_request_is_counted_at_once() -> None:
    requests, routes = observed_routes(Clock(step=1e-5))
    for number in range(1, 50):
        routes.unary[PATH](call(), b"")
        assert count_requests(requests, rpc_grpc_status_code="0") == number


def test_buckets_are_cumulative_and_end_with_infinity() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.5, 2.0, 2.0):
        histogram.add(value)
    assert histogram.buckets() == [("0.5", 1.0), ("1.0", 1.0), ("+Inf", 3.0)]
    assert list(SECONDS) == sorted(SECONDS)


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, "0"), (RpcError(Code.NOT_FOUND, "no"), "5"), (ValueError("a bug"), "13"), (GeneratorExit(), "1")],
)  # fmt: skip
def test_deferred_calls_are_counted_by_how_they_end(error: BaseException | None, code: str) -> None:
    def steps() -> Generator[None, None, bytes]:
        yield
        if error is not None:
            raise error
        return b"late"

    requests = RequestMetrics(lambda: 1.0)
    routes = requests.measure(Routes(unary={PATH: lambda *_: Deferred(steps())}))
    deferred = routes.unary[PATH](call(), b"")
    assert isinstance(deferred, Deferred)
    with contextlib.suppress(BaseException):
        deferred.finish(lambda: at_once(deferred.steps))
    seconds = next(iter(requests.families()))
    assert {each.labels["rpc_grpc_status_code"] for each in seconds.samples} == {code}
