"""`flagstaff up`: the stages wired by hand, and an evaluator in the same process, without Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from controller.wiring.pipeline import LocalOptions, Pipeline, RevisionBuilt, open_pipeline
from evaluator.exchange import Exchange
from evaluator.flags.model import DIGEST_KEY
from evaluator.gc_policy import GcPolicy
from evaluator.settings import InvalidSettingError, Settings, from_env
from evaluator.store import Content, Fault, Report, Store
from evaluator.wiring import Ports, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.flagsets.lastgood import Saved
    from controller.sources.provider import Revision

__all__ = [
    "InvalidSettingError",
    "Local",
    "LocalEvent",
    "LocalOptions",
    "Ports",
    "Restored",
    "RevisionBuilt",
    "SourceDown",
    "SourceUp",
    "evaluator_settings",
    "open_local",
]

LOCAL_PAGES: Final = tuple(
    f"{scheme}://{host}{port}"
    for scheme in ("http", "https")
    for host in ("localhost", "127.0.0.1", "[::1]")
    for port in ("", ":*")
)
"""Origins whose pages may read answers, unless the environment names others."""


@dataclass(frozen=True, slots=True)
class SourceDown:
    """The source cannot be read; what is served stays."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SourceUp:
    """The source can be read again."""

    message: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The last good flag set was read back from disk, before the source answered."""

    saved: Saved


LocalEvent: TypeAlias = RevisionBuilt | SourceDown | SourceUp | Restored


@dataclass
class Local:
    """`flagstaff up`: a pipeline whose flag sets an evaluator in this process serves."""

    pipeline: Pipeline
    exchange: Exchange
    gc_policy: GcPolicy
    tell: Callable[[LocalEvent], None]
    _restored: Saved | None = field(default=None, init=False)
    _down: tuple[str, Revision | None] | None = field(default=None, init=False)
    """What was reported of a source that is down: the reason, and the revision that it was at."""

    async def restore(self) -> None:
        """Serve the last good flag set, if the state folder has one."""
        saved = self._restored = await asyncio.to_thread(self.pipeline.restore)
        if saved is not None:
            digest = saved.flag_set.metadata.get(DIGEST_KEY)
            content = Content(saved.flag_set, str(digest or "") or None)
            at = saved.saved_at.timestamp()
            await self.exchange.apply(Report(self.pipeline.shown, at, content, from_disk=True))

    async def run(self) -> None:
        """Follow the source until cancelled."""
        if self._restored is not None:
            self.tell(Restored(self._restored))
        async for _ in self.pipeline.source.changes():
            await self._look()

    async def _look(self) -> None:
        try:
            with self.gc_policy.growing():
                built = await self.pipeline.advance()
        except Setback as setback:
            await self._source_down(setback)
            return
        if self._down is not None:
            self._down = None
            self.tell(SourceUp("the source can be read again"))
        content = None
        if built is not None and built.composition.accepted:
            content = Content(built.composition.flag_set, built.composition.digest)
        await self.exchange.apply(Report(self.pipeline.shown, now().timestamp(), content))
        if built is not None:
            self.tell(await self.pipeline.blamed(built))

    async def _source_down(self, setback: Setback) -> None:
        fault = Fault(setback.message)
        await self.exchange.apply(Report(self.pipeline.shown, now().timestamp(), fault=fault))
        down = (setback.reason, self.pipeline.tried)
        if down != self._down:
            self._down = down
            self.tell(SourceDown(setback.reason, setback.message))


@contextlib.asynccontextmanager
async def open_local(
    options: LocalOptions, settings: Settings, tell: Callable[[LocalEvent], None]
) -> AsyncIterator[tuple[Local, Ports]]:
    """Ports open and stages wired; run the Local to follow the source.

    The last good flag set is read back before a port opens, so that nobody is told that its flags are
    missing. Raises Setback, OSError for a port, InvalidSettingError.
    """
    async with open_pipeline(options) as pipeline:
        store = Store(
            bucketing=options.bucketing,
            expose_bucketing=options.show_bucketing,
            sources=(pipeline.shown,),
        )
        gc_policy = GcPolicy()
        exchange = Exchange(store, lambda: now().timestamp(), gc_policy)
        local = Local(pipeline, exchange, gc_policy, tell)
        await local.restore()
        serving = await serve(store, settings)
        try:
            yield local, serving.ports
        finally:
            await serving.stop()


def evaluator_settings(*, host: str, **ports: int | None) -> Settings:
    """The environment's settings (FLAGD_*), under `host` and those `ports` that are not None. Raises
    InvalidSettingError.
    """
    given: dict[str, Any] = {name: port for name, port in ports.items() if port is not None}
    settings = from_env(os.environ)
    return replace(settings, host=host, cors_origins=settings.cors_origins or LOCAL_PAGES, **given)
