"""Each kind of source with a peer that a test drives: what is put there, taken away, or breaks."""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio
import obstore
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from evaluator.sync.source import SourceEvents, SourceFault

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator

    from evaluator.sync.source import SourceEvent, SyncSource

S3_KEY, S3_SECRET = "key-for-tests", "secret-for-tests"


class Peer(Protocol):
    """Where a source reads from."""

    @property
    def uri(self) -> str: ...

    async def put(self, content: bytes) -> None: ...

    async def put_huge(self) -> None:
        """200 MB, or just over the bound where the peer has to hold it."""

    async def remove(self) -> None: ...


class Ear:
    """Hears a source out, and calls again after a fault, without a pause."""

    def __init__(self, source: SyncSource) -> None:
        self._source = source
        self._deliveries = SourceEvents(source).events()

    async def next(self) -> SourceEvent:
        try:
            return await anext(self._deliveries)
        except SourceFault as fault:
            self._deliveries = SourceEvents(self._source).events()
            return fault

    async def until(self, *kind: type[Any]) -> Any:
        async with asyncio.timeout(20):
            received = await self.next()
            while not isinstance(received, kind):
                # A peer that is down is asked again at once.
                await asyncio.sleep(0)
                received = await self.next()
        return received

    async def close(self) -> None:
        await self._deliveries.aclose()


class FilePeer:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "flags.json"
        self.uri = f"file:{self._path}"

    async def put(self, content: bytes) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(self._path)

    async def put_huge(self) -> None:
        with self._path.open("wb") as file:
            file.truncate(200_000_000)

    async def remove(self) -> None:
        self._path.unlink()


class HttpPeer:
    """Answers with what was put, its ETag, and 304 to a client that has it."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.huge = False
        self.requests: list[dict[str, str]] = []
        self.answer: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
        """Answers instead, where it returns True."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.uri = f"http://127.0.0.1:{self.port}/flags.json"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    async def put(self, content: bytes) -> None:
        self.content, self.huge = content, False

    async def put_huge(self) -> None:
        self.huge = True

    async def remove(self) -> None:
        self.content = None

    def encrypt(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.uri = self.uri.replace("http:", "https:")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                peer.requests.append({key.lower(): value for key, value in self.headers.items()})
                with contextlib.suppress(OSError):
                    if not peer.answer(self):
                        peer._answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
                pass

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if self.huge:
            stream(request, 200_000_000)
        elif self.content is None:
            respond(request, 404, b"")
        else:
            etag = f'"{hash(self.content):x}"'
            status = 304 if request.headers.get("If-None-Match") == etag else 200
            respond(request, status, b"" if status == 304 else self.content, ETag=etag)


def respond(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def stream(request: BaseHTTPRequestHandler, size: int) -> None:
    """A body whose length is not sent before it."""
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    chunk = b"x" * 1_000_000
    for _ in range(size // len(chunk)):
        request.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    request.wfile.write(b"0\r\n\r\n")


class GrpcPeer:
    """The published service; sends what is put to every stream."""

    def __init__(self) -> None:
        self.content: str | None = None
        self.context: dict[str, Any] = {}
        self.asked: list[tuple[sync_pb2.SyncFlagsRequest, dict[str, str]]] = []
        self.port = 0
        self.absence: grpc.StatusCode | None = None
        """What FetchAllFlags is answered; None: it is not there."""
        self.ending: grpc.StatusCode | None = None
        """How streams end after a change."""
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(
        self,
        credentials: grpc.ServerCredentials | None = None,
        *,
        compression: grpc.Compression | None = None,
    ) -> None:
        self._server = grpc.aio.server(
            options=[("grpc.max_send_message_length", -1)], compression=compression
        )
        method = grpc.unary_stream_rpc_method_handler(
            self._sync,
            request_deserializer=sync_pb2.SyncFlagsRequest.FromString,
            response_serializer=sync_pb2.SyncFlagsResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(
            "flagd.sync.v1.FlagSyncService", {"SyncFlags": method} | self._fetch_all()
        )
        self._server.add_generic_rpc_handlers((service,))
        address = f"127.0.0.1:{self.port}"
        self.port = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        await self._server.start()

    async def put(self, content: bytes) -> None:
        if self._server is None:
            await self.start()
        self.content = content.decode()
        self._notify()

    async def put_huge(self) -> None:
        self.content = "x" * (64 * 1024 * 1024 + 1)
        self._notify()

    async def remove(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
        self._server = None

    async def _sync(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append((request, {str(k): str(v) for k, v in context.invocation_metadata()}))
        await context.send_initial_metadata(())
        while True:
            changed = self._changed
            if self.content is not None:
                message = sync_pb2.SyncFlagsResponse(flag_configuration=self.content)
                if self.context:
                    message.sync_context.update(self.context)
                yield message
            await changed.wait()
            if self.ending is not None:
                await context.abort(self.ending, "ended")

    async def end(self, code: grpc.StatusCode) -> None:
        """End all streams with this."""
        self.ending = code
        self._notify()

    def _fetch_all(self) -> dict[str, Any]:
        async def fetch(_: object, context: Any) -> None:
            assert self.absence is not None
            await context.abort(self.absence, "no flags")

        handler = grpc.unary_unary_rpc_method_handler(fetch)
        return {} if self.absence is None else {"FetchAllFlags": handler}

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class S3Peer:
    """A bucket of `rclone serve s3`, which checks signatures."""

    def __init__(self, port: int, folder: Path) -> None:
        self._folder = folder / "bucket"
        self._folder.mkdir(exist_ok=True)
        self.uri = f"s3://bucket/flags.json?endpoint=http://127.0.0.1:{port}&region=us-east-1"
        self._store = obstore.store.S3Store(
            "bucket",
            config={
                "endpoint": f"http://127.0.0.1:{port}",
                "access_key_id": S3_KEY,
                "secret_access_key": S3_SECRET,
            },
            client_options={"allow_http": True},
        )

    async def put(self, content: bytes) -> None:
        await obstore.put_async(self._store, "flags.json", content)

    async def put_huge(self) -> None:
        await self.remove()
        with (self._folder / "flags.json").open("wb") as file:
            file.truncate(200_000_000)

    async def remove(self) -> None:
        await obstore.delete_async(self._store, "flags.json")


@contextlib.contextmanager
def s3_server(folder: Path, key: str = S3_KEY, secret: str = S3_SECRET) -> Iterator[int]:
    """The port of a server over `folder`, whose folders are buckets."""
    program = Path(sys.executable).with_name("rclone")
    command: list[str | Path] = [
        program, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{key},{secret}",
        "--dir-cache-time", "0", "--config", "", folder,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        port = next(
            int(line.split("127.0.0.1:")[1].split("/")[0])
            for line in child.stderr
            if "http://127.0.0.1:" in line
        )
        drain = threading.Thread(target=child.stderr.read)
        drain.start()
        try:
            yield port
        finally:
            child.kill()
            drain.join()


@contextlib.contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that does `answer` with each connection, and then waits for its end."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                answer(self.request)
                while self.request.recv(65536):
                    pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
