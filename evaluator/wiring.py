"""Puts the evaluator's parts together. The only place that names concrete parts and reads the clock."""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import signal
import socket
import sys
import time
from collections import ChainMap
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

from evaluator.exchange import Exchange, beside
from evaluator.flags.model import EMPTY
from evaluator.heap import Heap
from evaluator.http.cors import Cors
from evaluator.http.listener import Listener
from evaluator.http.routes import Limits, Routes, merged
from evaluator.http.tls import TlsFiles
from evaluator.server import (
    evaluation,
    health,
    json_rpc,
    management,
    messages,
    ofrep,
    ofrep_events,
)
from evaluator.server.context import ContextSources
from evaluator.server.events import EventStreams
from evaluator.server.introspection import Introspection
from evaluator.server.ports import Door, Ports, Serving, open_doors
from evaluator.server.syncing import StoreBackend
from evaluator.settings import InvalidSettingError, Settings, TlsPaths, from_env
from evaluator.store import Store
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.follow import Followers
from evaluator.sync.opening import open_sources
from evaluator.sync.receipts import Receipts
from evaluator.telemetry.observed import Observed
from evaluator.wire.delivery import MemberText
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import SyncService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.store import Snapshot

__all__ = [
    "Exchange", "Heap", "InvalidSettingError", "Ports", "Serving", "Settings", "Store", "from_env", "run", "serve",
]  # fmt: skip

unix_time: Callable[[], float] = time.time  # noqa: TID251 - the clock's one reading place

_SWITCH_SECONDS: Final = 0.001
"""How long the loop waits for a thread that reads or compiles a flag set, each time it has slept: Python's own 5 ms would be most
of an evaluation's latency meanwhile. For a process that is the evaluator's alone."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the ports answer, and what has to be told of the end."""

    evaluation: Routes
    ofrep: Routes
    management: Routes
    sync: Routes
    closers: Sequence[Callable[[], None]]


async def run(settings: Settings, *, clock: Callable[[], float] = unix_time) -> None:
    """Open the ports, follow the sources, and return once SIGTERM or SIGINT came and requests in flight have ended.

    A source that is down is no reason not to serve. Raises OSError for a port, socket or certificate that cannot be had, and
    InvalidSettingError for a source that cannot be followed on this installation.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    allow_connections()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    receipts = _receipts(settings, clock)
    try:
        sources = open_sources(settings.sources, clock=clock, receipts=receipts)
    except InvalidSourceError as error:
        raise InvalidSettingError(str(error)) from None
    store = Store(
        sources=[source.name for source in sources],
        bucketing=settings.bucketing,
        expose_bucketing=settings.show_bucketing,
    )
    store.subscribe(_log_served)
    if receipts is not None:
        receipts.follow(store)
    followers = Followers(sources, store, clock=clock, state_dir=settings.state_dir, heap=Heap())
    serving = await serve(store, settings, clock=clock, context=followers.context)
    log.info("listening", extra=asdict(serving.ports))
    following = asyncio.create_task(followers.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    for number in (signal.SIGINT, signal.SIGTERM):
        # A second signal ends the process at once.
        loop.remove_signal_handler(number)
    stopping.cancel()
    following.cancel()
    await serving.stop()
    await asyncio.gather(following, return_exceptions=True)
    if not following.cancelled() and (failure := following.exception()) is not None:
        raise failure


def allow_connections() -> None:
    """Raise how many files we may open to what we are allowed, as Go does for flagd: shells and systemd begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(
    store: Store,
    settings: Settings,
    *,
    clock: Callable[[], float] = unix_time,
    context: Mapping[str, Any] = EMPTY,
) -> Serving:
    """Listen on all ports; returns once they are open. Raises OSError if one cannot be had, and leaves none open then.

    `context` is what sources lay over evaluation contexts, beneath what the settings do; it may change in place.
    """
    limits = Limits(body_bytes=settings.max_request_body, header_bytes=settings.max_request_header)
    tls = _tls(settings.server_tls)
    ofrep_tls, management_tls = _tls(settings.ofrep_tls), _tls(settings.management_tls)
    cors = Cors(settings.cors_origins)
    observed = Observed(store, settings, clock)
    parts = _parts(store, settings, clock, context, observed)
    host = settings.host

    def listener(name: str, routes: Routes, cors: Cors | None = None) -> Listener:
        made = Listener(routes, limits, name=name, cors=cors)
        observed.metrics.condition.connections(name, lambda: made.connections)
        return made

    doors = (
        Door(listener("grpc", parts.evaluation, cors), host, settings.port, settings.socket_path, tls),
        Door(listener("ofrep", parts.ofrep, cors), host, settings.ofrep_port, settings.ofrep_socket_path, ofrep_tls),
        Door(listener("management", parts.management), host, settings.management_port, "", management_tls),
        Door(listener("sync", parts.sync), host, settings.sync_port, settings.sync_socket_path, tls),
    )  # fmt: skip
    return await open_doors(doors, parts.closers, settings.shutdown_seconds, observed.close)


