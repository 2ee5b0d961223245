"""Opens the four ports of a store with settings."""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from evaluator.flags.model import EMPTY
from evaluator.http.host_check import without_pages
from evaluator.http.offload import Offload
from evaluator.http.routes import NO_ROUTES, Routes, merge
from evaluator.http.server.cors import Cors
from evaluator.http.server.limits import MANAGEMENT, Limits
from evaluator.http.server.listener import Listener
from evaluator.http.server.scheduler import FairQueue
from evaluator.http.server.tls import TlsFiles
from evaluator.server.context import ContextSources
from evaluator.server.monitoring import health, management
from evaluator.server.monitoring.introspection import Introspection
from evaluator.server.ofrep import evaluate_flags as ofrep
from evaluator.server.ofrep.sse import ChangeStreams
from evaluator.server.ofrep.track import Tracking
from evaluator.server.ports import ListenAddress, Serving, start_listeners
from evaluator.server.rpc import evaluation, json_rpc, protobuf
from evaluator.server.rpc.event_stream import EventStreams
from evaluator.server.service import EvaluationService
from evaluator.server.syncing import START_SECONDS, StoreBackend
from evaluator.settings.settings import CORS_OFF, TRACK_OFF
from evaluator.telemetry.observed import Observed
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import SyncService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.server.monitoring.port_metrics import PortMetrics
    from evaluator.server.monitoring.state_metrics import Saving
    from evaluator.settings import Settings, TlsPaths
    from evaluator.store.evaluate import Observer
    from evaluator.store.history import History
    from evaluator.store.store import Store

unix_time: Callable[[], float] = time.time  # noqa: TID251 - the clock's one reading place


@dataclass(frozen=True, slots=True)
class Additions:
    """What a process adds to the evaluator in it."""

    saving: Sequence[Saving] = ()
    """What saves the served sets."""
    observers: Sequence[Observer] = ()
    """Called with each evaluation."""
    management: Routes = NO_ROUTES
    """More of the management port."""
    closers: Sequence[Callable[[], None]] = ()
    """Called at the end, before the ports close."""


NO_ADDITIONS: Final = Additions()


async def serve(
    store: Store,
    settings: Settings,
    *,
    clock: Callable[[], float] = unix_time,
    context: Mapping[str, Any] = EMPTY,
    history: History | None = None,
    additions: Additions = NO_ADDITIONS,
) -> Serving:
    """Listen on all ports; return once they are open. `history` holds earlier versions for /explain,
    `context` holds the sources' context values, which the settings' override; it may change in place. Raises
    OSError if a port cannot be opened, and leaves none open then.
    """
    observed = Observed(store, settings, clock)
    observed.observers.extend(additions.observers)
    sources = ContextSources(_under(settings.context_values, context), settings.context_from_header)
    service = EvaluationService(store, sources, clock, observed.observers)
    parts = _Parts(service, settings, observed, history)
    observed.metrics.state.saving = additions.saving
    routes = parts.routes(additions.management)
    addresses = _addresses(routes, settings, parts.queue, observed.metrics.state.ports)
    lag = observed.metrics.lag
    lag.start()
    closers = (*parts.closers(), *additions.closers, observed.metrics.close, lag.stop)
    return await start_listeners(addresses, closers, settings.shutdown_seconds, observed.close)


