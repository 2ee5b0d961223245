"""Certificates that are rotated under load, and a thousand clients that drop at once: the others notice
nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import ssl
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.test_upstream_faults import numbered_flags
from tests.clients.upstreams import replace
from tests.clients.watching import Stopwatch, open_watcher
from tests.unit.evaluator.http import certificates

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

pytestmark = pytest.mark.faults

CLIENTS = 1_000


def shown_certificate(port: int, folder: Path) -> bytes:
    """The certificate that a new connection is shown, once it has been verified."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


class Askers:
    """Stock clients that ask over TLS, on a new connection each time."""

    def __init__(self, port: int, authority: bytes) -> None:
        self.asked, self.errors = 0, list[str]()
        self._target, self._authority = f"localhost:{port}", authority
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def _run(self) -> None:
        request = evaluation_pb2.ResolveIntRequest(flag_key="banner")
        while not self._over.is_set():
            credentials = grpc.ssl_channel_credentials(self._authority)
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.secure_channel(self._target, credentials, options) as channel:
                stub = evaluation_pb2_grpc.ServiceStub(channel)
                try:
                    for _ in range(20):
                        if stub.ResolveInt(request, timeout=20).value != 1:
                            self.errors.append("another value")
                        self.asked += 1
                except grpc.RpcError as error:
                    self.errors.append(str(error))

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_certificates_are_rotated_under_load_and_no_call_fails(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    def rotate(name: str) -> bytes:
        leaf = certificates.issue(name)
        replace(tmp_path / "tls.key", certificates.key_of(leaf).decode())
        replace(tmp_path / "tls.crt", certificates.certificate_of(leaf).decode())
        return ssl.PEM_cert_to_DER_cert(certificates.certificate_of(leaf).decode())

    rotate("crowd-0")
    (tmp_path / "ca.pem").write_bytes(certificates.ca_of())
    replace(tmp_path / "flags.json", numbered_flags(1))
    words = ["-f", "file:flags.json", "-c", "tls.crt", "-k", "tls.key"]
    slowest = 0.0
    with evaluator(*words, cwd=tmp_path) as running:
        port = running.next_event("listening")["grpc"]
        running.next_event("flags served")
        with Askers(port, certificates.ca_of()) as askers:
            for number in range(1, 11):
                wanted, since = rotate(f"crowd-{number}"), Stopwatch()
                assert until(lambda: shown_certificate(port, tmp_path) == wanted)  # noqa: B023 - waited for
                slowest = max(slowest, since.seconds)
    record_property("recovery", f"certificate rotated: {slowest} s at most")
    assert (askers.errors, askers.asked > 100) == ([], True)


def hold(ports: dict[str, int], opened: Connection) -> None:
    """A thousand streams of stock clients, each on a connection of its own; then waits to be killed."""

    async def run() -> None:
        channels, streams = [], []
        for number in range(CLIENTS):
            by_sync = number % 2
            channel = grpc.aio.insecure_channel(
                f"127.0.0.1:{ports['sync' if by_sync else 'grpc']}", [("grpc.use_local_subchannel_pool", 1)]
            )
            channels.append(channel)
            flags: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
            events: Any = evaluation_pb2_grpc.ServiceStub(channel)
            streams.append(
                flags.SyncFlags(sync_pb2.SyncFlagsRequest())
                if by_sync
                else events.EventStream(evaluation_pb2.EventStreamRequest())
            )
        await asyncio.gather(*(stream.read() for stream in streams))
        opened.send(len(streams))
        await asyncio.Event().wait()

    asyncio.run(run())


def streams(port: int) -> float:
    """Open event and sync streams."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(r'^flagstaff_streams\{kind="\w+"\} (\S+)', text, re.MULTILINE)))


@pytest.mark.timeout(200)
def test_a_thousand_clients_that_drop_at_once_disturb_nobody_and_leave_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    replace(tmp_path / "flags.json", numbered_flags(1))
    receiving, sending = multiprocessing.get_context("spawn").Pipe()
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ports = running.next_event("listening")
        running.next_event("flags served")
        crowd = multiprocessing.get_context("spawn").Process(target=hold, args=(ports, sending))
        with open_watcher(ports["grpc"]) as seen:
            crowd.start()
            assert receiving.poll(120)
            assert receiving.recv() == CLIENTS
            assert streams(ports["management"]) == CLIENTS + 1
            crowd.kill()
            since = Stopwatch()
            replace(tmp_path / "flags.json", numbered_flags(2))
            assert seen.sees(2)
            assert until(lambda: streams(ports["management"]) == 1)
            record_property("recovery", f"1,000 clients dropped: {since.seconds} s")
            crowd.join()
        assert seen.seen == [1, 2]
