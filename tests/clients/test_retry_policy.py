"""Errors of an evaluation reach clients that repeat calls, with the retry policy of flagd's providers
(https://flagd.dev/reference/specifications/providers/#grpc-retry-policy).
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc

from tests.clients.server import Server
from tests.worlds import evaluator as fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = {
    "maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "5s", "backoffMultiplier": 2.0,
    "retryableStatusCodes": ["UNKNOWN", "UNAVAILABLE"],
}  # fmt: skip
CONFIG = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": POLICY}]})


@pytest.fixture
def served() -> Iterator[Server]:
    server = Server(fakes.flag_set(*fakes.ALL))
    yield server
    server.close()


def status(port: int, key: str, deadline: float) -> Any:
    options = (("grpc.service_config", CONFIG), ("grpc.enable_retries", 1))
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        grpc.channel_ready_future(channel).result(20)
        with pytest.raises(grpc.RpcError) as caught:
            v1_grpc.ServiceStub(channel).ResolveBoolean(
                v1.ResolveBooleanRequest(flag_key=key), timeout=deadline
            )
    error: Any = caught.value
    return error.code()


def calls(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("http_server_request_duration_seconds_count{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counts)


@pytest.mark.parametrize("deadline", [0.5, 5])
@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("missing", grpc.StatusCode.NOT_FOUND),
        ("string", grpc.StatusCode.INVALID_ARGUMENT),
        ("broken", grpc.StatusCode.DATA_LOSS),
        ("gone-variant", grpc.StatusCode.UNKNOWN),
    ],
)
def test_an_error_is_answered_once_whatever_the_deadline(
    served: Server, key: str, code: grpc.StatusCode, deadline: float
) -> None:
    assert status(served.ports.grpc, key, deadline) is code
    assert calls(served.ports.management) == 1
