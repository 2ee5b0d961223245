"""The management port: liveness, readiness and metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from evaluator.http.messages import JSON, Response
from evaluator.http.routes import Routes
from evaluator.server.monitoring.introspection import source, staleness

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import Headers, Request, Streamed
    from evaluator.http.offload import Offload
    from evaluator.http.routes import HttpHandler
    from evaluator.server.monitoring.metrics import Metrics
    from evaluator.store.store import Store

log = logging.getLogger(__name__)

PROMETHEUS: Final[Headers] = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)


class Start:
    """Whether the application in the same pod may start: there are flags, or the deadline is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waited = False

    def give_up(self) -> None:
        """Allow the start without flags."""
        self._waited = True
        if not is_ready(self._store):
            log.warning("no flags came in time: applications start with the defaults in their code")

    @property
    def allowed(self) -> bool:
        """The status of /startz."""
        return self._waited or is_ready(self._store)


def routes(
    store: Store, metrics: Metrics, offload: Offload, clock: Callable[[], float], start: Start
) -> Routes:
    """`/healthz`, `/startz`, `/readyz` and `/metrics`, for GET and HEAD."""

    def healthz(_: Request) -> Response:
        return Response(200, b'{"status":"ok"}', JSON)

    def startz(_: Request) -> Response:
        body = {"started": start.allowed, "ready": is_ready(store)}
        return Response(200 if start.allowed else 412, orjson.dumps(body), JSON)

    def readyz(_: Request) -> Response:
        status = 200 if is_ready(store) else 412
        return Response(status, orjson.dumps(readiness(store, clock())), JSON)

    def scrape(request: Request) -> Response | Streamed:
        return offload.answer(request, PROMETHEUS, metrics.text)

    paths: dict[str, HttpHandler] = {
        "/healthz": healthz,
        "/startz": startz,
        "/readyz": readyz,
        "/metrics": scrape,
    }
    return Routes(http={(method, path): run for path, run in paths.items() for method in ("GET", "HEAD")})


def is_ready(store: Store) -> bool:
    """Whether a flag set is served and every source has delivered or failed; from then on for good, as stale
    flags are served.

    Until then the answer is flagd's 412: a client that waits for it would otherwise miss the flags of a
    source that takes longer.
    """
    return store.known and store.settled


def readiness(store: Store, now: float) -> dict[str, Any]:
    """What is served and how current it is: `{"ready", "revision", "digest", "flags", "ageSeconds", "stale",
    "sources"}`.

    `stale` is null or `{"reason", "since"}`, that of the source that is stale for longest; times are Unix
    seconds.
    """
    snapshot = store.snapshot
    return {
        "ready": is_ready(store),
        "revision": None if snapshot is None else snapshot.revision,
        "digest": None if snapshot is None else snapshot.digest,
        "flags": 0 if snapshot is None else len(snapshot.flag_set.flags),
        "ageSeconds": store.age(now),
        "stale": staleness(store.longest_staleness),
        "sources": [source(status, now) for status in store.statuses],
    }
