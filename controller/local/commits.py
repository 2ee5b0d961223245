"""The source of a verb that needs no cluster, its folder, and the files of one of its commits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from controller.artifacts.archive import pack, unpack
from controller.local.local_providers import provider_of
from controller.local.state import StateIdentity, state_folder
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.files.quarantine import quarantine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from controller.local.local_options import LocalOptions
    from controller.sources.backend import Fetched, LocalBackend, Revision


@contextlib.asynccontextmanager
async def open_backend(options: LocalOptions) -> AsyncIterator[tuple[LocalBackend, Path]]:
    """The source, and the folder for what is kept of it, temporary if none is named. Raises Setback."""
    async with provider_of(options.source).opened(options) as source:
        if options.verify_keys and not source.epoch:
            # A provider that verifies nothing must not pass for one that does.
            raise Stalled(
                "InvalidSpec", f"--verify-key: {source.display_name} is never verified; leave it out"
            )
        identity = StateIdentity(source.address, options.reference, options.paths, source.epoch)
        held = contextlib.ExitStack()
        folder = await asyncio.to_thread(held.enter_context, state_folder(options.state_dir, identity))
        try:
            yield source.with_folder(folder), folder
        finally:
            await asyncio.to_thread(held.close)


async def read_commit(options: LocalOptions) -> tuple[Fetched, Mapping[str, bytes]]:
    """The source's revision and its files, as far as `options.paths` could match. Raises Setback."""
    async with open_backend(options) as (source, _):
        return await files_of(source, await source.resolve())


async def files_of(source: LocalBackend, revision: Revision) -> tuple[Fetched, Mapping[str, bytes]]:
    """A revision's files, as an artifact of it would hold them. Raises Setback."""
    async with quarantine(f"the files of {revision}") as folder:
        fetched = await source.fetch(revision, folder)
        archive = await asyncio.to_thread(pack, folder)
        return fetched, await asyncio.to_thread(unpack, archive)
