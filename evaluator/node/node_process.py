"""The evaluator of a node as a process: its parts connected, and its ports open until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import FlagSet
from evaluator.host.gc_policy import GcPolicy
from evaluator.host.signals import work_until
from evaluator.http.messages import Code, RpcError
from evaluator.node.pod_addresses import AGAIN, PodAddresses, PodAnswer
from evaluator.node.pod_routes import PodRoutes
from evaluator.node.pod_sets import PodFlagSets, PodReporters, ServedSets
from evaluator.receipts.reporter import StoreReceipts
from evaluator.server.context import ContextSources
from evaluator.server.service import EvaluationService
from evaluator.settings import InvalidSettingError
from evaluator.store.store import Content, Report, Store
from evaluator.sync.follower import Followers
from evaluator.sync.grpc_source import Connector, GrpcSource, PeerConnection
from evaluator.sync.lastgood import StateFolder
from evaluator.sync.opening import identities
from evaluator.sync.schedule import DEFAULT_TIMING
from evaluator.wire.delivery import AskFailed, MemberText
from evaluator.wiring import NO_ADDITIONS, Additions, StoreParts, serve, under

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.settings import Settings
    from evaluator.sync.config import SourceConfig
    from evaluator.telemetry.observed import Observed
    from evaluator.wiring import PortRoutes, Ports

log = logging.getLogger(__name__)

_PORTS: Final = (0, 1, 3)
"""Ports of pods, as PortRoutes has them: evaluation, OFREP, sync."""
_SYNC: Final = 3
_TRY_AGAIN: Final = 2.0
"""Seconds until a proxy that did not answer is asked again, at the start."""


class _Node:
    """What serves the pods of one node."""

    def __init__(
        self, config: SourceConfig, settings: Settings, clock: Callable[[], float], again: float
    ) -> None:
        state = settings.state_dir
        self._config, self._settings, self._clock, self._again = config, settings, clock, again
        self._connection = PeerConnection(Connector(config.name, config, DEFAULT_TIMING))
        path = None if state is None else state / "pods.json"
        self.addresses = PodAddresses(self._connection.ask, clock, path, self._end_streams, again)
        self.sets = PodFlagSets(self.addresses, self._open, settings.max_flag_sets)
        self.known = Store()
        """Serves no flag: says that this evaluator is ready."""
        self._gc_policy = GcPolicy()
        self._observed: Observed | None = None
        self._routes: list[PodRoutes] = []

    def by_pod(self, observed: Observed, routes: PortRoutes) -> PortRoutes:
        """The routes of the ports, each answering a pod from its flag sets."""
        self._observed, made = observed, list(routes)
        for port in _PORTS:
            pods = PodRoutes(self.sets, port, routes[port], syncs=port == _SYNC)
            self._routes.append(pods)
            made[port] = pods.routes
        evaluation, ofrep, management, sync = made
        return evaluation, ofrep, management, sync

    async def restore(self) -> None:
        """Serve what the pods of an earlier process had."""
        for pod in await self.addresses.load():
            with contextlib.suppress(RpcError):
                await self.sets.open(pod.flag_sets)
            self._be_ready()

    async def run(self) -> None:
        """Be ready once the proxy answers, and follow which pods there are, until cancelled."""
        while True:
            try:
                await self.addresses.reach()
                break
            except AskFailed as failure:
                log.warning("which pods this node has is not known: %s", failure)
                await asyncio.sleep(_TRY_AGAIN)
        self._be_ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.addresses.run())
            tasks.create_task(self._sweep())

    async def close(self) -> None:
        """Serve nothing more."""
        await self.sets.close()
        await self._connection.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._again)
            await self.sets.sweep()

    def _be_ready(self) -> None:
        self.known.apply(Report("", self._clock(), Content(FlagSet())), now=self._clock())

    def _end_streams(self, address: str) -> None:
        for routes in self._routes:
            routes.end_streams(address)

    async def _open(self, flag_sets: tuple[str, ...]) -> ServedSets:
        if self._observed is None:
            raise RpcError(Code.UNAVAILABLE, "this evaluator starts")
        reporters = {selector: PodReporters() for selector in flag_sets}
        configs = [replace(self._config, selector=selector) for selector in flag_sets]
        named = zip(flag_sets, identities(configs), configs, strict=True)
        sources = [
            GrpcSource(name, identity, config, companion=self._companion(reporters[name]))
            for name, identity, config in named
        ]
        settings = replace(self._settings, start_deadline=0.0)
        store = Store(
            sources=flag_sets, bucketing=settings.bucketing, expose_bucketing=settings.show_bucketing
        )
        followers = Followers(
            sources, store, clock=self._clock, folder=self._folder(flag_sets), gc_policy=self._gc_policy
        )
        values = under(settings.context_values, store.context)
        service = EvaluationService(
            store, ContextSources(values, settings.context_from_header), self._clock, self._observed.observers
        )
        parts = StoreParts(service, settings, self._observed, None, NO_ADDITIONS)
        served = ServedSets(
            store,
            parts.routes(),
            asyncio.get_running_loop().create_task(_follow(followers)),
            parts.closers(),
            reporters,
            self._receipts,
        )
        store.subscribe(lambda _: served.first.set() if store.settled else None)
        return served

    def _companion(self, reporters: PodReporters) -> PodReporters | None:
        return None if self._settings.receipts == "off" else reporters

    def _folder(self, flag_sets: Sequence[str]) -> StateFolder | None:
        state = self._settings.state_dir
        if state is None:
            return None
        name = hashlib.sha256("\n".join(flag_sets).encode()).hexdigest()[:32]
        return StateFolder(state / "flag-sets" / name, None, self._clock)

    def _receipts(self, pod: PodAnswer) -> StoreReceipts | None:
        if self._settings.receipts == "off":
            return None
        node = self._settings.pod.node
        member = MemberText("", pod.namespace, pod.pod, pod.uid, node, version("flagstaff"))
        return StoreReceipts(member, random=secrets.SystemRandom().random)


async def _follow(followers: Followers) -> None:
    await followers.restore()
    await followers.run()


async def serve_node(
    settings: Settings,
    stop: asyncio.Event,
    clock: Callable[[], float],
    opened: Callable[[Ports], None] = lambda ports: log.info("listening", extra=asdict(ports)),
    again: float = AGAIN,
) -> None:
    """Serve the pods of a node until `stop` is set; `opened` is called once ports are open. `again`: seconds
    until the proxy is asked about all pods again. Raises as `evaluator.wiring.run` does.
    """
    if settings.pods_from is None:
        raise InvalidSettingError("--pods-from is missing: it names the proxy")
    node = _Node(settings.pods_from, settings, clock, again)
    serving = await serve(node.known, settings, clock=clock, additions=Additions(by_pod=node.by_pod))
    opened(serving.ports)
    try:
        await node.restore()
        await work_until(stop, node.run())
    finally:
        log.info("stopping")
        await node.close()
        await serving.stop()
