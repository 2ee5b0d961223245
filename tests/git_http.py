"""Git over smart HTTP for tests: `git http-backend` behind a small threaded server on loopback."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.repositories import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator


class GitServer(ThreadingHTTPServer):
    """Serves every repository below `root`; keeps what it was asked."""

    daemon_threads = True

    def __init__(self, root: Path, *, login: str = "", newest_protocol: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.root = root
        self.login = login
        """`name:password`, or empty where anybody may read."""
        self.newest_protocol = newest_protocol
        self.redirect_to = ""
        """A base URL that every request is sent on to."""
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self.command_lines: set[str] = set()
        """Of every process that ran while a request was answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


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
        server.authorizations.append(self.headers.get("Authorization"))
        server.command_lines |= set(_command_lines())
        if server.redirect_to:
            self.send_response(302)
            self.send_header("Location", server.redirect_to + self.path)
            self.end_headers()
        elif server.login and self.headers.get("Authorization") != _basic(server.login):
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
        self.wfile.write(content)


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


def _command_lines() -> Iterator[str]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield (process / "cmdline").read_text(errors="replace")


@contextlib.contextmanager
def git_server(root: Path, *, login: str = "", newest_protocol: bool = True) -> Iterator[GitServer]:
    """A running server, gone afterwards."""
    with GitServer(root, login=login, newest_protocol=newest_protocol) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
