"""A server on loopback that receives alerts, and may refuse them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.cluster.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Received:
    """One request that was answered with 200."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    moment: float = field(default_factory=time.perf_counter)
    """When it was answered, on time.perf_counter's clock."""

    @property
    def event(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


class Listener:
    """Takes what is posted, in its order."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.refused: list[Received] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.answering = threading.Event()
        """While it is clear, nobody is answered."""
        self.answering.set()
        self.port = 0
        self.lists: dict[str, Any] = {}
        """By path, without its query: what it answers in place of what was posted."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def reasons(self) -> list[str]:
        """Of all Events that were taken."""
        return [each.event["reason"] for each in self.received]

    def wait(self, wanted: Callable[[Any], bool]) -> Received:
        """The first request whose Event is wanted, once it is there."""

        def find_event() -> Received | None:
            return next((each for each in self.received if wanted(each.event)), None)

        within(find_event, lambda: repr([each.event for each in self.received])[-3000:])
        received = find_event()
        assert received is not None
        return received


@contextlib.contextmanager
def run_listener() -> Iterator[Listener]:
    """A listener for as long as the block lasts."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): text for name, text in self.headers.items()}
            listener.answering.wait()
            status = listener.status
            kept = listener.received if status == 200 else listener.refused
            kept.append(Received(self.path, headers, body))
            self.send_response(status)
            for name, text in listener.headers.items():
                self.send_header(name, text)
            self.send_header("content-length", "2")
            self.end_headers()
            with contextlib.suppress(OSError):
                # A client that waited too long for the answer is gone.
                self.wfile.write(b"ok")

        def do_PATCH(self) -> None:
            self.do_POST()

        def do_GET(self) -> None:
            """What was posted, as comments, where there is no other list."""
            posted = [{"id": number, **each.event} for number, each in enumerate(listener.received)]
            body = json.dumps(listener.lists.get(self.path.partition("?")[0], posted)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    listener.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield listener
    finally:
        listener.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
