"""Connects the evaluator's parts, and opens its ports. The only place that names concrete classes and reads
the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import socket
import sys
import time
from collections import ChainMap
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from evaluator.flags.model import EMPTY
from evaluator.host import durable
from evaluator.host.gc_policy import GcPolicy
from evaluator.host.signals import stop_at_signals, work_until
from evaluator.http.cors import Cors
from evaluator.http.limits import MANAGEMENT, Limits
from evaluator.http.listener import Listener
from evaluator.http.offload import Offload
from evaluator.http.routes import NO_ROUTES, Routes, merge, without_pages
from evaluator.http.scheduler import FairQueue
from evaluator.http.sockets import TlsFiles
from evaluator.server import evaluate_flags as ofrep
from evaluator.server import evaluation, health, json_rpc, management, protobuf
from evaluator.server.context import ContextSources
from evaluator.server.event_stream import EventStreams
from evaluator.server.management import Introspection
from evaluator.server.manifest import ManifestEndpoint
from evaluator.server.ports import ListenAddress, Ports, Serving, start_listeners
from evaluator.server.service import EvaluationService
from evaluator.server.sse import ChangeStreams
from evaluator.server.syncing import START_SECONDS, StoreBackend
from evaluator.server.track import Tracking
from evaluator.settings import InvalidSettingError, Settings, TlsPaths
from evaluator.settings.settings import CORS_OFF, TRACK_OFF
from evaluator.store.history import History
from evaluator.store.store import Store
from evaluator.sync.config import FILES, InvalidSourceError
from evaluator.sync.follower import Followers
from evaluator.sync.lastgood import StateFolder
from evaluator.sync.opening import open_sources
from evaluator.telemetry.observed import Observed
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import StreamObserver, SyncService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from evaluator.receipts.endpoint import ReceiptEndpoint
    from evaluator.receipts.reporter import StoreReceipts
    from evaluator.server.families import PortMetrics
    from evaluator.server.state_metrics import Saving
    from evaluator.store.query import Observer
    from evaluator.store.snapshot import Snapshot
    from evaluator.sync.source import SyncSource


PortRoutes: TypeAlias = tuple[Routes, Routes, Routes, Routes]
"""Of the ports: evaluation, OFREP, management, sync."""

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
    sync: Routes = NO_ROUTES
    """More of the sync port."""
    streams: StreamObserver | None = None
    """Sees the streams of the sync port open and close."""
    closers: Sequence[Callable[[], None]] = ()
    """Called at the end, before the ports close."""
    by_pod: Callable[[Observed, PortRoutes], PortRoutes] = lambda _, routes: routes
    """Makes the routes of the ports of an evaluator whose answers depend on who asks."""


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
    sources = ContextSources(under(settings.context_values, context), settings.context_from_header)
    service = EvaluationService(store, sources, clock, observed.observers)
    parts = StoreParts(service, settings, observed, history, additions)
    observed.metrics.state.saving = additions.saving
    routes = additions.by_pod(observed, parts.routes())
    addresses = _addresses(routes, settings, parts.queue, observed.metrics.state.ports)
    lag = observed.metrics.lag
    lag.start()
    closers = (*parts.closers(), *additions.closers, observed.metrics.close, lag.stop)
    return await start_listeners(addresses, closers, settings.shutdown_seconds, observed.close)


class StoreParts:
    """The objects that answer requests, from one store."""

    def __init__(
        self,
        service: EvaluationService,
        settings: Settings,
        observed: Observed,
        history: History | None,
        additions: Additions,
    ) -> None:
        self._service, self._settings, self._observed = service, settings, observed
        self._additions = additions
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
            observer=additions.streams,
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

    def routes(self) -> PortRoutes:
        """Return the routes of the ports."""
        settings, observed, status = self._settings, self._observed, self._health
        by_grpc = evaluation.routes(self._protobuf, self._json)
        by_sync = merge(self._syncing.routes(), self._additions.sync)
        more = self._additions.management
        by_ofrep = merge(
            ofrep.routes(ofrep.Ofrep(self._service, self._changes), self._changes),
            ManifestEndpoint(self._service).routes(),
        )
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
    routes: PortRoutes, settings: Settings, queue: FairQueue, ports: PortMetrics
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


def under(values: Mapping[str, Any], context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge both, `values` winning; return one of them if the other adds nothing, as it is read often."""
    if not values or context is EMPTY:
        return values or context
    return ChainMap({**values}, cast("dict[str, Any]", context))


def _tls(paths: TlsPaths | None) -> TlsFiles | None:
    return None if paths is None else TlsFiles(paths.certificate, paths.key, paths.client_ca)


__all__ = [
    "Additions", "FollowedSources", "Ports", "Serving", "StoreParts", "follow_sources", "lock_state", "run",
    "serve",
]  # fmt: skip

_SWITCH_SECONDS: Final = 0.001
"""Seconds for which the loop waits for a thread that reads or compiles a flag set, after each sleep: Python's
own 5 ms would be most of an evaluation's latency then. Set only in an evaluator's own process.
"""

log = logging.getLogger(__name__)
Work: TypeAlias = "Callable[[Settings, asyncio.Event, Callable[[], float]], Awaitable[None]]"


