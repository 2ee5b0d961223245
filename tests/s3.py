"""S3 for tests: a real server that checks signatures, and in front of it a relay that counts, fails and is slow."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.sync_sources import S3_KEY, S3_SECRET, s3_server

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUCKET = "flags"
LOGIN = {"accesskey": S3_KEY, "secretkey": S3_SECRET}
"""As a Secret has it."""
VARIABLES = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
"""As the environment has it."""


class S3(ThreadingHTTPServer):
    """One bucket, reached by a relay; a signature covers the relay's address, which the server is told."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.folder = folder
        """Whose files are the bucket's objects."""
        self.port = port
        self.tls = tls
        self.asked: list[str] = []
        """`GET /flags/key`, in order."""
        self.instead: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
        """Answers in place of the server, where it returns True."""

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server_port}"

    @property
    def listings(self) -> int:
        """How often keys were asked for."""
        return sum("list-type=2" in each for each in self.asked)

    @property
    def downloads(self) -> int:
        """How often an object was asked for."""
        return len(self.asked) - self.listings

    def put(self, **objects: str) -> None:
        """Objects by their keys, in which `__` is a dot and `___` a slash."""
        for name, text in objects.items():
            self.write(name.replace("___", "/").replace("__", "."), text)

    def write(self, key: str, text: str) -> None:
        """One object; whoever reads sees the old or the new one."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.folder.parent / "writing"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)

    def remove(self, key: str) -> None:
        (self.folder / key).unlink()

    def get_request(self) -> tuple[socket.socket, object]:
        """Greets in the thread that answers, not in the one that accepts."""
        accepted, peer = super().get_request()
        if self.tls is not None:
            accepted = self.tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        return accepted, peer

    def handle_error(self, request: object, client_address: object) -> None:
        """Who goes away, or does not believe us, is no error of the server's."""


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.server.instead(self):
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        with contextlib.closing(upstream):
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            respond(self, answer.status, answer.read(), **dict(answer.getheaders()))


def respond(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    """A whole answer."""
    request.send_response_only(status)
    kept = {
        name: value
        for name, value in headers.items()
        if name.lower() in {"etag", "last-modified", "content-type"}
    }
    for name, value in {**kept, "Content-Length": str(len(body))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


def refuse(status: int, code: str, message: str = "") -> Callable[[BaseHTTPRequestHandler], bool]:
    """Answers everything with an error in S3's form."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def answer(request: BaseHTTPRequestHandler) -> bool:
        respond(request, status, body)
        return True

    return answer


def listed(*objects: tuple[str, int], etag: str = "e") -> Callable[[BaseHTTPRequestHandler], bool]:
    """Answers listings with these keys and sizes: some are no names of files, which no server over a disk has."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"{etag}"</ETag><Size>{size}</Size></Contents>'
        for key, size in objects
    )
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def answer(request: BaseHTTPRequestHandler) -> bool:
        if "list-type=2" not in request.path:
            return False
        respond(request, 200, body)
        return True

    return answer


@contextlib.contextmanager
def s3(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[S3]:
    """An empty bucket, gone afterwards."""
    root = folder / "s3"
    (root / BUCKET).mkdir(parents=True)
    with s3_server(root) as port, S3(root / BUCKET, port, tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    shutil.rmtree(root)


def manifest(server: S3, **bucket: Any) -> dict[str, Any]:
    """`spec.bucket` of a server."""
    found = {"bucketName": BUCKET, "endpoint": server.url, "insecure": server.tls is None}
    return {**found, "secretRef": {"name": "bucket"}, **bucket}
