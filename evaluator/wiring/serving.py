"""From a store and settings to four open ports."""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from evaluator.flags.model import EMPTY
from evaluator.http.offload import Offload
from evaluator.http.routes import Routes, merged
from evaluator.http.server.cors import Cors
from evaluator.http.server.limits import MANAGEMENT, Limits
from evaluator.http.server.listener import Listener
from evaluator.http.server.scheduler import FairQueue
from evaluator.http.server.tls import TlsFiles
from evaluator.server import evaluation, json_rpc, messages, ofrep
from evaluator.server.context import ContextSources
from evaluator.server.events import EventStreams
from evaluator.server.monitoring import health, management
from evaluator.server.monitoring.introspection import Introspection
from evaluator.server.ofrep_events import ChangeStreams
from evaluator.server.ports import ListenAddress, Serving, start_listeners
from evaluator.server.service import EvaluationService
from evaluator.server.syncing import START_SECONDS, StoreBackend
from evaluator.settings.model import CORS_OFF
from evaluator.telemetry.observed import Observed
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import SyncService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.history import History
    from evaluator.server.monitoring.state_metrics import Saving
    from evaluator.settings import Settings, TlsPaths
    from evaluator.store import Store

unix_time: Callable[[], float] = time.time  # noqa: TID251 - the clock's one reading place