def _parts(
    store: Store,
    settings: Settings,
    clock: Callable[[], float],
    context: Mapping[str, Any],
    observed: Observed,
) -> _Parts:
    metrics, resolver = observed.metrics, observed.resolver
    values = _under(settings.context_values, context)
    sources = ContextSources(values, settings.context_from_header)
    loop = asyncio.get_running_loop()

    def spoken(codec: evaluation.Codec) -> evaluation.Spoken:
        deadline, encode = settings.stream_deadline, codec.encode_event
        events = EventStreams(
            store, loop, deadline_seconds=deadline, encode=encode, aside=beside(loop)
        )
        return evaluation.Spoken(
            evaluation.Evaluation(store, metrics, sources, clock, codec, resolver=resolver), events
        )

    protobuf, json = spoken(messages), spoken(json_rpc)
    changes = _changes(store, settings, loop)
    open_feature = ofrep.Ofrep(store, metrics, sources, clock, changes=changes, resolver=resolver)
    backend = StoreBackend(store, values)
    syncing = SyncService(
        backend,
        Hub(loop),
        loop,
        deadline_seconds=settings.stream_deadline,
        metadata=not settings.disable_sync_metadata,
        ended=metrics.condition.lifetimes.ended,
    )
    status = health.Health(store)
    by_grpc = evaluation.routes(protobuf, json)
    managed = merged(
        management.routes(store, metrics, clock), Introspection(store, sources, clock).routes()
    )
    for kind, kept in (
        ("events", protobuf.events), ("events", json.events), ("sse", changes), ("sync", syncing),
    ):  # fmt: skip
        if kept is not None:
            metrics.condition.streams(kind, kept)
    return _Parts(
        evaluation=merged(
            observed.routes(by_grpc, secure=settings.server_tls is not None),
            health.routes(status, by_grpc),
        ),
        ofrep=observed.routes(
            ofrep.routes(open_feature, changes), secure=settings.ofrep_tls is not None
        ),
        management=merged(managed, health.routes(status, by_grpc)),
        sync=merged(syncing.routes(), health.routes(status, syncing.routes())),
        closers=tuple(
            part.close
            for part in (
                status,
                protobuf,
                json,
                changes,
                syncing,
                backend,
                open_feature,
                metrics,
            )
            if part is not None
        ),
    )


def _changes(
    store: Store, settings: Settings, loop: asyncio.AbstractEventLoop
) -> ofrep_events.ChangeStreams | None:
    if not settings.ofrep_sse_enabled:
        return None
    url, delay = settings.ofrep_sse_public_url, settings.ofrep_sse_inactivity_delay
    return ofrep_events.ChangeStreams(store, loop, public_url=url, inactivity_seconds=delay)


def _under(values: Mapping[str, Any], context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Both, `values` winning; one of them alone where the other has nothing to add, as each evaluation looks."""
    if not values or context is EMPTY:
        return values or context
    return ChainMap({**values}, cast("dict[str, Any]", context))


def _receipts(settings: Settings, clock: Callable[[], float]) -> Receipts | None:
    if settings.receipts == "off" or all(each.provider != "grpc" for each in settings.sources):
        return None
    pod = settings.pod
    instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    member = MemberText(instance, pod.namespace, pod.name, pod.uid, pod.node, version("flagstaff"))
    return Receipts(member, clock=clock, random=secrets.SystemRandom().random)


def _tls(paths: TlsPaths | None) -> TlsFiles | None:
    return None if paths is None else TlsFiles(paths.certificate, paths.key, paths.client_ca)


def _log_served(snapshot: Snapshot) -> None:
    log.info(
        "flags served",
        extra={
            "flags": len(snapshot.flag_set.flags),
            "revision": snapshot.revision,
            "digest": snapshot.digest,
        },
    )
