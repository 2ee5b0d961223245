"""Our evaluator and a server of flagd.sync.v1 that is not ours: the published stubs on grpcio's
own server.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.asking import served_value
from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.upstreams import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Plain(sync_pb2_grpc.FlagSyncServiceServicer):
    """Sends the newest document to every subscriber; like flagd-proxy it takes the selector from the request,
    and has no metadata.
    """

    def __init__(self) -> None:
        self.document = ""
        self.selectors: set[str] = set()
        self._changed = threading.Condition()
        self._stopped = False

    def put(self, value: str) -> None:
        """The flag `banner` is this from here on."""
        flag = {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"}
        with self._changed:
            self.document = json.dumps({"flags": {"banner": flag}})
            self._changed.notify_all()

    def end(self) -> None:
        """Streams end, as with a server that goes."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def SyncFlags(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - the service's own name
        self.selectors.add(request.selector)
        sent = ""
        while (document := self._after(sent)) is not None:
            sent = document
            yield sync_pb2.SyncFlagsResponse(flag_configuration=sent)

    def FetchAllFlags(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's own name
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "as with many")

    def GetMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's own name
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "as with flagd-proxy")

    def _after(self, sent: str) -> str | None:
        """The next document; None at the end."""
        with self._changed:
            while self.document == sent and not self._stopped:
                self._changed.wait()
            return None if self._stopped else self.document


@contextlib.contextmanager
def run_server(port: int, service: Plain) -> Iterator[None]:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    sync_pb2_grpc.add_FlagSyncServiceServicer_to_server(service, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield
    finally:
        service.end()
        server.stop(0).wait()


def state(port: int) -> str:
    """What /readyz says of the one source, ready or not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as answer:
            return str(json.load(answer)["sources"][0]["state"])
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["sources"][0]["state"])


@pytest.fixture
def port() -> int:
    return free_port()


def source(port: int) -> str:
    item = {"uri": f"127.0.0.1:{port}", "provider": "grpc", "selector": "a/b", "timeoutS": 1}
    return json.dumps([item])


def test_a_plain_server_is_followed_through_changes_and_a_restart(port: int, tmp_path: Path) -> None:
    first, second = Plain(), Plain()
    first.put("one")
    with evaluator("--sources", source(port), cwd=tmp_path) as running:
        ports = running.next_event("listening")
        with run_server(port, first):
            assert until(lambda: state(ports["management"]) == "current")
            first.put("two")
            assert until(lambda: served_value(ports["ofrep"]) == "two")
        assert until(lambda: state(ports["management"]) == "down")
        assert served_value(ports["ofrep"]) == "two"
        second.put("three")
        with run_server(port, second):
            assert until(lambda: served_value(ports["ofrep"]) == "three")
    assert first.selectors == {"a/b"}


def test_a_plain_server_that_has_nothing_yet_is_down_until_it_has(port: int, tmp_path: Path) -> None:
    service = Plain()
    with run_server(port, service), evaluator("--sources", source(port), cwd=tmp_path) as running:
        ports = running.next_event("listening")
        running.next_event("stale: Timeout")
        assert state(ports["management"]) == "down"
        service.put("one")
        running.next_event("flags served")
        assert served_value(ports["ofrep"]) == "one"
