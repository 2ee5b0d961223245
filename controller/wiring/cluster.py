"""Cluster mode: watch streams, loops and servers joined in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from controller.api import configuration, flagset, flagsource, receiver
from controller.api.kinds import WATCHED
from controller.artifacts import server as artifact_server
from controller.artifacts.server import ArtifactServer
from controller.artifacts.storages import Storages
from controller.configurations.name_conflicts import ContestedReconciler
from controller.configurations.serving import ServingReconciler
from controller.configurations.validation import ConfigurationReconciler
from controller.flagsets.fetch import ArtifactReader
from controller.flagsets.provenance import ProvenanceDetail
from controller.flagsets.reconciler import FlagSetReconciler
from controller.handlers.kopf_thread import KopfThread
from controller.kube.client import Cluster
from controller.receiver.reconciler import FlagReceiverReconciler
from controller.receiver.server import LIMITS
from controller.runtime import management
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.loop import Loop, Reconciler
from controller.runtime.metrics import Metrics
from controller.runtime.queue import KeyedQueue
from controller.runtime.watch_health import WatchHealth
from controller.runtime.watches import indexes_of
from controller.sources.git.factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from controller.wiring.replica import STAGES, Controller, Ports
from controller.wiring.tokens import TokenFile
from evaluator.http.server.limits import Limits
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.api.meta import ObjectKey
    from controller.settings import ControllerSettings

log = logging.getLogger(__name__)

SOURCES_AT_ONCE: Final = 128
"""A source whose server does not answer keeps its place for its whole timeout; the git programs at a time are
bounded elsewhere.
"""
_DRAIN: Final = 2.0


@contextlib.asynccontextmanager
async def open_controller(
    settings: ControllerSettings, objects: Cache, health: WatchHealth
) -> AsyncIterator[Controller]:
    """Ports open and parts joined; `work` does the rest. Raises OSError where a port is taken,
    InvalidSettingError, ConfigException.
    """
    queues: dict[str, KeyedQueue[ObjectKey]] = {
        stage.type.kind: queue_of(stage.type.kind, settings.workers) for stage in STAGES
    }
    metrics = Metrics(objects, queues, now, health)
    cluster = await Cluster.connect(settings.kubeconfig or None, now=now, wrote=metrics.wrote)
    tokens = await asyncio.to_thread(TokenFile, settings.artifact_tokens_file)
    controller = Controller(settings, cluster, objects, metrics, health)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cluster.close)
        served = ArtifactServer(lambda: controller.storages, lambda: tokens.tokens)
        artifacts = Listener(served.routes(), artifact_server.LIMITS, name="artifacts")
        managed = management.routes(controller.readiness, metrics.text)
        manager = Listener(managed, Limits(), name="management")
        webhooks = Listener(controller.receiver().routes(), LIMITS, name="receiver")
        controller.ports = Ports(
            management=await _open(stack, manager, settings.host, settings.management_port),
            artifacts=await _open(stack, artifacts, settings.host, settings.artifact_port),
            receiver=await _open(stack, webhooks, settings.host, settings.receiver_port),
        )
        controller.storages = Storages(
            settings.storage_path / "artifacts", _address(settings, controller.ports.artifacts)
        )
        stack.callback(controller.storages.close)
        git = GitFactory(
            cluster.secret,
            settings.storage_path / "mirrors",
            allow_local=settings.allow_local,
            authors=settings.provenance is ProvenanceDetail.FULL,
        )
        stack.push_async_callback(git.close)
        stack.callback(asyncio.create_task(tokens.follow()).cancel)
        controller.loops = {
            kind: Loop(reconciler, objects, cluster, now=now, queue=queues[kind], observer=metrics)
            for kind, reconciler in _reconcilers(controller, controller.storages, tokens, git).items()
        }
        yield controller


def queue_of(kind: str, workers: int) -> KeyedQueue[ObjectKey]:
    """Of one kind's keys; half of its places are one namespace's at most."""
    places = SOURCES_AT_ONCE if kind == flagsource.KIND else 2 * workers
    clock = asyncio.get_running_loop().time
    return KeyedQueue(clock, random.random, places=places, group=attrgetter("namespace"))


async def _open(stack: contextlib.AsyncExitStack, listener: Listener, host: str, port: int) -> int:
    bound = await listener.start(host, port)
    stack.push_async_callback(listener.drain, _DRAIN)
    return bound


def _reconcilers(
    controller: Controller, storages: Storages, tokens: TokenFile, git: GitFactory
) -> dict[str, Reconciler]:
    settings, cluster, objects = controller.settings, controller.cluster, controller.objects
    controller.git = git

    # Our own, too: a replica that does not hold an artifact asks for it.
    own = _address(settings, controller.ports.artifacts).removeprefix("http://")

    def local(path: str) -> bytes | None:
        found = storages.read(path)
        return None if found is None else found[0]

    detail = settings.provenance
    reader = ArtifactReader(local, settings.artifact_hosts, own=own, token=tokens.first)
    return {
        flagsource.KIND: SourceReconciler({"git": git}, storages, controller.expected, random.random),
        flagset.KIND: FlagSetReconciler(objects, reader, cluster, controller.applied, random.random, detail),
        configuration.KIND: ContestedReconciler(
            ServingReconciler(ConfigurationReconciler(objects), objects, controller.proxies),
            controller.claims,
        ),
        configuration.FLAG_KIND: ContestedReconciler(ConfigurationReconciler(objects), controller.claims),
        receiver.KIND: FlagReceiverReconciler(cluster.secret, controller.endpoints),
    }


def _address(settings: ControllerSettings, port: int) -> str:
    """Where others reach the artifact server."""
    service = f"flagstaff-artifacts.{settings.namespace}.svc.cluster.local.:{port}"
    return f"http://{settings.artifact_address or service}"


@contextlib.asynccontextmanager
async def working(
    settings: ControllerSettings,
    objects: Cache,
    health: WatchHealth,
    say: Callable[[str], None],
    ended: Callable[[], None],
) -> AsyncIterator[Controller]:
    """A controller that works for as long as the block lasts; `ended` is called should it stop before. Raises
    OSError where a port is taken.
    """
    async with open_controller(settings, objects, health) as controller:
        ports = controller.ports
        say(
            f"listening: management {ports.management}, artifacts {ports.artifacts}, "
            f"receiver {ports.receiver}"
        )
        task = asyncio.create_task(controller.work())
        task.add_done_callback(lambda _: ended())
        try:
            yield controller
        finally:
            by_itself = task.done()
            task.cancel()
            (left,) = await asyncio.gather(task, return_exceptions=True)
        if by_itself and not task.cancelled():
            task.result()
        elif isinstance(left, Exception):
            # We were asked to stop, and did: what went wrong on the way out is no failure of ours.
            log.warning("the work did not end cleanly", exc_info=left)


async def run_controller(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Watch and work until SIGTERM or SIGINT; a second one ends it at once. Raises OSError where a port is
    taken.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    objects, health = Cache(indexes_of(STAGES)), WatchHealth(time.monotonic)
    async with working(settings, objects, health, say, stop.set) as controller:
        watches = KopfThread(objects, WATCHED, controller.relisted, health, settings.namespaces)
        controller.watch_again = watches.again
        watching = asyncio.create_task(watches.run())
        await stop.wait()
        for number in signals:
            loop.remove_signal_handler(number)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
