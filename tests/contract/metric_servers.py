"""Metric servers: Debian's Prometheus over a real exporter, and one that answers as Datadog's API and as any
JSON API do.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, start_http_server

from tests.cluster.patience import within
from tests.cluster.plane import free_ports
from tests.cluster.prometheus import folder, run_prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

LOGIN: Final = ("ada", "correct horse")
# Made by bcrypt of that password; cheap, since it protects nothing.
_PROOF: Final = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"
EVENTS: Final = {("candidate", "good"): 30, ("candidate", "bad"): 10, ("baseline", "good"): 300}
QUERIES: Final = {
    "value": 'sum(events_total{arm="{{ arm }}",event="bad"}) / sum(events_total{arm="{{ arm }}"})',
    "scalar": 'scalar(sum(events_total{event="bad"})) / 40',
    "signs": 'vector(0.125) + vector(0.125 % 1) + 0 * sum(events_total{event=~"b.+|(a&=c#)"})',
    "samples": 'sum(events_total{arm="{{ arm }}"})',
    "nothing": 'absent_total{flag="{{ flag }}"}',
    "NaN": "vector(0) / vector(0)",
    "infinite": "vector(1) / vector(0)",
    "minus infinite": "vector(-1) / vector(0)",
    "several": "events_total",
    "matrix": "events_total[{{ interval }}]",
    "text": '"text"',
    "refused": "sum(",
}
"""Of Prometheus, by what comes of them."""


@contextlib.contextmanager
def prometheus(home: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes an exporter with EVENTS."""
    registry = CollectorRegistry()
    events = Counter("events", "What happened.", ("arm", "event"), registry=registry)
    for labels, count in EVENTS.items():
        events.labels(*labels).inc(count)
    (exporter_port,) = free_ports(1)
    server, thread = start_http_server(exporter_port, "127.0.0.1", registry)
    try:
        rules = home / "rules.yml"
        rules.write_text("groups: []\n")
        with run_prometheus(home, rules, {"shop": [exporter_port]}) as scraped:
            yield scraped.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def guarded_prometheus(home: Path, authority: trustme.CA) -> Iterator[str]:
    """The address of a Prometheus that wants LOGIN, over TLS."""
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(home / "tls.crt")
    issued.private_key_pem.write_to_path(home / "tls.key")
    tls = {"cert_file": "tls.crt", "key_file": "tls.key"}
    (home / "web.yml").write_text(
        json.dumps({"tls_server_config": tls, "basic_auth_users": {LOGIN[0]: _PROOF}})
    )
    (home / "prometheus.yml").write_text("{}")
    (port,) = free_ports(1)
    with (home / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                folder() / "prometheus", f"--config.file={home / 'prometheus.yml'}",
                f"--web.config.file={home / 'web.yml'}", f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    address = f"https://127.0.0.1:{port}"
    try:
        within(lambda: _is_ready(address, authority), (home / "prometheus.log").read_text)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def _is_ready(address: str, authority: trustme.CA) -> bool:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    proof = base64.b64encode(":".join(LOGIN).encode()).decode()
    request = urllib.request.Request(f"{address}/-/ready", headers={"Authorization": f"Basic {proof}"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10, context=context):  # noqa: S310 - loopback
            return True
    except OSError:
        return False


POINTS: Final[dict[str, list[list[list[float | None]]]]] = {
    "value": [[[1.0, 0.5], [2.0, 0.25], [3.0, None]]],
    "nothing": [],
    "no points": [[[1.0, None]]],
    "several": [[[1.0, 1.0]], [[1.0, 2.0]]],
}
"""The series of Datadog, by the query."""


class MetricApi:
    """Answers as Datadog's query API at `/api/v1/query`, and as a JSON API at `/stats`; keeps requests."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []

    def routes(self) -> tuple[web.RouteDef, ...]:
        return web.get("/api/v1/query", self._datadog), web.get("/stats", self._stats)

    async def _datadog(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        query = request.query["query"]
        if query == "refused":
            return web.json_response({"status": "error", "error": "Error parsing query"})
        series = [{"metric": query, "pointlist": points} for points in POINTS[query]]
        return web.json_response({"status": "ok", "res_type": "time_series", "series": series})

    async def _stats(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        answers: dict[str, Any] = {
            "value": {"data": [{"value": "0.25"}]},
            "nothing": {"data": []},
            "null": {"data": [{"value": None}]},
            "object": {"data": [{"value": {"secret": "of another tenant"}}]},
            "NaN": {"data": [{"value": float("nan")}]},
        }
        return web.json_response(answers[request.query["q"]])
