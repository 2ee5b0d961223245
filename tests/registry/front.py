"""What stands before a registry, or another server: it counts, and does what networks and bad servers do."""

from __future__ import annotations

import contextlib
import http.client
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    """Half of the body, and the connection ends."""


class Front(ThreadingHTTPServer):
    """Passes on to the server at `port`, unless `instead` has an answer."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.target = port
        self.asked: list[str] = []
        """`GET /v2/…`, each request."""
        self.sent = 0
        """Bytes of the bodies of all answers."""
        self.authorizations: list[str | None] = []
        self.instead: Callable[[str, Answer], Answer | None] = lambda asked, answer: None
        """(`GET /v2/…`, the server's answer) -> another one."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who goes away is no error of the front's."""


class _Exchange(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def _pass(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = f"{self.command} {self.path}"
        server.asked.append(asked)
        server.authorizations.append(self.headers.get("Authorization"))
        onward = http.client.HTTPConnection("127.0.0.1", server.target, timeout=60)
        with contextlib.closing(onward):
            onward.request(self.command, self.path, body, dict(self.headers.items()))
            got = onward.getresponse()
            answer = Answer(got.status, dict(got.getheaders()), got.read())
        answer = server.instead(asked, answer) or answer
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self.send_response(answer.status)
        skipped = {"content-length", "connection", "transfer-encoding", "date"}
        for name, value in answer.headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        length = (
            answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.body))
        )
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.server.sent += len(answer.body)
            self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)
        if answer.cut:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815 - http.server's names


@contextlib.contextmanager
def before(port: int) -> Iterator[Front]:
    front = Front(port)
    threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield front
    finally:
        front.shutdown()
        front.server_close()
