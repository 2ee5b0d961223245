"""What a context holds is somebody's: none of it is in the log, whoever asks what, also where it goes wrong,
and with --debug.
"""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc

from tests.clients.evaluator import evaluator
from tests.clients.test_evaluator import ready
from tests.clients.upstreams import replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERSON = "ada@example.com"
CONTEXT: dict[str, Any] = {"email": PERSON, PERSON: True, "list": [{"email": PERSON}]}
READS = {"if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "a", "b"]}
FLAGS: dict[str, Any] = {
    "targeted": {"targeting": READS},
    "no-variant": {"targeting": {"var": "email"}},
    "no-number": {"targeting": {"-": [{"var": "list"}, {"var": "email"}]}},
    "no-operator": {"targeting": {"nonsense": [{"var": "email"}]}},
}
DOCUMENT = {
    "flags": {
        key: {"state": "ENABLED", "variants": {"a": "1", "b": "2"}, "defaultVariant": "b", **more}
        for key, more in FLAGS.items()
    }
}
RESOLVE = "/flagd.evaluation.v2.Service/ResolveString"


def by_grpc(ports: dict[str, int], key: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
        request = v1.ResolveStringRequest(flag_key=key)
        request.context.update(CONTEXT)
        if key == "targeted":
            assert v1_grpc.ServiceStub(channel).ResolveString(request, timeout=20).value == "1"
            return
        with pytest.raises(grpc.RpcError):
            v1_grpc.ServiceStub(channel).ResolveString(request, timeout=20)


def bulk_by_grpc(ports: dict[str, int], _: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
        request = v1.ResolveAllRequest()
        request.context.update(CONTEXT)
        assert len(v1_grpc.ServiceStub(channel).ResolveAll(request, timeout=20).flags) == len(FLAGS)


def post(port: int, path: str, body: bytes) -> None:
    headers = {"content-type": "application/json", "x-email": PERSON}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("POST", path, body, headers)
        assert json.loads(connection.getresponse().read())


def question(key: str) -> bytes:
    """What is asked; of no key, one that is cut off amid the context."""
    text = json.dumps({"flagKey": key, "context": CONTEXT}).encode()
    return text if key in FLAGS else text[: text.rindex(PERSON.encode()) + len(PERSON)]


ASK: dict[str, Callable[[dict[str, int], str], None]] = {
    "gRPC": by_grpc,
    "gRPC bulk": bulk_by_grpc,
    "Connect": lambda ports, key: post(ports["grpc"], RESOLVE, question(key)),
    "OFREP": lambda ports, key: post(ports["ofrep"], f"/ofrep/v1/evaluate/flags/{key}", question(key)),
    "OFREP bulk": lambda ports, key: post(ports["ofrep"], "/ofrep/v1/evaluate/flags", question(key)),
    "track": lambda ports, key: post(
        ports["ofrep"], "/track", question(key).replace(b"flagKey", b"trackingEventName")
    ),
    "explain": lambda ports, key: post(ports["management"], "/explain", question(key)),
}  # fmt: skip


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_no_context_is_in_the_log(tmp_path: Path, ask: Callable[..., Any]) -> None:
    replace(tmp_path / "flags.json", json.dumps(DOCUMENT))
    words = ("-f", "file:flags.json", "--debug", "--context-from-header", "x-email=mail")
    with evaluator(*words, cwd=tmp_path) as running:
        ports = ready(running)
        for key in (*FLAGS, "cut-off"):
            ask(ports, key)
        running.stop()
    assert PERSON not in json.dumps(running.log)
