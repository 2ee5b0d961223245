"""The management port of a controller or proxy: liveness, readiness and metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import Headers, Request

_JSON: Final[Headers] = (("content-type", "application/json"),)
_PROMETHEUS: Final[Headers] = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)


def routes(readiness: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> Routes:
    """`/healthz`, `/readyz` and `/metrics`. `readiness` says `{"ready": bool, …}`; 503 until it is true."""

    def healthz(_: Request) -> Response:
        return Response(200, b'{"status":"ok"}', _JSON)

    def readyz(_: Request) -> Response:
        told = readiness()
        return Response(200 if told["ready"] else 503, json.dumps(told).encode(), _JSON)

    def scrape(_: Request) -> Response:
        return Response(200, metrics(), _PROMETHEUS)

    paths = {"/healthz": healthz, "/readyz": readyz, "/metrics": scrape}
    return Routes(http={(method, path): run for path, run in paths.items() for method in ("GET", "HEAD")})
