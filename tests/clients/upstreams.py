"""Where an evaluator's flags come from, on one port that is in turn a real server, nobody, or something
hostile.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import FLAGSTAFF
from tests.clients.server import until
from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator

HUGE = 200_000_000
_SYN_SENT = "02"
NOISE = bytes(range(256)) * 64


def replace(path: Path, content: str) -> None:
    """By rename, as programs that publish files do it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(content, encoding="utf-8")
    fresh.replace(path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


class Upstream(Protocol):
    """One kind of server of flags, as processes and impostors on its port."""

    port: int

    @property
    def source(self) -> dict[str, Any]:
        """The item of --sources that follows it."""

    def command(self, folder: Path) -> list[str]:
        """A real server of `folder`/flags.json."""

    def liar(self, answer: bytes) -> contextlib.AbstractContextManager[object]:
        """A server that speaks the protocol, and says this."""


class Http:
    """Python's own server of files."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def source(self) -> dict[str, Any]:
        uri = f"http://127.0.0.1:{self.port}/flags.json"
        return {"uri": uri, "provider": "http", "interval": 1, "timeoutS": 2}

    def command(self, folder: Path) -> list[str]:
        where = ["--bind", "127.0.0.1", "--directory", str(folder), str(self.port)]
        return [sys.executable, "-m", "http.server", *where]

    @contextlib.contextmanager
    def liar(self, answer: bytes) -> Iterator[None]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        with Server(("127.0.0.1", self.port), Handler) as server:
            yield from _serve(server)


class Grpc:
    """Another evaluator."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def source(self) -> dict[str, Any]:
        return {"uri": f"127.0.0.1:{self.port}", "provider": "grpc", "timeoutS": 2}

    def command(self, folder: Path) -> list[str]:
        ports = [f"--{name}port=0" for name in ("", "management-", "ofrep-")]
        words = ["--host", "127.0.0.1", *ports, "--sync-port", str(self.port)]
        return [FLAGSTAFF, "evaluator", "start", *words, "-f", f"file:{folder}/flags.json"]

    @contextlib.contextmanager
    def liar(self, answer: bytes) -> Iterator[None]:
        said = sync_pb2.SyncFlagsResponse(flag_configuration=answer.decode("latin-1"))
        message = said.SerializeToString()

        def sync(_: object, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield message
            # A client that has left gives its thread to the next.
            while context.is_active() and not gone.wait(0.05):
                pass

        gone = threading.Event()
        method = grpc.unary_stream_rpc_method_handler(sync)
        service = grpc.method_handlers_generic_handler("flagd.sync.v1.FlagSyncService", {"SyncFlags": method})
        unbounded = [("grpc.max_send_message_length", -1)]
        server = grpc.server(futures.ThreadPoolExecutor(8), options=unbounded)
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        try:
            yield
        finally:
            gone.set()
            server.stop(0).wait()


def _serve(server: socketserver.BaseServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()


class Process:
    """A real server of an upstream's kind, from when it listens."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        plain = {name: text for name, text in os.environ.items() if "FLAG" not in name}
        self.process = subprocess.Popen(
            [*DIES_WITH_US, *upstream.command(folder)],
            env=plain,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert until(lambda: listens(upstream.port))

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def nobody(_: Upstream) -> Iterator[None]:
    yield


@contextlib.contextmanager
def hung(upstream: Upstream) -> Iterator[None]:
    """Accepts, and never answers."""
    with socket.create_server(("127.0.0.1", upstream.port)):
        yield


@contextlib.contextmanager
def full(upstream: Upstream) -> Iterator[None]:
    """Does not even accept: one that it never looks at fills its backlog."""
    address = ("127.0.0.1", upstream.port)
    with socket.socket() as server:
        server.bind(address)
        server.listen(0)
        with socket.create_connection(address, timeout=5):
            yield


def is_awaited(port: int) -> bool:
    """Whether somebody waits for this port to accept, by proc(5)'s /proc/net/tcp and tcp6."""
    texts = [Path("/proc/net", table).read_text("ascii") for table in ("tcp", "tcp6")]
    rows = [line.split() for text in texts for line in text.splitlines()]
    end = f"0100007F:{port:04X}"
    return any(row[2].endswith(end) and row[3] == _SYN_SENT for row in rows)


@contextlib.contextmanager
def noisy(upstream: Upstream) -> Iterator[None]:
    """Answers with what is neither HTTP nor anything else."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(NOISE)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = allow_reuse_address = True

    with Server(("127.0.0.1", upstream.port), Handler) as server:
        yield from _serve(server)


def answer_with(answer: Callable[[], bytes]) -> Callable[[Upstream], Any]:
    return lambda upstream: upstream.liar(answer())


def fetch_flags(port: int) -> str:
    """What FetchAllFlags of an evaluator's sync port answers now."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
        answer = stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), timeout=20)
        return str(answer.flag_configuration)


@contextlib.contextmanager
def open_stream(port: int) -> Iterator[list[str]]:
    """The contents that a SyncFlags stream receives, as they come."""
    received: list[str] = []

    def read() -> None:
        with contextlib.suppress(grpc.RpcError):
            received.extend(message.flag_configuration for message in stream)

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
        stream: Any = stub.SyncFlags(sync_pb2.SyncFlagsRequest())
        reading = threading.Thread(target=read)
        reading.start()
        try:
            yield received
        finally:
            stream.cancel()
            reading.join()
