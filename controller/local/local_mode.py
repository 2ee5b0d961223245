"""`flagstaff up`: the stages of a cluster, and an evaluator in the same process, without Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.local.commits import open_backend
from controller.local.local_events import LocalEvent, Restored, SourceChecked
from controller.local.local_page import LocalPage, reach_routes
from controller.local.local_progress import LocalOverrides
from controller.local.local_providers import provider_of
from controller.local.local_stages import LocalStages, stages_of
from controller.page.page_server import PageServer, PageStreams
from controller.proxy.receipt_service import fleet, routes
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.model import DIGEST_KEY, FlagSet
from evaluator.host.gc_policy import GcPolicy
from evaluator.host.signals import run_together
from evaluator.http.offload import Offload
from evaluator.http.routes import merge, without_pages
from evaluator.settings import InvalidSettingError, Settings, from_env
from evaluator.store.store import Content, Fault, Report, SnapshotSwapper, Store
from evaluator.wiring import Additions, Ports, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from controller.local.local_fleet import LocalFleet
    from controller.local.local_options import LocalOptions
    from controller.page.page_source import PageSource
    from evaluator.flags.saved import Saved
    from evaluator.http.messages import Request, Response

__all__ = ["InvalidSettingError", "Local", "Ports", "Settings", "evaluator_settings", "open_local"]

LOCAL_PAGES: Final = tuple(
    f"{scheme}://{host}{port}"
    for scheme in ("http", "https")
    for host in ("localhost", "127.0.0.1", "[::1]")
    for port in ("", ":*")
)
"""Origins whose pages may read answers, unless the environment names others."""


@dataclass
class Local:
    """`flagstaff up`: stages whose flag sets an evaluator in this process serves."""

    stages: LocalStages
    exchange: SnapshotSwapper
    report: Callable[[LocalEvent], None]
    overrides: LocalOverrides
    page: LocalPage
    _restored: Saved | None = field(default=None, init=False)
    _down: SourceChecked = field(default=SourceChecked(), init=False)
    """The last reported error of a source that is down."""

    @property
    def display_name(self) -> str:
        """The source as people may see it: without a name, password or token."""
        return self.stages.source.display_name

    async def restore(self) -> None:
        """Serve the last good flag set, if the state folder has one."""
        saved = self._restored = await self.stages.restore()
        if saved is not None:
            digest = saved.flag_set.metadata.get(DIGEST_KEY)
            known = str(digest or "") or None
            served = await self.exchange.read(partial(self.overrides.apply, saved.flag_set, known))
            content = Content(*served)
            self.page.define(saved.flag_set, self.overrides.objects(saved.flag_set))
            at = saved.saved_at.timestamp()
            await self.exchange.apply(Report(self.display_name, at, content, from_disk=True))

    async def run(self) -> None:
        """Follow the source until cancelled. Raises what `report` raises."""
        if self._restored is not None:
            self.report(Restored(self._restored))
        await run_together(self.stages.run(), self._follow(), self.page.run())

    async def _follow(self) -> None:
        async for event in self.stages.events():
            self.page.change()
            if isinstance(event, SourceChecked):
                await self._report_check(event)
            else:
                self.report(event)

    async def _report_check(self, checked: SourceChecked) -> None:
        fault = Fault(checked.message) if checked.reason else None
        await self.exchange.apply(Report(self.display_name, now().timestamp(), fault=fault))
        before, self._down = self._down, checked
        if checked.reason and checked != before:
            self.report(checked)
        elif before.reason and not checked.reason:
            self.report(SourceChecked(message="the source can be read again"))


@contextlib.asynccontextmanager
async def open_local(
    options: LocalOptions, settings: Settings, report: Callable[[LocalEvent], None]
) -> AsyncIterator[tuple[Local, Ports]]:
    """Ports open and stages wired; run the Local to follow the source.

    The last good flag set is read back before a port opens, so that no client gets the answer that its flags
    are missing. Raises Setback, OSError for a port, InvalidSettingError.
    """
    gc_policy = GcPolicy()
    async with open_backend(options) as (source, folder):
        store = Store(
            bucketing=options.bucketing,
            expose_bucketing=options.show_bucketing,
            sources=(source.display_name,),
        )
        exchange = SnapshotSwapper(store, lambda: now().timestamp(), gc_policy)

        overrides = LocalOverrides(options.overrides)
        page = LocalPage(options, await asyncio.to_thread(_repository_of, options))
        store.subscribe(lambda snapshot: page.serve(snapshot.compiled))
        apply = partial(_apply, exchange, source.display_name, overrides, page)
        async with stages_of(options, source, folder, gc_policy.pause_full_collections, apply) as stages:
            page.stages, page.fleet = stages.objects, partial(fleet, stages.fleet.receipts)
            stages.objects.react(page.show_change)
            stages.fleet.digest_behind = overrides.digest_behind
            local = Local(stages, exchange, report, overrides, page)
            await local.restore()
            serving = await serve(store, settings, additions=page_additions(page, stages.fleet))
            try:
                yield local, serving.ports
            finally:
                await serving.stop()


def _repository_of(options: LocalOptions) -> Path | None:
    """The repository of the source, where it is on this machine."""
    try:
        return provider_of(options.source).folder(options.source)
    except Setback:
        return None


def page_additions(page: LocalPage, fleet: LocalFleet) -> Additions:
    """The page, and what it counts; who serves the flags, and its receipts."""

    async def source_for(_: Request) -> PageSource | Response:
        page.open()
        return page

    streams = PageStreams(asyncio.get_running_loop(), lambda _: lambda: page.version)
    server = PageServer(source_for, streams, now, local=True)
    page.notify = streams.notify
    offload = Offload()
    beside = (reach_routes(page, offload), without_pages(routes(fleet.receipts, offload)))
    return Additions(
        observers=(page.evaluations.count,),
        management=merge(server.routes(), *beside),
        sync=fleet.receipts.routes(),
        streams=fleet,
        closers=(server.close, offload.close),
    )


async def _apply(
    exchange: SnapshotSwapper,
    source: str,
    overrides: LocalOverrides,
    page: LocalPage,
    flag_set: FlagSet,
    digest: str,
) -> None:
    """Serve the newest flag set of the source."""
    served = await exchange.read(partial(overrides.apply, flag_set, digest))
    page.define(flag_set, overrides.objects(flag_set))
    await exchange.apply(Report(source, now().timestamp(), Content(*served)))


def evaluator_settings(*, host: str, **ports: int | None) -> Settings:
    """The environment's settings (FLAGD_*), but for `host` and given `ports`. Raises InvalidSettingError."""
    given: dict[str, Any] = {name: port for name, port in ports.items() if port is not None}
    settings = from_env(os.environ)
    return replace(settings, host=host, cors_origins=settings.cors_origins or LOCAL_PAGES, **given)
