"""The flag sets of a node's pods: each combination that a pod may have is served as by an evaluator of its
own, from its own stream and its own last good flags, so that no request can reach another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from evaluator.node.pod_addresses import PodAddresses, PodAnswer
    from evaluator.receipts.reporter import Reporter, StoreReceipts
    from evaluator.store.store import Store
    from evaluator.wire.delivery import Ask
    from evaluator.wiring import PortRoutes

log = logging.getLogger(__name__)

FIRST_FLAGS: Final = 3.0
"""Seconds for which the first request of a flag set waits for its flags."""


class PodReporters:
    """Reports one source in the name of each pod that it is served to. Implements `Companion`."""

    def __init__(self) -> None:
        self._reporters: dict[str, Reporter] = {}
        """By the pod's uid."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ask: Ask | None = None

    def add(self, uid: str, reporter: Reporter) -> None:
        """Report for one more pod."""
        self._reporters[uid] = reporter
        self._start(uid)

    def remove(self, uid: str) -> None:
        """Report for this pod no longer: it is gone, or has other flags."""
        del self._reporters[uid]
        if (task := self._tasks.pop(uid, None)) is not None:
            task.cancel()

    async def run(self, ask: Ask) -> None:
        """Report on a new connection, until cancelled."""
        self._ask = ask
        try:
            for uid in self._reporters:
                self._start(uid)
            await asyncio.Event().wait()
        finally:
            self._ask, tasks = None, list(self._tasks.values())
            self._tasks.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self, ask: Ask) -> None:
        """Say goodbye for all pods. Never raises; takes at most a second."""
        await asyncio.gather(*(reporter.leave(ask) for reporter in self._reporters.values()))

    def was_taken_within(self, seconds: float) -> bool:
        """Return whether the peer answered within the last `seconds`."""
        return any(reporter.was_taken_within(seconds) for reporter in self._reporters.values())

    def _start(self, uid: str) -> None:
        if self._ask is not None:
            run = self._reporters[uid].run(self._ask)
            self._tasks[uid] = asyncio.get_running_loop().create_task(run)


@dataclass(slots=True)
class ServedSets:
    """The flag sets of some pods, served together."""

    store: Store
    routes: PortRoutes
    task: asyncio.Task[None]
    """Follows the sources."""
    closers: Sequence[Callable[[], None]]
    reporters: Mapping[str, PodReporters]
    """Of each source, by its selector."""
    receipts_of: Callable[[PodAnswer], StoreReceipts | None]
    """Makes the receipts of a pod; None: none are sent."""
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there are flags, or the first request has waited for them."""
    _pods: dict[PodAnswer, Callable[[], None]] = field(default_factory=dict)
    """What ends the receipts of each pod."""

    @property
    def pods(self) -> int:
        """The number of pods that are served."""
        return len(self._pods)

    def count(self, pod: PodAnswer) -> None:
        """Report for this pod from now on."""
        if pod in self._pods:
            return
        receipts = self.receipts_of(pod)
        if receipts is None:
            self._pods[pod] = lambda: None
            return
        made = {selector: receipts.of(selector, selector) for selector in self.reporters}
        self._pods[pod] = receipts.follow(self.store)
        for selector, reporter in made.items():
            self.reporters[selector].add(pod.uid, reporter)

    def keep(self, pods: Iterable[PodAnswer]) -> None:
        """Report for these pods alone."""
        for pod in self._pods.keys() - set(pods):
            self._pods.pop(pod)()
            for reporters in self.reporters.values():
                reporters.remove(pod.uid)

    async def wait_for_flags(self) -> None:
        """Return once there are flags, or FIRST_FLAGS are over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.first.wait(), FIRST_FLAGS)
        self.first.set()

    async def close(self) -> None:
        """Follow nothing more, and end the streams."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for close in self.closers:
            close()


class PodFlagSets:
    """Implements `PodSets` for the pods of a node."""

    def __init__(
        self,
        addresses: PodAddresses,
        open_sets: Callable[[tuple[str, ...]], Awaitable[ServedSets]],
        most: int,
    ) -> None:
        """open_sets: begins to serve these, from their last good flags at first. most: selectors in all."""
        self._addresses, self._open_sets, self._most = addresses, open_sets, most
        self._served: dict[tuple[str, ...], ServedSets] = {}
        self._opening: dict[tuple[str, ...], asyncio.Task[ServedSets]] = {}

    def at_once(self, peer: str, selector: str) -> PortRoutes | None:
        """The routes for a connection; None: they are not known yet. Raises RpcError for one without."""
        pod = self._addresses.known(peer, selector)
        served = None if pod is None else self._served.get(_sets(pod))
        if pod is None or served is None or not served.first.is_set():
            return None
        served.count(pod)
        return served.routes

    async def later(self, peer: str, selector: str) -> PortRoutes:
        """The same, once they are known. Raises RpcError."""
        pod = await self._addresses.find(peer, selector)
        served = await self.open(_sets(pod))
        served.count(pod)
        await served.wait_for_flags()
        return served.routes

    async def open(self, flag_sets: tuple[str, ...]) -> ServedSets:
        """Serve these from now on. Raises RpcError where that would be too many."""
        if (served := self._served.get(flag_sets)) is not None:
            return served
        task = self._opening.get(flag_sets)
        if task is None:
            await self.sweep()
            if sum(map(len, (*self._served, *self._opening))) + len(flag_sets) > self._most:
                raise RpcError(
                    Code.RESOURCE_EXHAUSTED,
                    f"the pods of this node have {self._most} flag sets already; raise --max-flag-sets",
                )
            task = self._opening[flag_sets] = asyncio.ensure_future(self._open_sets(flag_sets))
            task.add_done_callback(lambda _: self._opening.pop(flag_sets, None))
        served = self._served[flag_sets] = await asyncio.shield(task)
        return served

    async def sweep(self) -> None:
        """Forget the pods that are gone, and the flag sets that no pod has."""
        pods = self._addresses.pods
        for flag_sets, served in tuple(self._served.items()):
            mine = {pod for pod in pods if pod.flag_sets == flag_sets}
            served.keep(mine)
            if not mine:
                del self._served[flag_sets]
                await served.close()
                log.info("no pod of this node has %s any more", ", ".join(flag_sets))

    async def close(self) -> None:
        """Serve nothing more."""
        await asyncio.gather(*(served.close() for served in self._served.values()))


def _sets(pod: PodAnswer) -> tuple[str, ...]:
    """The flag sets that a pod may have. Raises RpcError PERMISSION_DENIED where it gets none."""
    if pod.refusal:
        raise RpcError(Code.PERMISSION_DENIED, pod.refusal)
    return pod.flag_sets
