"""Runs kopf's watches in a thread, and restarts them whenever they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import kopf
import uvloop

from controller.kube.kopf.kopf_watches import configure, quieten_kopf, register, take_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.kinds import ResourceType
    from controller.kube.kopf.kopf_watches import Relisted
    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth

log = logging.getLogger(__name__)

_PAUSES: Final = (1.0, 2.0, 5.0, 10.0)
"""Seconds before watching begins anew, after it ended one, two, … times in a row."""
_CALM_SECONDS: Final = 60.0
"""Watching that lasted longer did not fail in a row."""
_END_SECONDS: Final = 15.0
_ASK_SECONDS: Final = 0.25
_CANCEL_SECONDS: Final = 1.0


@dataclass
class KopfThread:
    """kopf in a thread of its own, started again whenever it ends.

    In a thread, since kopf cancels all tasks of its loop when it ends, also those that are not its own.
    """

    cache: Cache
    kinds: Sequence[ResourceType]
    relisted: Relisted
    health: WatchHealth
    namespaces: Sequence[str] = ()
    """The watched namespaces; None: all."""
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    """The event loop of kopf's thread while that runs."""
    _stop: asyncio.Event | None = field(default=None, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        quieten_kopf()
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            began = clock()
            why = await self._once()
            failures = 0 if clock() - began > _CALM_SECONDS else failures + 1
            pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
            log.warning("the watches ended and restart in %g s: %s", pause, why)
            await asyncio.sleep(pause)

    def _end(self) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)

    async def _once(self) -> str:
        """Watch until kopf ends; return the cause."""
        home = asyncio.get_running_loop()
        ended: asyncio.Future[str] = home.create_future()

        def end(why: str) -> None:
            if not ended.done():
                ended.set_result(why)

        def work() -> None:
            why = self._operate(home)
            with contextlib.suppress(RuntimeError):
                home.call_soon_threadsafe(end, why)

        threading.Thread(target=work, name="watches", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        finally:
            # Until it ends: what was only just started has nothing to be stopped by yet.
            for _ in range(int(_END_SECONDS / _ASK_SECONDS)):
                if ended.done():
                    break
                self._end()
                await asyncio.wait({ended}, timeout=_ASK_SECONDS)

    def _operate(self, home: asyncio.AbstractEventLoop) -> str:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._operator(home))
        except Exception as error:  # noqa: BLE001 - any error restarts kopf
            return f"{type(error).__name__}: {error}"[:300]
        else:
            return "they were stopped"
        finally:
            self._loop = self._stop = None

    async def _operator(self, home: asyncio.AbstractEventLoop) -> None:
        handlers, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        configure(settings)
        # It ends this process otherwise, where kopf alone is to end.
        settings.process.ultimate_exiting_timeout = None

        def take(type_: ResourceType, body: dict[str, Any], event_type: str | None) -> None:
            home.call_soon_threadsafe(take_in, self.cache, self.relisted, type_, body, event_type)

        register(handlers, self.kinds, self.health, take)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        _cancel_again(self._loop)
        await kopf.operator(
            registry=handlers,
            settings=settings,
            standalone=True,
            clusterwide=not self.namespaces,
            namespaces=tuple(self.namespaces),
            stop_flag=self._stop,
        )


def _cancel_again(
    loop: asyncio.AbstractEventLoop, before: frozenset[asyncio.Task[object]] = frozenset()
) -> None:
    """Every second, cancel again the tasks that were cancelled a second ago and still run.

    Where a watch fails in the moment in which kopf cancels it, kopf tries it again, and then waits for its
    end for ever.
    """
    cancelled = frozenset(task for task in asyncio.all_tasks(loop) if task.cancelling())
    for task in cancelled & before:
        task.cancel()
    loop.call_later(_CANCEL_SECONDS, _cancel_again, loop, cancelled)
