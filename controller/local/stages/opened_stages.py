"""The stages of local mode over a folder, for as long as a block lasts, and one pass of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.local.commits import open_backend
from controller.local.stages.local_events import RevisionBuilt, SourceChecked
from controller.local.stages.local_stages import LocalStages
from controller.runtime.process.temporary import sweep_temporary
from controller.runtime.reconciling.loop import Loop
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.local.local_options import LocalOptions
    from controller.local.stages.local_stages import Growing, Serve
    from controller.sources.backend import LocalBackend
    from evaluator.flags.model import FlagSet


async def _serve_nothing(_flag_set: FlagSet, _digest: str) -> None:
    """Serves nothing."""


@contextlib.asynccontextmanager
async def stages_of(
    options: LocalOptions, source: LocalBackend, folder: Path, growing: Growing, serve: Serve
) -> AsyncIterator[LocalStages]:
    """The stages over a state folder. Raises Stalled."""
    # A process that was killed may have left files of a commit behind.
    await asyncio.to_thread(sweep_temporary)
    stages = LocalStages(options, source, folder, growing, serve)
    # Results of reconciles are reported as events.
    results = logging.getLogger(Loop.__module__)
    level = results.level
    results.setLevel(logging.ERROR)
    try:
        yield stages
    finally:
        results.setLevel(level)
        if stages.rollouts is not None:
            await stages.rollouts.close()
        await asyncio.to_thread(stages.storages.close)


@contextlib.asynccontextmanager
async def open_stages(options: LocalOptions) -> AsyncIterator[LocalStages]:
    """The same for the source that the options name; nothing is served. Raises Setback."""
    async with (
        open_backend(options) as (source, folder),
        stages_of(options, source, folder, contextlib.nullcontext, _serve_nothing) as stages,
    ):
        yield stages


async def build_once(options: LocalOptions) -> RevisionBuilt:
    """What the source is at, without serving it. Raises Setback where the source cannot be read."""
    async with open_stages(replace(options, rollouts=())) as stages:
        await stages.restore()
        running = asyncio.create_task(stages.run())
        try:
            async for event in stages.events():
                if isinstance(event, RevisionBuilt):
                    return event
                if isinstance(event, SourceChecked) and event.reason:
                    raise Failed(event.reason, event.message)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    raise RuntimeError("events do not end")
