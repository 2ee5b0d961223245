"""Puts the evaluator's parts together. The only place that names concrete parts and reads the clock."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluator.http.listener import Listener
from evaluator.http.routes import Limits
from evaluator.server import evaluation, json_rpc, management, messages, ofrep
from evaluator.server.context import ContextSources
from evaluator.server.events import EventStreams
from evaluator.server.metrics import Metrics
from evaluator.settings import InvalidSettingError, Settings, from_env
from evaluator.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InvalidSettingError", "Ports", "Serving", "Settings", "Store", "from_env", "serve"]

unix_time: Callable[[], float] = time.time  # noqa: TID251 - the clock's one reading place


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are listened on."""

    grpc: int
    ofrep: int
    management: int


class Serving:
    """An evaluator that serves until it is stopped."""

    def __init__(
        self,
        ports: Ports,
        listeners: tuple[Listener, ...],
        closers: tuple[Callable[[], None], ...],
        drain_seconds: float,
    ) -> None:
        self.ports = ports
        self._listeners = listeners
        self._closers = closers
        self._drain_seconds = drain_seconds

    async def stop(self) -> None:
        """Tell event streams, finish what is in flight, close the ports."""
        for close in self._closers:
            close()
        await asyncio.gather(*(listener.drain(self._drain_seconds) for listener in self._listeners))


async def serve(
    store: Store, settings: Settings, *, clock: Callable[[], float] = unix_time
) -> Serving:
    """Listen on all ports; returns once they are open. Raises OSError if one is taken, and leaves none open then."""
    metrics = Metrics(store, clock)
    sources = ContextSources(settings.context_values, settings.context_from_header)
    loop = asyncio.get_running_loop()

    def spoken(codec: evaluation.Codec) -> evaluation.Spoken:
        deadline, encode = settings.stream_deadline, codec.encode_event
        events = EventStreams(store, loop, deadline_seconds=deadline, encode=encode)
        return evaluation.Spoken(
            evaluation.Evaluation(store, metrics, sources, clock, codec), events
        )

    protobuf, json = spoken(messages), spoken(json_rpc)
    open_feature = ofrep.Ofrep(store, metrics, sources, clock)
    limits = Limits(body_bytes=settings.max_request_body, header_bytes=settings.max_request_header)
    planned = (
        (Listener(evaluation.routes(protobuf, json), limits, name="grpc"), settings.port),
        (Listener(ofrep.routes(open_feature), limits, name="ofrep"), settings.ofrep_port),
        (
            Listener(management.routes(store, metrics, clock), limits, name="management"),
            settings.management_port,
        ),
    )
    listeners = tuple(listener for listener, _ in planned)
    closers = (protobuf.close, json.close, open_feature.close, metrics.close)
    bound: list[int] = []
    try:
        for listener, port in planned:
            bound.append(await listener.start(settings.host, port))
    except OSError:
        for close in closers:
            close()
        await asyncio.gather(*(listener.drain(0) for listener in listeners[: len(bound)]))
        raise
    return Serving(Ports(*bound), listeners, closers, settings.shutdown_seconds)
