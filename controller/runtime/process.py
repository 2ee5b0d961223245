"""What a process of the controller needs: work that repeats, a management port, and leadership."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.runtime.setbacks import Failed, Setback
from controller.runtime.shards import WHOLE, Shard
from evaluator.http.messages import Headers, Request, Response, Streamed
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evaluator.http.offload import Offload


log = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds of pause after a failed turn."""


async def forever(turn: Callable[[], Awaitable[None]], pause: float = PAUSE) -> None:
    """Repeat `turn` until cancelled; an exception is logged, and followed by a pause in
    seconds."""
    while True:
        try:
            await turn()
        except Exception:
            log.exception("an unexpected error; trying again in %g s", pause)
            await asyncio.sleep(pause)


_JSON: Final[Headers] = (("content-type", "application/json"),)
_PROMETHEUS: Final[Headers] = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)


def routes(readiness: Callable[[], dict[str, Any]], metrics: Callable[[], bytes], offload: Offload) -> Routes:
    """`/healthz`, `/readyz` and `/metrics`. `readiness` says `{"ready": bool, …}`; 503 until it is true.
    `offload`: has `metrics` called in a thread, since there may be many.
    """

    def healthz(_: Request) -> Response:
        return Response(200, b'{"status":"ok"}', _JSON)

    def readyz(_: Request) -> Response:
        report = readiness()
        return Response(200 if report["ready"] else 503, json.dumps(report).encode(), _JSON)

    def scrape(request: Request) -> Response | Streamed:
        return offload.answer(request, _PROMETHEUS, metrics)

    paths = {"/healthz": healthz, "/readyz": readyz, "/metrics": scrape}
    return Routes(http={(method, path): run for path, run in paths.items() for method in ("GET", "HEAD")})


AGAIN: Final = 1.0
"""Seconds between attempts to set the label, and after work that failed."""


class Election(Protocol):
    """Chooses one of several replicas."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` whenever this replica is chosen, for as long as it is. Ends when `work` does."""

    def holds(self) -> bool:
        """Whether this replica is still chosen by its own monotonic clock: no other is yet. It may have been
        paused, or its event loop blocked, since it last confirmed this.
        """

    async def release(self) -> None:
        """Release the leadership at once. Never raises."""


@dataclass(slots=True)
class Role:
    """Whether this replica leads now. Written by `Leadership` alone."""

    leading: bool = False
    election: Election | None = None
    """None: there is one replica."""
    lease: str = ""
    """What replicas compete for."""
    shard: Shard = WHOLE
    """What the leader reconciles."""

    def require_leading(self) -> None:
        """Asked before each write of a leader. Raises Failed (NotLeading) once another may lead."""
        if not self.leading or not (self.election is None or self.election.holds()):
            raise Failed("NotLeading", "this replica leads no longer; the next leader does this")


class Leadership:
    """Works while this replica leads, and keeps the label of its pod up to date."""

    def __init__(
        self,
        role: Role,
        election: Election | None,
        label: Callable[[bool], Awaitable[None]] | None,
        *,
        again: float = AGAIN,
    ) -> None:
        """`election`: None where there is one replica, which always leads. `label` sets the leader's label or
        removes it, and raises Setback; None: no label is kept. `again`: seconds, see AGAIN.
        """
        self._role = role
        self._election = role.election = election
        self._label = label
        self._again = again
        self._mislabelled = asyncio.Event()
        """The label may not match the role: a process before us may have set it."""
        self._mislabelled.set()
        self._labelling = asyncio.Lock()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` whenever this replica leads, until cancelled."""
        keeping = asyncio.create_task(forever(self._keep_label, self._again))
        try:
            await forever(lambda: self._campaign(work), self._again)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _campaign(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._election is None:
            await self._lead(work)
            return
        try:
            await self._election.lead(lambda: self._lead(work))
        finally:
            await self._election.release()

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        self._role.leading = True
        await self._set_label()
        try:
            await work()
        finally:
            self._role.leading = False
            await self._set_label()

    async def _keep_label(self) -> None:
        """Set the label where that failed, or was not done yet."""
        await self._mislabelled.wait()
        await asyncio.sleep(self._again)
        if self._mislabelled.is_set():
            await self._set_label()

    async def _set_label(self) -> None:
        async with self._labelling:
            self._mislabelled.set()
            if self._label is not None:
                try:
                    await self._label(self._role.leading)
                except Setback as setback:
                    log.warning("this pod could not be labelled as the leader: %s", setback.message)
                    return
            self._mislabelled.clear()
