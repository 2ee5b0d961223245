"""Git over smart HTTP for tests: `git http-backend` behind a small threaded server on loopback, and a proxy
before it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import selectors
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tests.repositories import ENVIRONMENT

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


class GitServer(ThreadingHTTPServer):
    """Serves every repository below `root`; keeps what it was asked."""

    daemon_threads = True

    def __init__(
        self,
        root: Path,
        *,
        login: str = "",
        bearer: str = "",
        tls: ssl.SSLContext | None = None,
        newest_protocol: bool = True,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.root = root
        self.login = login
        """`name:password`, or empty where anybody may read."""
        self.bearer = bearer
        """A token in place of a login."""
        self.tls = tls
        self.newest_protocol = newest_protocol
        self.redirect_to = ""
        """A base URL that every request is sent on to."""
        self.mood = ""
        """`hang` while nobody is answered, `refuse` for 503, `lie` for a commit that is not there."""
        self.page: str | None = None
        """The web page that answers each request."""
        self.paths: list[str] = []
        self.fetches: list[str] = []
        """Of `paths`, those that asked for objects and not for references."""
        self.authorizations: list[str | None] = []
        self.observes_processes = True
        """Whether `command_lines` are kept, which costs some milliseconds a request."""
        self.command_lines: set[str] = set()
        """Of every process that ran while a request was answered."""

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server_port}"

    @property
    def wanted(self) -> str:
        """The authorization that lets in; empty: none is needed."""
        if self.bearer:
            return f"Bearer {self.bearer}"
        return _basic(self.login) if self.login else ""

    def get_request(self) -> tuple[socket.socket, object]:
        """Greets in the thread that answers, not in the one that accepts."""
        accepted, peer = super().get_request()
        if self.tls is not None:
            accepted = self.tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        return accepted, peer

    def shutdown_request(self, request: Any) -> None:
        """A TLS connection that just stops is a cut one, to who reads until the end."""
        if self.tls is not None:
            request.settimeout(5)
            with contextlib.suppress(OSError):
                request.unwrap()
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Who is not believed, or goes away, is no error of the server's."""


class _Exchange(BaseHTTPRequestHandler):
    server: GitServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def _answer(self, body: bytes) -> None:
        server = self.server
        server.paths.append(self.path)
        if b"command=fetch" in body or (b"want " in body and b"command=" not in body):
            server.fetches.append(self.path)
        server.authorizations.append(self.headers.get("Authorization"))
        if server.observes_processes:
            server.command_lines |= set(command_lines())
        while server.mood == "hang":
            time.sleep(0.05)
        if server.mood == "refuse":
            self.send_error(503)
        elif server.page is not None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(server.page.encode())
        elif server.redirect_to:
            self.send_response(302)
            self.send_header("Location", server.redirect_to + self.path)
            self.end_headers()
        elif server.wanted and self.headers.get("Authorization") != server.wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
            self.end_headers()
        else:
            self._backend(body)

    def _backend(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        environment = {
            **ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        if self.server.newest_protocol:
            environment["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        answer = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        ).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(_false(content) if self.server.mood == "lie" else content)


def _false(content: bytes) -> bytes:
    """The same with other commits in a list of references; anything else is cut short."""
    turned = re.sub(rb"[0-9a-f]{40}(?= (?:HEAD|refs/))", lambda found: found[0][::-1], content)
    return turned if turned != content else content[: len(content) // 2]


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


def command_lines() -> Iterator[str]:
    """Of every process but this one."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield (process / "cmdline").read_text(errors="replace")


@contextlib.contextmanager
def git_server(
    root: Path,
    *,
    login: str = "",
    bearer: str = "",
    tls: ssl.SSLContext | None = None,
    newest_protocol: bool = True,
) -> Iterator[GitServer]:
    """A running server, gone afterwards."""
    server = GitServer(root, login=login, bearer=bearer, tls=tls, newest_protocol=newest_protocol)
    with _run(server):
        yield server


class Proxy(ThreadingHTTPServer):
    """Tunnels for clients that know the login; keeps their targets."""

    daemon_threads = True

    def __init__(self, login: str) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.login = login
        self.targets: list[str] = []
        self.admitted = 0
        """Requests that were passed on."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Tunnel(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_CONNECT(self) -> None:
        if self._admits():
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as there:
                self.send_response(200)
                self.end_headers()
                splice(self.connection, there)
            self.close_connection = True

    def do_GET(self) -> None:
        self._forward()

    def do_HEAD(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def _forward(self) -> None:
        if not self._admits():
            return
        self.close_connection = True
        parts = urlsplit(self.path)
        headers = {
            name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")
        }
        head = [f"{self.command} {parts.path}?{parts.query} HTTP/1.0"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with socket.create_connection((parts.hostname or "", parts.port or 80)) as there:
            there.sendall(("\r\n".join(head) + "\r\n\r\n").encode() + body)
            while piece := there.recv(65536):
                self.wfile.write(piece)

    def _admits(self) -> bool:
        self.server.targets.append(self.path)
        if self.headers.get("Proxy-Authorization") == _basic(self.server.login):
            self.server.admitted += 1
            return True
        self.send_response(407)
        self.send_header("Proxy-Authenticate", 'Basic realm="tests"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False


def splice(one: socket.socket, other: socket.socket) -> None:
    """Pass on what either says, until one of them ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for ready, _ in selector.select():
                piece = cast("socket.socket", ready.fileobj).recv(65536)
                if not piece:
                    return
                ready.data.sendall(piece)


@contextlib.contextmanager
def http_proxy(login: str) -> Iterator[Proxy]:
    """A running proxy, gone afterwards."""
    proxy = Proxy(login)
    with _run(proxy):
        yield proxy


@contextlib.contextmanager
def _run(server: ThreadingHTTPServer) -> Iterator[None]:
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
