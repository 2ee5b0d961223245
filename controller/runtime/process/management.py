"""The management port of a controller or proxy: liveness, readiness and metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from evaluator.http.messages import Response, Streamed
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import Headers, Request
    from evaluator.http.offload import Offload

_JSON: Final[Headers] = (("content-type", "application/json"),)
_PROMETHEUS: Final[Headers] = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)


def routes(readiness: Callable[[], dict[str, Any]], metrics: Callable[[], bytes], offload: Offload) -> Routes:
    """`/healthz`, `/readyz` and `/metrics`. `readiness` says `{"ready": bool, …}`; 503 until it is true.
    `offload`: has `metrics` called in a thread, since there may be many.
    """

    def healthz(_: Request) -> Response:
        return Response(200, b'{"status":"ok"}', _JSON)

    def readyz(_: Request) -> Response:
        report = readiness()
        return Response(200 if report["ready"] else 503, json.dumps(report).encode(), _JSON)

    def scrape(request: Request) -> Response | Streamed:
        return offload.answer(request, _PROMETHEUS, metrics)

    paths = {"/healthz": healthz, "/readyz": readyz, "/metrics": scrape}
    return Routes(http={(method, path): run for path, run in paths.items() for method in ("GET", "HEAD")})
