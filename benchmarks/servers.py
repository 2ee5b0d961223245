"""The servers that the wire benchmarks load, each alone on one CPU: ours, and a real flagd where there is
one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trustme

from benchmarks.loads import SERVER_CPU
from benchmarks.serving import document

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = 100
ROOT = Path(__file__).parents[1]
COMPILED = ROOT / ".native/bin/python"
"""Of the environment that `make native` makes."""
PINNED = ("taskset", "-c", SERVER_CPU)


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs."""

    pid: int
    grpc: str
    """The origin of the evaluation port's URLs."""
    ofrep: str
    management: str
    """The same of the management port's."""


def certificate(folder: Path) -> tuple[str, str]:
    """Paths of a certificate for loopback and of its key, of an authority that no client checks."""
    made = trustme.CA().issue_cert("127.0.0.1")
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(paths[0])
    made.private_key_pem.write_to_path(paths[1])
    return paths


@contextlib.contextmanager
def ours(
    tls: tuple[str, str] | None = None, *, checkout: Path | None = None, compiled: bool = False
) -> Iterator[Server]:
    """Our evaluator, or that of another checkout, which has an environment of its own in `.venv`; `compiled`:
    as `make native` built it.
    """
    python: str | Path = sys.executable if checkout is None else checkout / ".venv/bin/python"
    environment = dict(os.environ)
    if compiled:
        # The working directory has the modules, too, and they are not compiled there.
        python, environment["PYTHONSAFEPATH"] = compiled_python(checkout or ROOT), "1"
    process = subprocess.Popen(
        [*PINNED, python, "-m", "benchmarks.serving", str(FLAGS), *(tls or ())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=checkout,
        env=environment,
    )
    ports = json.loads(process.stdout.readline() if process.stdout else "{}")
    try:
        yield _server(process.pid, ports["grpc"], ports["ofrep"], ports["management"], tls)
    finally:
        process.communicate(timeout=20)


def compiled_python(checkout: Path) -> Path:
    """COMPILED of another checkout, which may not have been made."""
    return checkout / COMPILED.relative_to(ROOT)


def flagd_binary() -> str | None:
    """Where a real flagd is, if FLAGD_BINARY or PATH says so; if not, that is said."""
    binary = os.environ.get("FLAGD_BINARY") or shutil.which("flagd")
    if binary is None:
        print("no flagd: neither FLAGD_BINARY nor PATH names one, so there is nothing to compare with")
    return binary


@contextlib.contextmanager
def flagd(binary: str, tls: tuple[str, str] | None = None) -> Iterator[Server]:
    """A real flagd."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flags.json"
        file.write_bytes(document(FLAGS))
        grpc, ofrep, management, sync = free_ports(4)
        secured = ["-c", tls[0], "-k", tls[1]] if tls else []
        process = subprocess.Popen(
            [*PINNED, binary, "start", "-f", f"file:{file}", "-p", str(grpc), "-r", str(ofrep),
             "-m", str(management), "-g", str(sync), *secured],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_ready(management)
            yield _server(process.pid, grpc, ofrep, management, tls)
        finally:
            process.terminate()
            process.wait(20)


def _server(pid: int, grpc: int, ofrep: int, management: int, tls: object) -> Server:
    scheme = "https" if tls else "http"
    plain = f"http://127.0.0.1:{ofrep}", f"http://127.0.0.1:{management}"
    return Server(pid, f"{scheme}://127.0.0.1:{grpc}", *plain)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_ready(port: int) -> None:
    """Until /readyz says 200; at most ten seconds."""
    for _ in range(100):
        if _ready(port):
            return
        time.sleep(0.1)
    raise SystemExit("flagd did not get ready")


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
