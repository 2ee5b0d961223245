"""Puts the evaluator's parts together. The only place that names concrete parts and reads the clock."""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import signal
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from evaluator.exchange import Exchange
from evaluator.heap import Heap
from evaluator.server.ports import Ports, Serving
from evaluator.settings import InvalidSettingError, Settings, from_env
from evaluator.store import Store
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.follow import Followers
from evaluator.sync.opening import open_sources
from evaluator.wiring.serving import serve, unix_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.store import Snapshot
    from evaluator.sync.receipts import Receipts

__all__ = [
    "Exchange", "Heap", "InvalidSettingError", "Ports", "Serving", "Settings", "Store", "from_env", "run", "serve",
]  # fmt: skip

_SWITCH_SECONDS: Final = 0.001
"""How long the loop waits for a thread that reads or compiles a flag set, each time it has slept: Python's own 5 ms would be most
of an evaluation's latency meanwhile. For a process that is the evaluator's alone."""

log = logging.getLogger(__name__)


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


def _receipts(settings: Settings, clock: Callable[[], float]) -> Receipts | None:
    if settings.receipts == "off" or all(each.provider != "grpc" for each in settings.sources):
        return None
    # A twentieth of the start, and most evaluators have nobody to send receipts to.
    from importlib.metadata import version  # noqa: PLC0415

    from evaluator.sync.receipts import Receipts  # noqa: PLC0415
    from evaluator.wire.delivery import MemberText  # noqa: PLC0415

    pod = settings.pod
    instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    member = MemberText(instance, pod.namespace, pod.name, pod.uid, pod.node, version("flagstaff"))
    return Receipts(member, clock=clock, random=secrets.SystemRandom().random)


def _log_served(snapshot: Snapshot) -> None:
    log.info(
        "flags served",
        extra={
            "flags": len(snapshot.flag_set.flags),
            "revision": snapshot.revision,
            "digest": snapshot.digest,
        },
    )
