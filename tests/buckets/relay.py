"""What stands before an object store: it counts, fails and is slow."""

from __future__ import annotations

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator, Mapping

R = TypeVar("R", bound="Relay")


class Relay(ThreadingHTTPServer):
    """One bucket of the server at `port`."""

    daemon_threads = True
    request_queue_size = 64
    scheme: ClassVar[str]
    """Of the bucket's URL, on a command line."""
    provider: ClassVar[str]
    """As `spec.bucket` has it."""
    login: Mapping[str, str]
    """As a Secret has it."""

    def __init__(self, bucket: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.bucket = bucket
        self.port = port
        self.tls = tls
        self._away = False
        self.page = 1000
        """Objects of one answer."""
        self.asked: list[str] = []
        """`GET /flags/key`, in order."""
        self.instead: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
        """Answers in place of the server, where it returns True."""

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server_port}"

    @property
    def endpoint(self) -> str:
        """As `spec.bucket` has it."""
        return self.url

    @property
    def shown(self) -> str:
        """The bucket, as messages have it."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def listings(self) -> int:
        """How often keys were asked for."""
        return sum(self.is_listing(each) for each in self.asked)

    @property
    def downloads(self) -> int:
        """How often an object was asked for."""
        return len(self.asked) - self.listings

    @property
    def index(self) -> str:
        """What the revision is the digest of."""
        return "".join(f"{key} {etag}\n" for key, etag in sorted(self.etags.items()))

    @property
    def etags(self) -> Mapping[str, str]:
        """By key."""
        raise NotImplementedError

    def write(self, key: str, text: str) -> None:
        """One object; a reader sees the old or the new one."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        raise NotImplementedError

    def present(self, there: bool) -> None:
        """Whether there is such a bucket, as answered to a client with a token, or without one."""
        self._away = not there

    def put(self, **objects: str) -> None:
        """Objects by their keys, in which `__` is a dot and `___` a slash."""
        for name, text in objects.items():
            self.write(name.replace("___", "/").replace("__", "."), text)

    def is_listing(self, asked: str) -> bool:
        return "list-type=2" in asked

    def onward(self, path: str) -> str:
        """What the server is asked for."""
        return path.replace(f"/{self.bucket}", "/not-there", 1) if self._away else path

    def rewrite_answer(self, path: str, status: int, body: bytes) -> tuple[int, bytes]:
        """What the server would say, were it the vendor's."""
        del path
        return status, body

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
    server: Relay

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_GET(self) -> None:
        relay = self.server
        relay.asked.append(f"{self.command} {self.path}")
        if relay.instead(self):
            return
        upstream = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=60)
        with contextlib.closing(upstream):
            upstream.putrequest(
                self.command, relay.onward(self.path), skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            status, body = relay.rewrite_answer(self.path, answer.status, answer.read())
            respond(self, status, body, **dict(answer.getheaders()))


@contextlib.contextmanager
def serve_relay(relay: R) -> Iterator[R]:
    """The relay, at work."""
    with relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()


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