async def run(
    settings: Settings, *, clock: Callable[[], float] = unix_time, work: Work | None = None
) -> None:
    """Serve last good sets, open the ports and follow the sources, reachable or not, until SIGTERM or SIGINT
    and the end of requests in flight; or do `work` in their place. Raises OSError for an unusable port,
    socket, certificate or state folder, InvalidSettingError for a source that this installation cannot
    follow.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    allow_connections()
    stop = stop_at_signals()
    with lock_state(settings.state_dir):
        await (work or _run)(settings, stop, clock)


async def _run(settings: Settings, stop: asyncio.Event, clock: Callable[[], float]) -> None:
    followed = await follow_sources(settings, clock)
    serving = await serve(
        followed.store,
        settings,
        clock=clock,
        context=followed.store.context,
        history=followed.history,
        additions=Additions(saving=followed.followers.keepers),
    )
    log.info("listening", extra=asdict(serving.ports))
    try:
        await work_until(stop, followed.run())
    finally:
        log.info("stopping")
        await serving.stop()


@dataclass(frozen=True, slots=True)
class FollowedSources:
    """A store, and what keeps it up to date."""

    store: Store
    followers: Followers
    history: History | None
    endpoints: Sequence[ReceiptEndpoint]

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.followers, *self.endpoints, self.history):
                if part is not None:
                    tasks.create_task(part.run())


async def follow_sources(settings: Settings, clock: Callable[[], float]) -> FollowedSources:
    """The sources of the settings, with their last good sets served already. Raises InvalidSettingError."""
    receipts = _receipts(settings)
    try:
        sources = open_sources(
            settings.sources, clock=clock, companion=None if receipts is None else receipts.of
        )
        endpoints = _endpoints(settings, sources, receipts)
    except InvalidSourceError as error:
        raise InvalidSettingError(str(error)) from None
    store = Store(
        sources=[source.name for source in sources],
        bucketing=settings.bucketing,
        expose_bucketing=settings.show_bucketing,
    )
    store.subscribe(_log_served)
    history = await _history(settings, store)
    state_dir = settings.state_dir
    folder = None if state_dir is None else StateFolder(state_dir, history, clock)
    followers = Followers(sources, store, clock=clock, folder=folder, gc_policy=GcPolicy())
    if receipts is not None:
        receipts.follow(store, followers.keepers)
    # Before the ports open: no client may get FLAG_NOT_FOUND for a flag that is on disk.
    await followers.restore()
    return FollowedSources(store, followers, history, endpoints)


async def _history(settings: Settings, store: Store) -> History | None:
    """Load the versions served before from the state folder; further ones are recorded."""
    if settings.state_dir is None:
        return None
    history = History(settings.state_dir / "versions")
    try:
        await asyncio.to_thread(history.load)
    except OSError as error:
        log.warning("%s: earlier versions cannot be read: %s", settings.state_dir, error.strerror)
    store.subscribe(history.record)
    return history


def _endpoints(
    settings: Settings, sources: Sequence[SyncSource], receipts: StoreReceipts | None
) -> list[ReceiptEndpoint]:
    """Return the servers of receipts for file sources."""
    if not settings.receipts_to or receipts is None:
        return []
    from evaluator.receipts.endpoint import ReceiptEndpoint  # noqa: PLC0415 - loads grpcio

    named = zip(sources, settings.sources, strict=True)
    files = (source.name for source, config in named if config.provider in FILES)
    pairs = zip(files, settings.receipts_to, strict=True)
    return [ReceiptEndpoint(config, receipts.of(file, config.selector)) for file, config in pairs]


@contextlib.contextmanager
def lock_state(state_dir: Path | None) -> Iterator[None]:
    """Lock the state folder for this process. A folder that cannot be locked is used nevertheless."""
    with contextlib.ExitStack() as held:
        if state_dir is not None:
            try:
                held.enter_context(durable.lock_folder(state_dir))
            except durable.FolderInUseError:
                raise
            except OSError as error:
                log.warning("%s: the state folder cannot be locked: %s", state_dir, error.strerror)
        yield


def allow_connections() -> None:
    """Raise the limit of open files to the hard limit, as Go does: shells and systemd start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _receipts(settings: Settings) -> StoreReceipts | None:
    wanted = settings.receipts_to or any(source.provider == "grpc" for source in settings.sources)
    if settings.receipts == "off" or not wanted:
        return None
    # Imported here: a twentieth of the start time, and most evaluators send no receipts.
    from importlib.metadata import version  # noqa: PLC0415

    from evaluator.receipts.reporter import StoreReceipts  # noqa: PLC0415
    from evaluator.wire.delivery import MemberText  # noqa: PLC0415

    pod = settings.pod
    instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    member = MemberText(instance, pod.namespace, pod.name, pod.uid, pod.node, version("flagstaff"))
    return StoreReceipts(member, random=secrets.SystemRandom().random)


def _log_served(snapshot: Snapshot) -> None:
    log.info(
        "flags served",
        extra={
            "flags": len(snapshot.flag_set.flags),
            "revision": snapshot.revision,
            "digest": snapshot.digest,
        },
    )