class _Parts:
    """The objects that answer requests."""

    def __init__(
        self, service: EvaluationService, settings: Settings, observed: Observed, history: History | None
    ) -> None:
        self._service, self._settings, self._observed = service, settings, observed
        self._loop, store = asyncio.get_running_loop(), service.store
        self.queue = queue = FairQueue()
        self._changes: ChangeStreams | None = None
        if settings.ofrep_sse_enabled:
            url, delay = settings.ofrep_sse_public_url, settings.ofrep_sse_inactivity_delay
            self._changes = ChangeStreams(store, self._loop, queue, public_url=url, inactivity_seconds=delay)
        self._offload = Offload()
        self._introspection = Introspection(service, self._offload, history)
        self._backend = StoreBackend(store, service.sources.values)
        self._loop.call_later(START_SECONDS, self._backend.stop_waiting)
        self._start = management.Start(store)
        if settings.start_deadline:
            self._loop.call_later(settings.start_deadline, self._start.give_up)
        self._protobuf, self._json = self._endpoints(protobuf), self._endpoints(json_rpc)
        self._syncing = SyncService(
            self._backend,
            Hub(queue),
            self._loop,
            deadline_seconds=settings.stream_deadline,
            metadata=not settings.disable_sync_metadata,
            ended=observed.metrics.state.count_stream_end,
        )
        self._health = health.HealthService(store)
        self._count_streams()

    def _endpoints(self, codec: evaluation.Codec) -> evaluation.CodecEndpoints:
        events = EventStreams(
            self._service.store, self._loop, self.queue,
            deadline_seconds=self._settings.stream_deadline, encode=codec.encode_event,
        )  # fmt: skip
        return evaluation.CodecEndpoints(evaluation.Evaluation(self._service, codec), events)

    def _count_streams(self) -> None:
        state = self._observed.metrics.state
        state.streams("events", self._protobuf.events)
        state.streams("events", self._json.events)
        if self._changes is not None:
            state.streams("sse", self._changes)
        state.streams("sync", self._syncing)

    def closers(self) -> list[Callable[[], None]]:
        """Return the objects to close at the end, in order."""
        events = self._protobuf.events, self._json.events
        parts = (self._health, *events, self._changes, self._syncing, self._backend, self._offload)
        return [part.close for part in parts if part is not None]

    def routes(self, more: Routes) -> tuple[Routes, Routes, Routes, Routes]:
        """Return the routes of the ports: evaluation, OFREP, management with `more`, sync."""
        settings, observed, status = self._settings, self._observed, self._health
        by_grpc, by_sync = evaluation.routes(self._protobuf, self._json), self._syncing.routes()
        by_ofrep = ofrep.routes(ofrep.Ofrep(self._service, self._changes), self._changes)
        if settings.track_events != (TRACK_OFF,):
            tracking = Tracking(self._service, observed.metrics.rollouts, settings.track_events)
            by_ofrep = merge(by_ofrep, tracking.routes())
        store, clock = self._service.store, self._service.clock
        managed = management.routes(store, observed.metrics, self._offload, clock, self._start)
        return (
            merge(
                observed.routes(by_grpc, secure=settings.server_tls is not None),
                health.routes(status, by_grpc),
            ),
            observed.routes(by_ofrep, secure=settings.ofrep_tls is not None),
            merge(managed, without_pages(self._introspection.routes()), health.routes(status, by_grpc), more),
            merge(observed.rpcs(by_sync), health.routes(status, by_sync)),
        )


def _addresses(
    routes: tuple[Routes, Routes, Routes, Routes], settings: Settings, queue: FairQueue, ports: PortMetrics
) -> Sequence[ListenAddress]:
    limits = Limits(
        body_bytes=settings.max_request_body,
        header_bytes=settings.max_request_header,
        connections=settings.max_connections,
        connections_per_host=settings.max_connections_per_host,
        buffered_bytes=settings.max_buffered_bytes,
    )
    pinged = replace(
        limits,
        ping_seconds=settings.keep_alive_min_time,
        pings_without_stream=settings.keep_alive_permit_without_stream,
    )
    cors = None if settings.cors_origins == (CORS_OFF,) else Cors(settings.cors_origins)
    listeners = (
        Listener(routes[0], limits, name="grpc", cors=cors, queue=queue),
        Listener(routes[1], limits, name="ofrep", cors=cors, queue=queue),
        Listener(routes[2], MANAGEMENT, name="management", queue=queue),
        Listener(routes[3], pinged, name="sync", queue=queue),
    )
    for listener in listeners:
        ports.port(listener.name, listener)
    grpc, ofrep, management, sync = listeners
    host, mode, tls = settings.host, int(settings.socket_mode, 8), _tls(settings.server_tls)
    managed = settings.management_host or host, settings.management_port
    ofrep_at, ofrep_tls = settings.ofrep_host or host, _tls(settings.ofrep_tls)
    sync_at = settings.sync_host or host
    return (
        ListenAddress(grpc, host, settings.port, settings.socket_path, tls, mode),
        ListenAddress(ofrep, ofrep_at, settings.ofrep_port, settings.ofrep_socket_path, ofrep_tls, mode),
        ListenAddress(management, *managed, "", _tls(settings.management_tls)),
        ListenAddress(sync, sync_at, settings.sync_port, settings.sync_socket_path, tls, mode),
    )


def _under(values: Mapping[str, Any], context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge both, `values` winning; return one of them if the other adds nothing, as it is read often."""
    if not values or context is EMPTY:
        return values or context
    return ChainMap({**values}, cast("dict[str, Any]", context))


def _tls(paths: TlsPaths | None) -> TlsFiles | None:
    return None if paths is None else TlsFiles(paths.certificate, paths.key, paths.client_ca)
