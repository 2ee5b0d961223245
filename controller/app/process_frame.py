"""What each process that runs in a cluster is built on: metrics, the delays of its event loop, threads, the
client of the API server, Events, ports, and an end by a signal, in the reverse order of the start.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry, generate_latest

from controller.kube.client import Cluster
from controller.kube.event_sink import ApiServerEvents
from controller.runtime.metrics import ProcessMetrics
from controller.runtime.process import routes
from evaluator.host.signals import stop_at_signals, work_until
from evaluator.host.threads import share_threads
from evaluator.http.limits import MANAGEMENT
from evaluator.http.listener import Listener
from evaluator.http.offload import Offload
from evaluator.http.routes import NO_ROUTES, Routes, merge
from evaluator.http.sockets import TlsFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    from controller.app.settings import SharedSettings

_DRAIN: Final = 2.0
"""Seconds in which a port finishes what is in flight."""


class ProcessFrame:
    """The parts of one process; `stack` closes them, after what the process adds to it."""

    def __init__(self, stack: contextlib.AsyncExitStack, settings: SharedSettings) -> None:
        self.stack = stack
        self.registry = CollectorRegistry(auto_describe=False)
        self.offload = Offload()
        self._settings = settings
        self._metrics = ProcessMetrics()
        self.registry.register(self._metrics)
        self._metrics.lag.start()
        stack.callback(self._metrics.lag.stop)
        stack.callback(self.offload.close)

    async def connect(self, wrote: Callable[[str, str], None] = lambda _verb, _kind: None) -> Cluster:
        """The client of the API server; `wrote` is called with the verb and the kind of each write."""
        cluster = await Cluster.connect(self._settings.kubeconfig or None, wrote=wrote)
        self.stack.push_async_callback(cluster.close)
        return cluster

    async def post_events(
        self, cluster: Cluster, wrote: Callable[[str, str], None] = lambda _verb, _kind: None
    ) -> ApiServerEvents:
        """What posts Events until the end; `wrote` as in `connect`."""
        events = ApiServerEvents(cluster.api, self.registry, wrote=wrote)
        await self.stack.enter_async_context(events.post_in_background())
        return events

    async def manage(self, readiness: Callable[[], dict[str, Any]], more: Routes = NO_ROUTES) -> int:
        """Open the management port, and return its number. `readiness`: what /readyz answers; `more`: other
        routes. Raises OSError for a port that is taken.
        """
        managed = routes(readiness, partial(generate_latest, self.registry), self.offload)
        listener = Listener(merge(managed, more), MANAGEMENT, name="management")
        return await self.listen(listener, self._settings.management_host, self._settings.management_port)

    async def listen(self, listener: Listener, host: str, port: int, tls: TlsFiles | None = None) -> int:
        """Open a port and return its number; an empty host is that of all ports. Raises OSError for a port
        that is taken.
        """
        number = await listener.start(host or self._settings.host, port, tls=tls)
        self.follow(listener)
        return number

    def follow(self, listener: Listener) -> None:
        """Count an open port, and close it at the end."""
        self._metrics.ports.port(listener.name, listener)
        self.stack.push_async_callback(listener.drain, _DRAIN)


@contextlib.asynccontextmanager
async def open_frame(settings: SharedSettings) -> AsyncIterator[ProcessFrame]:
    """The frame of this process. Called on the loop."""
    share_threads()
    async with contextlib.AsyncExitStack() as stack:
        yield ProcessFrame(stack, settings)


async def tls_files(certificate: str, key: str, client_ca: str) -> TlsFiles | None:
    """The files of a port; None for one without a certificate. Raises OSError."""
    return await asyncio.to_thread(TlsFiles, certificate, key, client_ca or None) if certificate else None


class _Working(Protocol):
    @property
    def ports(self) -> Mapping[str, int]:
        """The numbers of the open ports, by what they are for."""

    def work(self) -> Coroutine[Any, Any, None]:
        """Work until cancelled."""


W = TypeVar("W", bound=_Working)


async def run_process(
    opening: contextlib.AbstractAsyncContextManager[W],
    say: Callable[[str], None],
    drain: Callable[[W], Awaitable[None]] | None = None,
) -> None:
    """Work until SIGTERM or SIGINT, and then until `drain` ends; a second signal ends it at once. Raises what
    opening raises, such as OSError for a port.
    """
    stop = stop_at_signals()
    async with opening as process:
        say(listening(process.ports))
        await work_until(stop, process.work(), None if drain is None else partial(drain, process))


def listening(ports: Mapping[str, int]) -> str:
    """The line of a process whose ports are open."""
    return f"listening: {', '.join(f'{name} {port}' for name, port in ports.items())}"