@dataclass(frozen=True, slots=True)
class _Dependencies:
    """What all parts are made with."""

    store: Store
    settings: Settings
    clock: Callable[[], float]
    service: EvaluationService
    observed: Observed
    loop: asyncio.AbstractEventLoop
    queue: FairQueue
    history: History | None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Whatever answers requests."""

    protobuf: evaluation.CodecEndpoints
    json: evaluation.CodecEndpoints
    ofrep: ofrep.Ofrep
    changes: ChangeStreams | None
    introspection: Introspection
    offload: Offload
    backend: StoreBackend
    syncing: SyncService
    status: health.Health
    start: management.Start

    def closers(self) -> list[Callable[[], None]]:
        """What has to be closed at the end, in order."""
        parts = (
            self.status,
            self.protobuf,
            self.json,
            self.changes,
            self.syncing,
            self.backend,
            self.offload,
        )
        return [part.close for part in parts if part is not None]


@dataclass(frozen=True, slots=True)
class _Tables:
    """What each port answers."""

    evaluation: Routes
    ofrep: Routes
    management: Routes
    sync: Routes


async def serve(
    store: Store,
    settings: Settings,
    *,
    clock: Callable[[], float] = unix_time,
    context: Mapping[str, Any] = EMPTY,
    history: History | None = None,
    saving: Sequence[Saving] = (),
) -> Serving:
    """Listen on all ports; returns once they are open. Raises OSError if one cannot be had, and leaves none
    open then.

    `history` holds earlier versions for /explain, `saving` keeps what is served on disk. `context` is what
    sources lay over evaluation contexts, beneath what the settings do; it may change in place.
    """
    observed = Observed(store, settings, clock)
    values = _under(settings.context_values, context)
    sources = ContextSources(values, settings.context_from_header)
    service = EvaluationService(store, sources, clock, observed.observers)
    given = _Dependencies(
        store, settings, clock, service, observed, asyncio.get_running_loop(), FairQueue(), history
    )
    parts = _parts(given)
    _watch(parts, observed)
    observed.metrics.state.saving = saving
    addresses = _addresses(_tables(given, parts), given)
    lag = observed.metrics.lag
    lag.start()
    closers = (*parts.closers(), observed.metrics.close, lag.stop)
    return await start_listeners(addresses, closers, settings.shutdown_seconds, observed.close)


def _addresses(tables: _Tables, given: _Dependencies) -> Sequence[ListenAddress]:
    settings = given.settings
    limits = Limits(
        body_bytes=settings.max_request_body,
        header_bytes=settings.max_request_header,
        connections=settings.max_connections,
        connections_per_host=settings.max_connections_per_host,
        buffered_bytes=settings.max_buffered_bytes,
    )
    tls = _tls(settings.server_tls)
    ofrep_tls, management_tls = _tls(settings.ofrep_tls), _tls(settings.management_tls)
    cors = None if settings.cors_origins == (CORS_OFF,) else Cors(settings.cors_origins)
    host = settings.host

    pinged = replace(
        limits,
        ping_seconds=settings.keep_alive_min_time,
        pings_without_stream=settings.keep_alive_permit_without_stream,
    )

    def listener(name: str, routes: Routes, cors: Cors | None = None, limits: Limits = limits) -> Listener:
        made = Listener(routes, limits, name=name, cors=cors, queue=given.queue)
        given.observed.metrics.state.ports.port(name, made)
        return made

    grpc, ofrep = listener("grpc", tables.evaluation, cors), listener("ofrep", tables.ofrep, cors)
    management = listener("management", tables.management, limits=MANAGEMENT)
    sync = listener("sync", tables.sync, limits=pinged)
    mode = int(settings.socket_mode, 8)
    managed = settings.management_host or host, settings.management_port
    ofrep_at, sync_at = settings.ofrep_host or host, settings.sync_host or host
    return (
        ListenAddress(grpc, host, settings.port, settings.socket_path, tls, mode),
        ListenAddress(ofrep, ofrep_at, settings.ofrep_port, settings.ofrep_socket_path, ofrep_tls, mode),
        ListenAddress(management, *managed, "", management_tls),
        ListenAddress(sync, sync_at, settings.sync_port, settings.sync_socket_path, tls, mode),
    )


def _parts(given: _Dependencies) -> _Parts:
    store, settings, observed = given.store, given.settings, given.observed
    changes = _changes(given) if settings.ofrep_sse_enabled else None
    offload = Offload()
    backend = StoreBackend(store, given.service.sources.values)
    given.loop.call_later(START_SECONDS, backend.stop_waiting)
    start = management.Start(store)
    if settings.start_deadline:
        given.loop.call_later(settings.start_deadline, start.give_up)
    return _Parts(
        protobuf=_endpoints(given, messages),
        json=_endpoints(given, json_rpc),
        ofrep=ofrep.Ofrep(given.service, changes),
        changes=changes,
        introspection=Introspection(given.service, offload, given.history),
        offload=offload,
        backend=backend,
        syncing=SyncService(
            backend,
            Hub(given.queue),
            given.loop,
            deadline_seconds=settings.stream_deadline,
            metadata=not settings.disable_sync_metadata,
            ended=observed.metrics.state.lifetimes.ended,
        ),
        status=health.Health(store),
        start=start,
    )  # fmt: skip


def _endpoints(given: _Dependencies, codec: evaluation.Codec) -> evaluation.CodecEndpoints:
    events = EventStreams(
        given.store, given.loop, given.queue, deadline_seconds=given.settings.stream_deadline,
        encode=codec.encode_event,
    )  # fmt: skip
    return evaluation.CodecEndpoints(evaluation.Evaluation(given.service, codec), events)


def _changes(given: _Dependencies) -> ChangeStreams:
    settings = given.settings
    url, delay = settings.ofrep_sse_public_url, settings.ofrep_sse_inactivity_delay
    return ChangeStreams(given.store, given.loop, given.queue, public_url=url, inactivity_seconds=delay)


def _tables(given: _Dependencies, parts: _Parts) -> _Tables:
    store, settings, observed = given.store, given.settings, given.observed
    by_grpc = evaluation.routes(parts.protobuf, parts.json)
    by_ofrep, by_sync = ofrep.routes(parts.ofrep, parts.changes), parts.syncing.routes()
    return _Tables(
        evaluation=merged(
            observed.routes(by_grpc, secure=settings.server_tls is not None),
            health.routes(parts.status, by_grpc),
        ),
        ofrep=observed.routes(by_ofrep, secure=settings.ofrep_tls is not None),
        management=merged(
            management.routes(store, observed.metrics, parts.offload, given.clock, parts.start),
            parts.introspection.routes(),
            health.routes(parts.status, by_grpc),
        ),
        sync=merged(observed.rpcs(by_sync), health.routes(parts.status, by_sync)),
    )


def _watch(parts: _Parts, observed: Observed) -> None:
    """Count the streams."""
    state = observed.metrics.state
    state.streams("events", parts.protobuf.events)
    state.streams("events", parts.json.events)
    if parts.changes is not None:
        state.streams("sse", parts.changes)
    state.streams("sync", parts.syncing)


def _under(values: Mapping[str, Any], context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Both, `values` winning; one of them alone where the other adds nothing, as it is read often."""
    if not values or context is EMPTY:
        return values or context
    return ChainMap({**values}, cast("dict[str, Any]", context))


def _tls(paths: TlsPaths | None) -> TlsFiles | None:
    return None if paths is None else TlsFiles(paths.certificate, paths.key, paths.client_ca)
