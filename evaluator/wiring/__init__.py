"""Connects the evaluator's parts. The only place that names concrete classes and reads the clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import signal
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from evaluator.host import durable
from evaluator.host.gc_policy import GcPolicy
from evaluator.server.ports import Ports, Serving
from evaluator.settings import InvalidSettingError, Settings
from evaluator.store.history import History
from evaluator.store.store import Store
from evaluator.sync.config import FILES, InvalidSourceError
from evaluator.sync.follow import Followers
from evaluator.sync.lastgood import StateFolder
from evaluator.sync.opening import open_sources
from evaluator.wiring.serving import Additions, serve, unix_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evaluator.receipts.endpoint import Endpoint
    from evaluator.receipts.reporter import Receipts
    from evaluator.store.store import Snapshot
    from evaluator.sync.source import SyncSource

__all__ = ["Additions", "Ports", "Serving", "run", "serve"]

_SWITCH_SECONDS: Final = 0.001
"""Seconds for which the loop waits for a thread that reads or compiles a flag set, after each sleep: Python's
own 5 ms would be most of an evaluation's latency then. Set only in an evaluator's own process.
"""

log = logging.getLogger(__name__)


async def run(settings: Settings, *, clock: Callable[[], float] = unix_time) -> None:
    """Serve last good sets, open the ports and follow the sources, reachable or not, until SIGTERM or SIGINT
    and the end of requests in flight. Raises OSError for an unusable port, socket, certificate or state
    folder, InvalidSettingError for a source that this installation cannot follow.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    allow_connections()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with _lock_state(settings.state_dir):
        await _run(settings, stop, clock)


async def _run(settings: Settings, stop: asyncio.Event, clock: Callable[[], float]) -> None:
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
    serving = await serve(
        store,
        settings,
        clock=clock,
        context=store.context,
        history=history,
        additions=Additions(saving=followers.keepers),
    )
    log.info("listening", extra=asdict(serving.ports))
    following = asyncio.create_task(_follow(followers, *endpoints, history))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A second signal ends the process at once, without a traceback.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
    log.info("stopping")
    stopping.cancel()
    following.cancel()
    await serving.stop()
    await asyncio.gather(following, return_exceptions=True)
    if not following.cancelled() and (failure := following.exception()) is not None:
        raise failure


async def _follow(*parts: Followers | Endpoint | History | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        for part in parts:
            if part is not None:
                tasks.create_task(part.run())


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
    settings: Settings, sources: Sequence[SyncSource], receipts: Receipts | None
) -> list[Endpoint]:
    """Return the servers of receipts for file sources."""
    if not settings.receipts_to or receipts is None:
        return []
    from evaluator.receipts.endpoint import Endpoint  # noqa: PLC0415 - loads grpcio

    named = zip(sources, settings.sources, strict=True)
    files = (source.name for source, config in named if config.provider in FILES)
    pairs = zip(files, settings.receipts_to, strict=True)
    return [Endpoint(config, receipts.of(file, config.selector)) for file, config in pairs]


@contextlib.contextmanager
def _lock_state(state_dir: Path | None) -> Iterator[None]:
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


def _receipts(settings: Settings) -> Receipts | None:
    wanted = settings.receipts_to or any(source.provider == "grpc" for source in settings.sources)
    if settings.receipts == "off" or not wanted:
        return None
    # Imported here: a twentieth of the start time, and most evaluators send no receipts.
    from importlib.metadata import version  # noqa: PLC0415

    from evaluator.receipts.reporter import Receipts  # noqa: PLC0415
    from evaluator.wire.delivery import MemberText  # noqa: PLC0415

    pod = settings.pod
    instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    member = MemberText(instance, pod.namespace, pod.name, pod.uid, pod.node, version("flagstaff"))
    return Receipts(member, random=secrets.SystemRandom().random)


def _log_served(snapshot: Snapshot) -> None:
    log.info(
        "flags served",
        extra={
            "flags": len(snapshot.flag_set.flags),
            "revision": snapshot.revision,
            "digest": snapshot.digest,
        },
    )
