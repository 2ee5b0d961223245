"""What asks a server in the wire benchmarks: h2load and wrk, held on another CPU than the server, which they
can outrun.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from google.protobuf.struct_pb2 import Struct
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2

from benchmarks.results import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REQUESTS, SECONDS = 40_000, 5
UNIQUE = 20_000
SERVER_CPU, CLIENT_CPU = "0", "1"
GRPC = {"content-type": "application/grpc", "te": "trailers"}
JSON = {"content-type": "application/json"}
CONTEXT: dict[str, str | bool | float] = {
    "targetingKey": "user-1",
    "tier": "gold",
    "email": "a@example.com",
    "age": 7,
    "beta": True,
}
TICKS = os.sysconf("SC_CLK_TCK")

Figures = tuple[int, float, float]
"""Requests, p50 and p99 in microseconds."""


def need(*tools: str) -> None:
    """End where a tool is missing."""
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise SystemExit(f"needs {', '.join(missing)} (Debian: nghttp2-client, wrk, util-linux)")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def family(pid: int) -> list[int]:
    """A process and its descendants that are there now."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found


def family_cpu_seconds(pid: int) -> float:
    """User and system time so far of a process, of its descendants, and of those that ended and were waited
    for.
    """
    ticks = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            said = Path(f"/proc/{each}/stat").read_text(encoding="utf-8", errors="replace")
            ticks += sum(map(int, said.rpartition(")")[2].split()[11:15]))
    return ticks / TICKS


def waited_seconds(pid: int) -> float:
    """For how long the first thread of a process was ready to run and had no processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def context(number: int | None = None) -> dict[str, str | bool | float]:
    """CONTEXT, with a user of its own for each number."""
    if number is None:
        return CONTEXT
    return CONTEXT | {"targetingKey": f"user-{number}", "email": f"a{number}@example.com", "age": number % 99}


def tracing_headers(number: int | None) -> dict[str, str]:
    """What differs from call to call: W3C's trace context and a request id."""
    digits = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
    return {
        "traceparent": f"00-{digits}-{digits[7:23]}-01",
        "x-request-id": f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}",
    }


def grpc_body(flag: str, number: int | None = None) -> bytes:
    """A framed Resolve request; they all have the same fields."""
    given = Struct()
    given.update(context(number))
    message = evaluation_pb2.ResolveBooleanRequest(flag_key=flag, context=given).SerializeToString()
    return struct.pack(">BI", 0, len(message)) + message


def connect_body(flag: str, number: int | None = None) -> bytes:
    """The same in JSON."""
    return json.dumps({"flagKey": flag, "context": context(number)}).encode()


def ofrep_body(number: int | None = None) -> bytes:
    """The same for OFREP, whose URL names the flag."""
    return json.dumps({"context": context(number)}).encode()


def h2load(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    scratch: Path,
    *,
    paced: tuple[int, int] | None = None,
    least: int = 0,
) -> Figures:
    """All of REQUESTS over 8 connections of 4 streams, as fast as it goes; `paced`: as many a second, and for
    how many seconds, instead; `least`: bytes of the smallest right answer.
    """
    log, sent = scratch / "log", scratch / "body"
    sent.write_bytes(body)
    wanted = paced[0] * paced[1] if paced else REQUESTS
    pace = [f"--rps={paced[0] // 8}"] if paced else []
    done = subprocess.run(
        ["taskset", "-c", CLIENT_CPU, "h2load", *pace, "-n", str(wanted), "-c", "8", "-m", "4",
         "-d", str(sent), "--log-file", str(log),
         *(word for name, value in headers.items() for word in ("-H", f"{name}: {value}")), url],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    succeeded = re.search(r"(\d+) succeeded", done.stdout)
    if succeeded is None or int(succeeded[1]) != wanted:
        raise SystemExit(f"h2load: not every request succeeded:\n{done.stdout}")
    data = re.search(r"\((\d+)\) data", done.stdout)
    # An error of gRPC's succeeds, too, over HTTP.
    if data is None or int(data[1]) < least * wanted:
        raise SystemExit(f"h2load: answers are missing:\n{done.stdout}")
    times = [int(line.split("\t")[2]) for line in log.read_text(encoding="ascii").splitlines()]
    log.unlink()
    return wanted, percentile(times, 0.5), percentile(times, 0.99)


def callers(origin: str, path: str, content_type: str, flag: str, kind: str) -> Figures:
    """What `benchmarks.callers` measures."""
    command = [sys.executable, "-m", "benchmarks.callers", origin, path, content_type, flag, kind]
    done = subprocess.run(["taskset", "-c", CLIENT_CPU, *command], capture_output=True, text=True, check=True)
    requests, p50, p99 = json.loads(done.stdout)
    return requests, p50, p99


def wrk(url: str, make: Callable[[int | None], bytes], scratch: Path, *, varied: bool = False) -> Figures:
    """POST `make(number)` over 32 connections of HTTP/1.1 for SECONDS; `varied`: each with headers and a
    context of its own, until UNIQUE were sent, then again from the first.
    """
    script, sent = scratch / "load.lua", scratch / "requests.lua"
    numbers: list[int | None] = [*range(UNIQUE)] if varied else [None]
    sent.write_text("return {\n" + "".join(_wrk_request(url, make(n), n) for n in numbers) + "}\n", "ascii")
    script.write_text(
        f"local all, at = dofile('{sent}'), 0\n"
        "request=function() at = at % #all + 1; return all[at] end\n"
        "done=function(s,l,r) io.write(string.format('RESULT %d %d %d %d\\n', s.requests,"
        " s.errors.status+s.errors.read+s.errors.timeout+s.errors.connect,"
        " l:percentile(50), l:percentile(99))) end\n",
        encoding="ascii",
    )
    done = subprocess.run(
        ["taskset", "-c", CLIENT_CPU, "wrk", "-t1", "-c32", f"-d{SECONDS}s", "-s", str(script), url],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+)", done.stdout)
    if found is None or int(found[2]):
        raise SystemExit(f"wrk: not every request succeeded:\n{done.stdout}")
    return int(found[1]), int(found[3]), int(found[4])


def _wrk_request(url: str, body: bytes, number: int | None) -> str:
    """One request as a string of Lua."""
    parts = urlsplit(url)
    fields = {"host": parts.netloc, "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in (fields | tracing_headers(number)).items()]
    text = "\r\n".join((f"POST {parts.path} HTTP/1.1", *lines, "", body.decode()))
    return json.dumps(text) + ",\n"
